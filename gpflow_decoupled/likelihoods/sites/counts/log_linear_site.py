"""Sites with rate or scale e^f: Poisson, exponential, gamma, Tweedie."""

from __future__ import annotations

__all__ = ["TWEEDIE", "LogLinearLoss", "exponential_sites", "gamma_sites", "poisson_sites"]

from collections.abc import Callable
from functools import partial

import numpy as np
import tensorflow as tf
from gpflow import likelihoods as gl
from gpflow.base import TensorType

from ....errors import DataError
from ...parameters import constant_parameter
from ...support import COUNTS, NOT_NEGATIVE, POSITIVE, Support
from ...tweedie import Tweedie
from ..description import SiteDescription, SiteLossBuilder
from ..expected_loss import ExpectedLoss
from ..site_loss import Expansion, Maximiser, SiteLoss, dual_objective, site_labels

_TINY = 1e-30
"""Least E in h, so that it stays finite for an alpha at the end of S."""


class LogLinearLoss(SiteLoss):
    """The site loss f = E - a s h + b, E = exp(s h + sigma^2 / 2 + log c), s = 1 or -1.

    Poisson: s = 1, a = y, c the size of a bin. Gamma of shape k: s = -1, a = k, c = y.

    :param Y: labels [N, L].
    :param sign: s.
    :param log_scale: log c, a scalar or [N, L].
    :param weight: returns a, a scalar or [N, L]; a function, so that gradients reach its Parameter.
    :param constant: returns b, a scalar or [N, L].

    Example, exponential times Y with mean e^f::

        loss = LogLinearLoss(
            Y, -1.0, tf.math.log(Y), lambda: tf.ones_like(Y), lambda: tf.zeros_like(Y)
        )
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
        return -self._weight() * tf.ones_like(self.Y) if self._sign > 0 else self._constant(-np.inf)

    @property
    def upper(self) -> tf.Tensor:
        return self._constant(np.inf) if self._sign > 0 else self._weight() * tf.ones_like(self.Y)

    def value(self, h: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
        return self._loss(self._mean(h, sigma), h)

    def expand(self, h: tf.Tensor, sigma: tf.Tensor) -> Expansion:
        E, sign = self._mean(h, sigma), self._sign
        return Expansion(
            self._loss(E, h),
            sign * (E - self._weight()),
            sigma * E,
            E,
            sign * sigma * E,
            (1.0 + tf.square(sigma)) * E,
        )

    def start(self, alpha: tf.Tensor) -> tf.Tensor:
        return self._sign * (tf.math.log(self._mean_at(alpha)) - self._log_scale)

    def maximiser(
        self, alpha: tf.Tensor, lam: tf.Tensor, sigma_k: tf.Tensor, rho: tf.Tensor
    ) -> Maximiser:
        """The maximum of `dual_objective`, [N, L] each; for Poisson counts (21) of Khan 2014."""
        # the maximum of (V15)
        E = self._mean_at(alpha)
        slope = sigma_k / (E + rho)
        sigma = (lam + rho) * slope
        h = self.start(alpha) - 0.5 * self._sign * tf.square(sigma)
        value = dual_objective(self._loss(E, h), h, sigma, alpha, lam, sigma_k, rho)
        return Maximiser(
            h,
            sigma,
            value,
            1.0 / E + tf.square(sigma) / (E + rho),
            -self._sign * sigma * slope,
            slope,
        )

    def _mean(self, h: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
        return tf.exp(
            tf.minimum(self._sign * h + 0.5 * tf.square(sigma) + self._log_scale, self._limit)
        )

    def _mean_at(self, alpha: tf.Tensor) -> tf.Tensor:
        return tf.maximum(self._weight() + self._sign * alpha, _TINY)

    def _loss(self, E: tf.Tensor, h: tf.Tensor) -> tf.Tensor:
        return E - self._weight() * self._sign * h + self._offset()


def _poisson_loss(likelihood: gl.Poisson, Y: TensorType) -> LogLinearLoss:
    y = site_labels(Y)
    log_bin = tf.cast(
        tf.math.log(constant_parameter(likelihood.binsize, "binsize", positive=True)), y.dtype
    )
    offset = tf.math.lgamma(y + 1.0) - y * log_bin
    return LogLinearLoss(y, 1.0, log_bin, partial(tf.identity, y), partial(tf.identity, offset))


def _exponential_loss(likelihood: gl.Exponential, Y: TensorType) -> LogLinearLoss:
    y = site_labels(Y)
    return LogLinearLoss(
        y, -1.0, _log_labels(y), partial(tf.ones_like, y), partial(tf.zeros_like, y)
    )


def _gamma_loss(likelihood: gl.Gamma, Y: TensorType) -> LogLinearLoss:
    y = site_labels(Y)
    log_y = _log_labels(y)
    constant_parameter(likelihood.shape, "The shape of the gamma", positive=True)

    def shape() -> tf.Tensor:
        return tf.convert_to_tensor(likelihood.shape)

    def offset() -> tf.Tensor:
        return tf.math.lgamma(shape()) - (shape() - 1.0) * log_y

    return LogLinearLoss(y, -1.0, log_y, shape, offset)


def _log_labels(y: tf.Tensor) -> tf.Tensor:
    if tf.executing_eagerly() and np.any(np.asarray(y) <= 0):
        raise DataError(
            "Y has entries of exactly 0, at which the density grows without bound as the scale"
            " falls; use Y above 0."
        )
    return tf.math.log(y)


def poisson_sites(likelihood: gl.Poisson) -> SiteDescription:
    """Sites of a Poisson likelihood."""
    return _described(likelihood, _poisson_loss, COUNTS)


def exponential_sites(likelihood: gl.Exponential) -> SiteDescription:
    """Sites of an exponential likelihood."""
    return _described(likelihood, _exponential_loss, NOT_NEGATIVE)


def gamma_sites(likelihood: gl.Gamma) -> SiteDescription:
    """Sites of a gamma likelihood."""
    return _described(likelihood, _gamma_loss, POSITIVE)


def _described(
    likelihood: gl.Poisson | gl.Exponential | gl.Gamma, loss: SiteLossBuilder, support: Support
) -> SiteDescription:
    return SiteDescription(loss=loss if likelihood.invlink is tf.exp else None, support=support)


def _tweedie_loss(likelihood: Tweedie, Y: TensorType) -> ExpectedLoss:
    """Log-concave loss with slope (m^(2 - p) - y m^(1 - p)) / phi, m = e^eta."""
    y = site_labels(Y)
    constant_parameter(likelihood.dispersion, "The dispersion", positive=True)

    def ends() -> tuple[tf.Tensor, tf.Tensor]:
        infinite = tf.fill(tf.shape(y), tf.constant(np.inf, y.dtype))
        return tf.where(y > 0.0, -infinite, tf.zeros_like(y)), infinite

    def start(alpha: tf.Tensor) -> tf.Tensor:
        """At y = 0 the solution, else one Newton step from the mode, in logarithms."""
        p, phi = tf.convert_to_tensor(likelihood.power), tf.convert_to_tensor(likelihood.dispersion)
        none = tf.math.log(tf.maximum(phi * alpha, _TINY)) / (2.0 - p)
        some = tf.where(y > 0.0, y, tf.ones_like(y))
        return tf.where(
            y > 0.0, tf.math.log(some) + tf.asinh(phi * alpha * some ** (p - 2.0)), none
        )

    return ExpectedLoss(likelihood, y, ends, start)


TWEEDIE = SiteDescription(loss=_tweedie_loss, support=NOT_NEGATIVE)
