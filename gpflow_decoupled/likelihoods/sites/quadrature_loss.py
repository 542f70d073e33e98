"""The site loss of any likelihood with one latent an observation, by Gauss-Hermite quadrature."""

from __future__ import annotations

__all__ = ["Pointwise", "QuadratureLoss", "automatic"]

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf
from gpflow import likelihoods as gl
from gpflow.base import TensorType
from gpflow.likelihoods.base import DEFAULT_NUM_GAUSS_HERMITE_POINTS
from numpy.polynomial.hermite_e import hermegauss

from ...errors import DataError
from .site_loss import Expansion, SiteLoss

End: TypeAlias = TensorType | Callable[[], tf.Tensor]
"""A number or an array that broadcasts to [N, L], or a function that gives one from Parameters."""


class Pointwise(NamedTuple):
    """l = -log p(y | eta) and its derivatives in eta, at eta [..., N, L]."""

    loss: Callable[[tf.Tensor], tf.Tensor]
    """l, of the shape of eta, nats"""
    slopes: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
    """l' and l'', each of the shape of eta"""


class QuadratureLoss(SiteLoss):
    """f = sum_q w_q l(h + sigma z_q), with its exact derivatives (V2).

    The nodes are those by which the likelihood itself integrates in GPflow, 20 unless it was given another `quadrature`: f is
    minus its `variational_expectations`. They are symmetric, so that f is even in sigma, and convex where l is. Where sigma is
    several times the width of the likelihood the sum is not the integral: for Student-t noise of scale s, 20 nodes are off by
    0.02 nats at sigma = 4 s and by 0.5 at 20 s. Then pass the likelihood `quadrature=NDiagGHQuadrature(1, 100)` or more.

    :param likelihood: with one latent an observation, and parameters that are not functions of the inputs.
    :param Y: labels [N, L].
    :param lower, upper: the ends of S, between which l' lies; numbers, arrays [N, L], or functions that give them.
    :param curvature: c >= 0 with l'' >= -c, likewise; 0 for a log-concave likelihood.
    :param pointwise: l, l', l'' by hand; by automatic differentiation of the likelihood's density if not given.
    :param start: of alpha [N, L], some h with l'(h) near alpha; zero if not given.

    Raises `DataError` for a likelihood that is not a `gpflow.likelihoods.ScalarLikelihood`, and ends or curvatures that cannot
    be. Cost: N L Q evaluations of l.
    """

    def __init__(
        self,
        likelihood: gl.ScalarLikelihood,
        Y: TensorType,
        lower: End,
        upper: End,
        curvature: End = 0.0,
        *,
        pointwise: Pointwise | None = None,
        start: Callable[[tf.Tensor], tf.Tensor] | None = None,
    ) -> None:
        super().__init__(Y)
        if not isinstance(likelihood, gl.ScalarLikelihood) or isinstance(likelihood, gl.SwitchedLikelihood):
            raise DataError(
                f"{type(likelihood).__name__} has more to it than one latent an observation: it has no site loss."
            )
        points = getattr(likelihood.quadrature, "n_gh", DEFAULT_NUM_GAUSS_HERMITE_POINTS)
        nodes, weights = hermegauss(points)
        self._nodes = nodes.astype(self.Y.dtype.as_numpy_dtype)
        self._weights = (weights / weights.sum()).astype(self._nodes.dtype)
        self._ends = (lower, upper, curvature)
        self._pointwise = automatic(likelihood, self.Y) if pointwise is None else pointwise
        self._start = start
        if tf.executing_eagerly():
            self._check()

    def _check(self) -> None:
        if not np.all(np.asarray(self.lower) < np.asarray(self.upper)):
            raise DataError("lower must be below upper: they are the ends of the interval of the derivative of -log p.")
        if not np.all((np.asarray(self.curvature) >= 0) & np.isfinite(np.asarray(self.curvature))):
            raise DataError(
                "curvature must be 0 or more and finite: the second derivative of -log p is at least -curvature."
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
        """[Q, N, L]."""
        return h + sigma * self._nodes[:, None, None]

    def value(self, h: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
        """The loss f [N, L]."""
        return tf.tensordot(self._weights, self._pointwise.loss(self._eta(h, sigma)), 1)  # (V2)

    def expand(self, h: tf.Tensor, sigma: tf.Tensor) -> Expansion:
        """The loss and its derivatives, [N, L] each."""
        eta, w, z = self._eta(h, sigma), self._weights, self._nodes
        first, second = self._pointwise.slopes(eta)
        d_h, d_s = tf.unstack(tf.tensordot(np.stack([w, w * z]), first, 1))  # (V2)
        d_hh, d_hs, d_ss = tf.unstack(tf.tensordot(np.stack([w, w * z, w * z**2]), second, 1))  # (V2)
        return Expansion(tf.tensordot(w, self._pointwise.loss(eta), 1), d_h, d_s, d_hh, d_hs, d_ss)

    def start(self, alpha: tf.Tensor) -> tf.Tensor:
        """Some h [N, L] at which l' is about alpha [N, L], or zero."""
        return super().start(alpha) if self._start is None else self._start(alpha)


def automatic(likelihood: gl.ScalarLikelihood, Y: tf.Tensor) -> Pointwise:
    """The loss at labels Y [N, L] and its derivatives from the likelihood's density."""
    inputs = tf.zeros([1, 0], Y.dtype)

    def loss(eta: tf.Tensor) -> tf.Tensor:
        return -likelihood._scalar_log_prob(inputs, eta, Y)

    def slopes(eta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as outer:
            outer.watch(eta)
            with tf.GradientTape() as inner:
                inner.watch(eta)
                total = loss(eta)
            first = inner.gradient(total, eta, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return first, outer.gradient(first, eta, unconnected_gradients=tf.UnconnectedGradients.ZERO)

    return Pointwise(loss, slopes)
