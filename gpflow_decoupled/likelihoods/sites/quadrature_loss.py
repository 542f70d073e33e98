"""The site loss of any scalar likelihood."""

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
from ...expectations.peaked import peaked_rule
from ..parameters import extreme_parameters
from .description import check_one_latent
from .site_loss import Expansion, SiteLoss

End: TypeAlias = TensorType | Callable[[], TensorType]
"""A number or an array that broadcasts to [N, L], or a function that computes it."""
Slopes: TypeAlias = Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
"""eta [Q, N, L] -> first and second derivative of -log p(y | eta), of the same shape."""


class QuadratureLoss(SiteLoss):
    """The site loss f = sum_q w_q l(h + sigma z_q), l(eta) = -log p(y | eta), by quadrature.

    Nodes and weights are the likelihood's. With `centre` and `width` of the bend of l, nodes follow
    the narrower of Gaussian and likelihood, for errors near 1e-9 nats. Cost: N L Q evaluations of
    l; Q = 128 with a width.

    :param likelihood: with one latent function per observation and constant Parameters.
    :param Y: labels [N, L].
    :param lower: lower end of S, the range of l', [N, L]; this, `upper`, `curvature`, `width` and
        `centre` may be functions of nothing, for what depends on Parameters.
    :param upper: upper end of S.
    :param curvature: c >= 0 with l'' >= -c; 0 if log-concave.
    :param slopes: l' and l'' at eta [Q, N, L]; by default automatic differentiation.
    :param start: alpha [N, L] -> h with l'(h) near alpha; by default zero.
    :param width: distance of l's nearest complex singularity from the real line; by default nodes
        are fixed.
    :param centre: its place on the real line; by default zero.

    Example, p(y | f) = 1 / (pi cosh(y - f)), with slopes tanh(f - y) and a pole at y + i pi/2::

        loss = QuadratureLoss(Sech(), Y, lower=-1.0, upper=1.0, width=np.pi / 2, centre=Y)
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
        width: End | None = None,
        centre: End = 0.0,
    ) -> None:
        super().__init__(Y)
        check_one_latent(likelihood)
        self._points = getattr(likelihood.quadrature, "n_gh", DEFAULT_NUM_GAUSS_HERMITE_POINTS)
        self._ends = (lower, upper, curvature)
        self._width, self._centre = width, centre
        self._likelihood = likelihood
        self._slopes = self._automatic_slopes if slopes is None else slopes
        self._start = start
        if tf.executing_eagerly():
            self._check()

    def _check(self) -> None:
        if not np.all(np.asarray(self.lower) <= np.asarray(self.upper)):
            raise DataError(
                "lower must be below upper: they are the ends of the interval of the derivative of"
                " -log p(y | f) in f."
            )
        if not np.all((np.asarray(self.curvature) >= 0) & np.isfinite(np.asarray(self.curvature))):
            raise DataError(
                "curvature must be 0 or more and finite: the second derivative of -log p(y | f) in"
                " f is at least -curvature. " + extreme_parameters(self._likelihood)
            )
        width = 1.0 if self.width is None else np.asarray(self.width)
        if not np.all((width > 0) & np.isfinite(width)):
            raise DataError(
                "width must be above 0 and finite: the distance over which log p(y | f) bends as a"
                " function of f."
            )

    def _array(self, end: End) -> tf.Tensor:
        return tf.cast(end() if callable(end) else end, self.Y.dtype) * tf.ones_like(self.Y)

    @property
    def lower(self) -> tf.Tensor:
        return self._array(self._ends[0])

    @property
    def upper(self) -> tf.Tensor:
        return self._array(self._ends[1])

    @property
    def curvature(self) -> tf.Tensor:
        return self._array(self._ends[2])

    @property
    def width(self) -> tf.Tensor | None:
        """Distance over which l bends [N, L]; None for fixed nodes."""
        return None if self._width is None else self._array(self._width)

    @property
    def centre(self) -> tf.Tensor:
        """Where l bends [N, L]."""
        return self._array(self._centre)

    def _rule(self, h: tf.Tensor, sigma: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        if self.width is not None:
            return peaked_rule(h, sigma, self.centre, self.width, self._points)
        nodes, weights = (
            tf.constant(part, self.Y.dtype)[:, None, None] for part in hermegauss(self._points)
        )
        return nodes, weights / tf.reduce_sum(weights)

    def _pointwise(self, eta: tf.Tensor) -> tf.Tensor:
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
        z, w = self._rule(h, sigma)
        return tf.reduce_sum(w * self._pointwise(h + sigma * z), axis=0)  # (V2)

    def expand(self, h: tf.Tensor, sigma: tf.Tensor) -> Expansion:
        z, w = self._rule(h, sigma)
        eta = h + sigma * z
        first, second = (w * slope for slope in self._slopes(eta))
        # by the chain rule each derivative in sigma multiplies the term of a node by z_q
        terms = (w * self._pointwise(eta), first, z * first, second, z * second, z**2 * second)
        return Expansion(*(tf.reduce_sum(term, axis=0) for term in terms))  # (V2)

    def start(self, alpha: tf.Tensor) -> tf.Tensor:
        return super().start(alpha) if self._start is None else self._start(alpha)
