"""The site losses of likelihoods whose rate or scale is the exponential of the latent: Poisson, exponential, gamma."""

from __future__ import annotations

__all__ = ["LogLinearLoss", "gamma_loss", "poisson_loss"]

from collections.abc import Callable
from functools import partial

import numpy as np
import tensorflow as tf
from gpflow import likelihoods as gl
from gpflow.base import TensorType

from ...errors import DataError
from ..parameters import constant_parameter
from .site_loss import Expansion, Maximiser, SiteLoss, dual_objective, site_labels

_TINY = 1e-30
"""Least E at which the maximum is looked for: alpha at the end of S itself stays finite."""


class LogLinearLoss(SiteLoss):
    """f = E - a s h + b with E = exp(s h + sigma^2 / 2 + log c), s = 1 or -1.

    Poisson: s = 1, a = y, c the size of a bin. Gamma of shape k: s = -1, a = k, c = y. The exponent is clipped where E would
    overflow in products.

    :param Y: [N, L]. :param sign: s. :param log_scale: log c, a scalar or [N, L].
    :param weight: gives a, a scalar or [N, L]; a function, so that gradients reach the Parameter behind it.
    :param constant: gives b, a scalar or [N, L].
    """

    def __init__(
        self,
        Y: TensorType,
        sign: float,
        log_scale: tf.Tensor,
        weight: Callable[[], tf.Tensor],
        constant: Callable[[], tf.Tensor],
    ) -> None:
        super().__init__(Y)
        self._sign, self._log_scale, self._weight, self._offset = sign, log_scale, weight, constant
        self._limit = 100.0 if self.Y.dtype == tf.float64 else 40.0

    @property
    def lower(self) -> tf.Tensor:
        """Minus a for s = 1, otherwise -inf: [N, L]."""
        return -self._weight() * tf.ones_like(self.Y) if self._sign > 0 else self._constant(-np.inf)

    @property
    def upper(self) -> tf.Tensor:
        """Inf for s = 1, otherwise a: [N, L]."""
        return self._constant(np.inf) if self._sign > 0 else self._weight() * tf.ones_like(self.Y)

    def value(self, h: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
        """The loss f [N, L]."""
        return self._loss(self._mean(h, sigma), h)

    def expand(self, h: tf.Tensor, sigma: tf.Tensor) -> Expansion:
        """The loss and its derivatives, [N, L] each."""
        E, sign = self._mean(h, sigma), self._sign
        return Expansion(
            self._loss(E, h), sign * (E - self._weight()), sigma * E, E, sign * sigma * E, (1.0 + tf.square(sigma)) * E
        )

    def start(self, alpha: tf.Tensor) -> tf.Tensor:
        """The h [N, L] with f_h = alpha at sigma = 0."""
        return self._sign * (tf.math.log(self._mean_at(alpha)) - self._log_scale)

    def maximiser(self, alpha: tf.Tensor, lam: tf.Tensor, sigma_k: tf.Tensor, rho: tf.Tensor) -> Maximiser:
        """The maximum of (V15), [N, L] each; for Poisson (21) of Khan 2014."""
        E = self._mean_at(alpha)
        slope = sigma_k / (E + rho)
        sigma = (lam + rho) * slope
        h = self.start(alpha) - 0.5 * self._sign * tf.square(sigma)
        value = dual_objective(self._loss(E, h), h, sigma, alpha, lam, sigma_k, rho)
        return Maximiser(h, sigma, value, 1.0 / E + tf.square(sigma) / (E + rho), -self._sign * sigma * slope, slope)

    def _mean(self, h: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
        """E [N, L]."""
        return tf.exp(tf.minimum(self._sign * h + 0.5 * tf.square(sigma) + self._log_scale, self._limit))

    def _mean_at(self, alpha: tf.Tensor) -> tf.Tensor:
        """The E [N, L] at which f_h = alpha."""
        return tf.maximum(self._weight() + self._sign * alpha, _TINY)

    def _loss(self, E: tf.Tensor, h: tf.Tensor) -> tf.Tensor:
        return E - self._weight() * self._sign * h + self._offset()


def poisson_loss(likelihood: gl.Poisson, Y: TensorType) -> LogLinearLoss:
    """The loss of counts Y [N, L] with rate exp(eta) times the size of a bin."""
    y = site_labels(Y)
    log_bin = tf.cast(tf.math.log(constant_parameter(likelihood.binsize, "binsize", positive=True)), y.dtype)
    offset = tf.math.lgamma(y + 1.0) - y * log_bin
    return LogLinearLoss(y, 1.0, log_bin, partial(tf.identity, y), partial(tf.identity, offset))


def gamma_loss(likelihood: gl.Gamma | gl.Exponential, Y: TensorType) -> LogLinearLoss:
    """The loss of positive Y [N, L] with scale exp(eta); an exponential is a gamma of shape 1.

    Raises `DataError` for labels of 0, at which the density grows without end as the scale falls.
    """
    y = site_labels(Y)
    if tf.executing_eagerly() and np.any(np.asarray(y) <= 0):
        raise DataError("Y has entries of exactly 0, at which the density of a scale has no maximum; use Y above 0.")
    log_y = tf.math.log(y)
    if isinstance(likelihood, gl.Exponential):
        return LogLinearLoss(y, -1.0, log_y, partial(tf.ones_like, y), partial(tf.zeros_like, y))

    constant_parameter(likelihood.shape, "The shape of the gamma", positive=True)

    def shape() -> tf.Tensor:
        return tf.convert_to_tensor(likelihood.shape)

    def offset() -> tf.Tensor:
        return tf.math.lgamma(shape()) - (shape() - 1.0) * log_y

    return LogLinearLoss(y, -1.0, log_y, shape, offset)
