"""Closed-form sites of quantiles."""

from __future__ import annotations

__all__ = ["QUANTILE", "QuantileLoss"]

import tensorflow as tf
from gpflow.base import TensorType

from ..asymmetric_laplace import AsymmetricLaplace
from .description import SiteDescription
from .laplace_site import LaplaceLoss
from .site_loss import Expansion, Maximiser


class QuantileLoss(LaplaceLoss):
    """The site loss of a quantile: a Laplace loss of scale 2 b, and a linear function.

    With c = (1/2 - q) / b, f = L(h, sigma) + c (h - y) - log 4 q (1 - q).

    :param likelihood: with the quantile q and the scale b.
    :param Y: labels y [N, L].

    Example::

        loss = QuantileLoss(AsymmetricLaplace(0.9), Y)
        loss.value(h, sigma)  # [N, L], nats
    """

    def __init__(self, likelihood: AsymmetricLaplace, Y: TensorType) -> None:
        super().__init__(likelihood, Y)
        self._quantiles = likelihood

    @property
    def _scale(self) -> tf.Tensor:
        return 2.0 * tf.convert_to_tensor(self._quantiles.scale)

    @property
    def _slope(self) -> tf.Tensor:
        return (0.5 - self._quantiles.quantile) / tf.convert_to_tensor(self._quantiles.scale)

    @property
    def lower(self) -> tf.Tensor:
        return super().lower + self._slope

    @property
    def upper(self) -> tf.Tensor:
        return super().upper + self._slope

    def value(self, h: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
        linear = self._slope * (h - self.Y) - self._quantiles.log_excess()
        return super().value(h, sigma) + linear

    def expand(self, h: tf.Tensor, sigma: tf.Tensor) -> Expansion:
        half = super().expand(h, sigma)  # with the value of this class
        return half._replace(d_h=half.d_h + self._slope)

    def maximiser(
        self, alpha: tf.Tensor, lam: tf.Tensor, sigma_k: tf.Tensor, rho: tf.Tensor
    ) -> Maximiser:
        best = super().maximiser(alpha - self._slope, lam, sigma_k, rho)
        constant = self._slope * self.Y + self._quantiles.log_excess()
        return best._replace(value=best.value + constant)


QUANTILE = SiteDescription(loss=QuantileLoss)
