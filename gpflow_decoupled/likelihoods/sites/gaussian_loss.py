"""The site loss of Gaussian noise, in closed form."""

from __future__ import annotations

__all__ = ["GaussianLoss"]

import numpy as np
import tensorflow as tf
from gpflow import likelihoods as gl
from gpflow.base import TensorType

from ..parameters import constant_parameter
from .site_loss import Expansion, Maximiser, SiteLoss, dual_objective


class GaussianLoss(SiteLoss):
    """f = log(2 pi s^2) / 2 + ((y - h)^2 + sigma^2) / (2 s^2), for Y [N, L] and the variance s^2 of the likelihood."""

    def __init__(self, likelihood: gl.Gaussian, Y: TensorType) -> None:
        super().__init__(Y)
        self._likelihood = likelihood
        constant_parameter(self._parameter, "The noise variance or scale", positive=True)

    @property
    def _parameter(self) -> object:
        likelihood = self._likelihood
        return likelihood.scale if likelihood.variance is None else likelihood.variance

    @property
    def variance(self) -> tf.Tensor:
        """s^2, of a shape that broadcasts to [N, L]."""
        parameter = tf.convert_to_tensor(self._parameter)
        return tf.square(parameter) if self._likelihood.variance is None else parameter

    @property
    def lower(self) -> tf.Tensor:
        """-inf [N, L]."""
        return self._constant(-np.inf)

    @property
    def upper(self) -> tf.Tensor:
        """Inf [N, L]."""
        return self._constant(np.inf)

    def value(self, h: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
        """The loss f [N, L]."""
        variance = self.variance
        squares = tf.square(self.Y - h) + tf.square(sigma)
        return 0.5 * (np.log(2.0 * np.pi) + tf.math.log(variance) + squares / variance)

    def expand(self, h: tf.Tensor, sigma: tf.Tensor) -> Expansion:
        """The loss and its derivatives, [N, L] each."""
        precision = tf.ones_like(h) / self.variance
        zero = tf.zeros_like(h)
        return Expansion(self.value(h, sigma), (h - self.Y) * precision, sigma * precision, precision, zero, precision)

    def start(self, alpha: tf.Tensor) -> tf.Tensor:
        """The h [N, L] with f_h = alpha."""
        return self.Y + self.variance * alpha

    def maximiser(self, alpha: tf.Tensor, lam: tf.Tensor, sigma_k: tf.Tensor, rho: tf.Tensor) -> Maximiser:
        """The maximum of (V15), [N, L] each; Khan 2014, section 6.3."""
        variance = self.variance * tf.ones_like(alpha)
        slope = sigma_k / (1.0 / variance + rho)
        h, sigma = self.start(alpha), (lam + rho) * slope
        value = dual_objective(self.value(h, sigma), h, sigma, alpha, lam, sigma_k, rho)
        return Maximiser(h, sigma, value, variance, tf.zeros_like(h), slope)
