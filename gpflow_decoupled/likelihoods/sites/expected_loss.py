"""Site losses from an accurate expected log density."""

from __future__ import annotations

__all__ = ["ExpectedLoss"]

from collections.abc import Callable

import tensorflow as tf
from gpflow.base import TensorType
from gpflow.likelihoods import ScalarLikelihood

from ..numbered import NumberedLikelihood
from .site_loss import Expansion, SiteLoss


class ExpectedLoss(SiteLoss):
    """The site loss -E log p(y | eta) of a likelihood with accurate `variational_expectations`.

    Derivatives are automatic ones, at four times the cost of a value.

    :param likelihood: its `_variational_expectations` are of any shape, and twice differentiable.
    :param Y: as the likelihood takes it, [N, L] or with a column of numbers.
    :param ends: returns both ends of S [N, L]; a function, since Parameters change. Equal ends, of
        a row that says nothing of eta, leave it out of the dual.
    :param start: alpha [N, L] -> h [N, L] with about this slope.
    :param curvature: returns c [N, L], see `SiteLoss.curvature`; by default log-concave.

    Example::

        ends = lambda: (-np.inf * tf.ones_like(Y), np.inf * tf.ones_like(Y))
        loss = ExpectedLoss(likelihood, Y, ends, lambda alpha: Y + alpha)
        loss.value(h, sigma)  # [N, L], nats
    """

    def __init__(
        self,
        likelihood: ScalarLikelihood,
        Y: TensorType,
        ends: Callable[[], tuple[tf.Tensor, tf.Tensor]],
        start: Callable[[tf.Tensor], tf.Tensor],
        curvature: Callable[[], tf.Tensor] | None = None,
    ) -> None:
        numbered = isinstance(likelihood, NumberedLikelihood)
        y, *number = likelihood.split(Y) if numbered else (Y,)
        super().__init__(y)
        # a row [1] or [2] for each latent
        self._rows = tf.stack([self.Y, *(one + tf.zeros_like(self.Y) for one in number)], axis=-1)
        self._likelihood, self._ends, self._start = likelihood, ends, start
        self._curvature = curvature

    @property
    def lower(self) -> tf.Tensor:
        return self._ends()[0]

    @property
    def upper(self) -> tf.Tensor:
        return self._ends()[1]

    @property
    def curvature(self) -> tf.Tensor:
        return super().curvature if self._curvature is None else self._curvature()

    @property
    def log_concave(self) -> bool:
        return self._curvature is None

    def value(self, h: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
        moments = tf.convert_to_tensor(h)[..., None], tf.square(sigma)[..., None]
        return -self._likelihood._variational_expectations(None, *moments, self._rows)

    def expand(self, h: tf.Tensor, sigma: tf.Tensor) -> Expansion:
        zero = tf.UnconnectedGradients.ZERO
        with tf.GradientTape(persistent=True, watch_accessed_variables=False) as outer:
            outer.watch([h, sigma])
            with tf.GradientTape(watch_accessed_variables=False) as inner:
                inner.watch([h, sigma])
                value = self.value(h, sigma)
            d_h, d_s = inner.gradient(value, [h, sigma], unconnected_gradients=zero)
        d_hh, d_hs = outer.gradient(d_h, [h, sigma], unconnected_gradients=zero)
        d_ss = outer.gradient(d_s, sigma, unconnected_gradients=zero)
        return Expansion(value, d_h, d_s, d_hh, d_hs, d_ss)

    def start(self, alpha: tf.Tensor) -> tf.Tensor:
        return self._start(alpha)
