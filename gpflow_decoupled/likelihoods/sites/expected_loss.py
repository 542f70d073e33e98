"""Site losses from a closed-form expected log density."""

from __future__ import annotations

__all__ = ["ExpectedLoss"]

from collections.abc import Callable
from typing import Protocol

import tensorflow as tf
from gpflow.base import TensorType

from .site_loss import Expansion, SiteLoss


class _Expects(Protocol):
    def expected_log_prob(self, mean: tf.Tensor, spread: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        """E log p(y | f), f ~ N(mean, spread^2), [N, L]."""


class ExpectedLoss(SiteLoss):
    """The site loss -E log p(y | eta) of a likelihood with `expected_log_prob`; log-concave.

    Derivatives are automatic ones, at four times the cost of a value.

    :param likelihood: with a method `expected_log_prob(mean, spread, Y)`.
    :param Y: as the likelihood takes it, [N, L] or with a column of numbers.
    :param y: its observations [N, L].
    :param ends: returns both ends of S [N, L]; a function, so that gradients reach Parameters.
    :param start: alpha [N, L] -> h [N, L] with about this slope.

    Example::

        ends = lambda: (-np.inf * tf.ones_like(Y), np.inf * tf.ones_like(Y))
        loss = ExpectedLoss(likelihood, Y, Y, ends, lambda alpha: Y + alpha)
        loss.value(h, sigma)  # [N, L], nats
    """

    def __init__(
        self,
        likelihood: _Expects,
        Y: TensorType,
        y: TensorType,
        ends: Callable[[], tuple[tf.Tensor, tf.Tensor]],
        start: Callable[[tf.Tensor], tf.Tensor],
    ) -> None:
        super().__init__(y)
        self._likelihood, self._whole = likelihood, Y
        self._ends, self._start = ends, start

    @property
    def lower(self) -> tf.Tensor:
        return self._ends()[0]

    @property
    def upper(self) -> tf.Tensor:
        return self._ends()[1]

    def value(self, h: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
        return -self._likelihood.expected_log_prob(
            tf.convert_to_tensor(h), tf.convert_to_tensor(sigma), self._whole
        )

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
