"""The site loss of any likelihood with one latent function per observation, by Gauss-Hermite quadrature."""

from __future__ import annotations

__all__ = ["QuadratureLoss", "Slopes"]

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import tensorflow as tf
from gpflow import likelihoods as gl
from gpflow.base import TensorType
from gpflow.likelihoods.base import DEFAULT_NUM_GAUSS_HERMITE_POINTS
from numpy.polynomial.hermite_e import hermegauss

from ...errors import DataError
from .description import check_one_latent
from .site_loss import Expansion, SiteLoss

End: TypeAlias = TensorType | Callable[[], TensorType]
"""A number or an array that broadcasts to [N, L], or a function that computes one from Parameters"""
Slopes: TypeAlias = Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
"""Of eta [Q, N, L]: the first and second derivatives of -log p(y | eta) in eta, each of the shape of eta"""


class QuadratureLoss(SiteLoss):
    """The site loss f = sum_q w_q l(h + sigma z_q), where l(eta) = -log p(y | eta), with its exact derivatives (V2).

    The nodes z_q and weights w_q are those by which the likelihood itself integrates in GPflow, 20 unless it was given another
    `quadrature`: f is minus its `variational_expectations`. The nodes are symmetric, so that f is even in sigma, and convex
    where l is. Where sigma is several times the width of the likelihood the sum is not the integral: for Student-t noise of
    scale s, 20 nodes are wrong by 0.02 nats at sigma = 4 s and by 0.5 at 20 s. There, pass the likelihood
    `quadrature=gpflow.quadrature.NDiagGHQuadrature(1, 100)`.

    :param likelihood: with one latent function per observation, and parameters that are not functions of the inputs.
    :param Y: labels [N, L].
    :param lower: the lower end of S, the interval of the derivatives l'; a number, an array [N, L], or a function without
        arguments that computes it, where it depends on Parameters.
    :param upper: the upper end of S, likewise.
    :param curvature: a number c >= 0 with l'' >= -c, likewise; 0 for a log-concave likelihood.
    :param slopes: l' and l'' at eta [Q, N, L]; by automatic differentiation of the likelihood's log density if not given.
    :param start: of alpha [N, L], some h with l'(h) near alpha; zero if not given.
    :raises DataError: for a likelihood with several latent functions per observation, for ends that are not in order, and
        for a negative curvature.

    The cost is N L Q evaluations of l for Q nodes. Example, the likelihood with p(y | f) = 1 / (pi cosh(y - f)), whose
    -log p has derivatives tanh(f - y) between -1 and 1::

        loss = QuadratureLoss(Sech(), Y, lower=-1.0, upper=1.0)
        loss.expand(h, sigma).d_h
    """

    def __init__(
        self,
        likelihood: gl.ScalarLikelihood,
        Y: TensorType,
        lower: End,
        upper: End,
        curvature: End = 0.0,
        *,
        slopes: Slopes | None = None,
        start: Callable[[tf.Tensor], tf.Tensor] | None = None,
    ) -> None:
        super().__init__(Y)
        check_one_latent(likelihood)
        points = getattr(likelihood.quadrature, "n_gh", DEFAULT_NUM_GAUSS_HERMITE_POINTS)
        nodes, weights = hermegauss(points)
        self._nodes = nodes.astype(self.Y.dtype.as_numpy_dtype)
        self._weights = (weights / weights.sum()).astype(self._nodes.dtype)
        self._ends = (lower, upper, curvature)
        self._likelihood = likelihood
        self._slopes = self._automatic_slopes if slopes is None else slopes
        self._start = start
        if tf.executing_eagerly():
            self._check()

    def _check(self) -> None:
        if not np.all(np.asarray(self.lower) < np.asarray(self.upper)):
            raise DataError(
                "lower must be below upper: they are the ends of the interval of the derivative of -log p(y | f) in f."
            )
        if not np.all((np.asarray(self.curvature) >= 0) & np.isfinite(np.asarray(self.curvature))):
            raise DataError(
                "curvature must be 0 or more and finite: the second derivative of -log p(y | f) in f is at least -curvature."
            )

    def _end(self, number: int) -> tf.Tensor:
        end = self._ends[number]
        return tf.cast(end() if callable(end) else end, self.Y.dtype) * tf.ones_like(self.Y)

    @property
    def lower(self) -> tf.Tensor:
        """The lower end of S [N, L]."""
        return self._end(0)

    @property
    def upper(self) -> tf.Tensor:
        """The upper end of S [N, L]."""
        return self._end(1)

    @property
    def curvature(self) -> tf.Tensor:
        """The c [N, L] with l'' >= -c."""
        return self._end(2)

    def _eta(self, h: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
        """The nodes of each observation [Q, N, L]."""
        return h + sigma * self._nodes[:, None, None]

    def _pointwise(self, eta: tf.Tensor) -> tf.Tensor:
        """The loss l = -log p(y | eta) [Q, N, L] at eta [Q, N, L]; there are no inputs, which a site does not have."""
        return -self._likelihood._scalar_log_prob(tf.zeros([1, 0], self.Y.dtype), eta, self.Y)

    def _automatic_slopes(self, eta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as outer:
            outer.watch(eta)
            with tf.GradientTape() as inner:
                inner.watch(eta)
                total = self._pointwise(eta)
            first = inner.gradient(total, eta, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return first, outer.gradient(first, eta, unconnected_gradients=tf.UnconnectedGradients.ZERO)

    def value(self, h: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
        """The loss f [N, L]."""
        return tf.tensordot(self._weights, self._pointwise(self._eta(h, sigma)), 1)  # (V2)

    def expand(self, h: tf.Tensor, sigma: tf.Tensor) -> Expansion:
        """The loss and its derivatives, [N, L] each."""
        eta, w, z = self._eta(h, sigma), self._weights, self._nodes
        first, second = self._slopes(eta)
        # by the chain rule each derivative in sigma multiplies the term of a node by z_q
        d_h, d_s = tf.unstack(tf.tensordot(np.stack([w, w * z]), first, 1))  # (V2)
        d_hh, d_hs, d_ss = tf.unstack(tf.tensordot(np.stack([w, w * z, w * z**2]), second, 1))  # (V2)
        return Expansion(tf.tensordot(w, self._pointwise(eta), 1), d_h, d_s, d_hh, d_hs, d_ss)

    def start(self, alpha: tf.Tensor) -> tf.Tensor:
        """Some h [N, L] at which l' is about alpha [N, L], or zero."""
        return super().start(alpha) if self._start is None else self._start(alpha)
