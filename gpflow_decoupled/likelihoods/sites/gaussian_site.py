"""Sites of Gaussian noise, in closed form."""

from __future__ import annotations

__all__ = ["GAUSSIAN", "GaussianLoss", "gaussian_site"]

import numpy as np
import tensorflow as tf
from gpflow import likelihoods as gl
from gpflow.base import TensorType

from ...expectations.projections import Site
from ...probability import tfp
from ..parameters import constant_parameter, parameter_per_site
from .description import SiteDescription
from .site_loss import Expansion, Maximiser, SiteLoss, dual_objective


class GaussianLoss(SiteLoss):
    """The site loss of Gaussian noise (Khan 2014, section 6.3), f = log(2 pi s^2) / 2 + ((y - h)^2
    + sigma^2) / (2 s^2).

    :param likelihood: a `gpflow.likelihoods.Gaussian` with noise variance s^2 or scale s.
    :param Y: labels y [N, L].

    Example::

        loss = GaussianLoss(gpflow.likelihoods.Gaussian(0.1), Y)
        loss.value(h, sigma)  # [N, L], nats
    """

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
        """The noise variance s^2, broadcasting to [N, L]."""
        parameter = tf.convert_to_tensor(self._parameter)
        return tf.square(parameter) if self._likelihood.variance is None else parameter

    @property
    def lower(self) -> tf.Tensor:
        return self._constant(-np.inf)

    @property
    def upper(self) -> tf.Tensor:
        return self._constant(np.inf)

    def value(self, h: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
        variance = self.variance
        squares = tf.square(self.Y - h) + tf.square(sigma)
        return 0.5 * (np.log(2.0 * np.pi) + tf.math.log(variance) + squares / variance)

    def expand(self, h: tf.Tensor, sigma: tf.Tensor) -> Expansion:
        precision = tf.ones_like(h) / self.variance
        zero = tf.zeros_like(h)
        return Expansion(
            self.value(h, sigma),
            (h - self.Y) * precision,
            sigma * precision,
            precision,
            zero,
            precision,
        )

    def start(self, alpha: tf.Tensor) -> tf.Tensor:
        return self.Y + self.variance * alpha

    def maximiser(
        self, alpha: tf.Tensor, lam: tf.Tensor, sigma_k: tf.Tensor, rho: tf.Tensor
    ) -> Maximiser:
        variance = self.variance * tf.ones_like(alpha)
        # the maximum of (V15)
        slope = sigma_k / (1.0 / variance + rho)
        h, sigma = self.start(alpha), (lam + rho) * slope
        value = dual_objective(self.value(h, sigma), h, sigma, alpha, lam, sigma_k, rho)
        return Maximiser(h, sigma, value, variance, tf.zeros_like(h), slope)


def gaussian_site(y_0: tf.Tensor, s: tf.Tensor) -> Site:
    """Normal log density of y about y_0 [N], deviation s [N]; needs two moments of y only."""

    def smooth(y: tf.Tensor, y_0: tf.Tensor, s: tf.Tensor) -> tf.Tensor:
        return tfp.distributions.Normal(y_0, s).log_prob(y)

    def gauss(m: tf.Tensor, variance: tf.Tensor, y_0: tf.Tensor, s: tf.Tensor) -> tf.Tensor:
        return smooth(m, y_0, s) - 0.5 * variance / tf.square(s)

    return Site(
        smooth=smooth,
        parameters=(y_0, s),
        kernel=lambda omega, y_0, s: tf.zeros_like(omega),
        gauss=gauss,
        centre=lambda y_0, s: y_0,
    )


def _density(likelihood: gl.Gaussian, Y: tf.Tensor) -> Site:
    if likelihood.variance is None:
        return gaussian_site(Y, parameter_per_site(likelihood.scale, "The noise scale", Y))
    return gaussian_site(
        Y, tf.sqrt(parameter_per_site(likelihood.variance, "The noise variance", Y))
    )


GAUSSIAN = SiteDescription(GaussianLoss, _density)
