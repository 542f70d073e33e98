"""Sites of rates: GPflow's `Beta`, probit link."""

from __future__ import annotations

__all__ = ["GAUSSIAN", "GaussianLoss", "STUDENT_T", "beta_sites", "gaussian_site", "student_t_site"]

import math

import numpy as np
import tensorflow as tf
from gpflow import likelihoods as gl
from gpflow.base import TensorType
from gpflow.likelihoods.utils import inv_probit

from ..expectations.peaked import peaked_rule
from ..expectations.projections import Site
from ..probability import tfp
from .bernoulli import JITTER
from .parameters import UNIT_INTERVAL, constant_parameter, parameter_per_site
from .site_loss import (
    Expansion,
    Maximiser,
    QuadratureLoss,
    SiteDescription,
    SiteLoss,
    dual_objective,
    site_labels,
)

# ---
# Sites of Gaussian noise, in closed form.


class GaussianLoss(SiteLoss):
    """f [N, L] = log(2 pi s^2) / 2 + ((y - h)^2 + sigma^2) / (2 s^2) (Khan 2014, section 6.3)."""

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


# ---
# Sites of Student-t noise and priors.


def _student_t_loss(likelihood: gl.StudentT, Y: TensorType) -> QuadratureLoss:
    """Loss of Student-t noise, not log-concave; S is the range of l' without proximal terms."""
    y = site_labels(Y)
    df = tf.cast(
        constant_parameter(likelihood.df, "The degrees of freedom df", positive=True), y.dtype
    )
    constant_parameter(likelihood.scale, "The noise scale", positive=True)

    def scale() -> tf.Tensor:
        return tf.convert_to_tensor(likelihood.scale)

    def steepest() -> tf.Tensor:
        # the slope is steepest at a residual of scale sqrt(df)
        return (df + 1.0) / (2.0 * scale() * tf.sqrt(df))

    def slopes(eta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        precision = (df + 1.0) / (df * tf.square(scale()))
        weight = 1.0 / (1.0 + tf.square((eta - y) / scale()) / df)
        return precision * (eta - y) * weight, precision * (2.0 * tf.square(weight) - weight)

    def start(alpha: tf.Tensor) -> tf.Tensor:
        """The residual nearer to 0 of the two with slope alpha."""
        root = tf.sqrt(tf.maximum(tf.square(df + 1.0) - 4.0 * df * tf.square(alpha * scale()), 0.0))
        return y + 2.0 * alpha * df * tf.square(scale()) / (df + 1.0 + root)

    return QuadratureLoss(
        likelihood,
        y,
        lambda: -steepest(),
        steepest,
        lambda: (df + 1.0) / (8.0 * df * tf.square(scale())),  # (V20)
        slopes=slopes,
        start=start,
        width=lambda: scale() * tf.sqrt(df),
        centre=y,
    )


def student_t_site(y_0: tf.Tensor, s: tf.Tensor, nu: tf.Tensor, transform: bool = False) -> Site:
    """Student-t log density of y about y_0 [N], scale s [N], nu [N] degrees of freedom.

    :param transform: use the frequency sum, only for means of y near y_0: nodes resolve 3 s
        sqrt(nu).
    """

    def smooth(y: tf.Tensor, y_0: tf.Tensor, s: tf.Tensor, nu: tf.Tensor) -> tf.Tensor:
        return tfp.distributions.StudentT(nu, y_0, s).log_prob(y)

    def gauss(
        m: tf.Tensor, variance: tf.Tensor, y_0: tf.Tensor, s: tf.Tensor, nu: tf.Tensor
    ) -> tf.Tensor:
        spread = tf.sqrt(tf.maximum(variance, 1e-30))
        z, w = peaked_rule(m, spread, y_0, s * tf.sqrt(nu))
        return tf.reduce_sum(w * smooth(m + spread * z, y_0, s, nu), axis=0)

    def kernel(omega: tf.Tensor, y_0: tf.Tensor, s: tf.Tensor, nu: tf.Tensor) -> tf.Tensor:
        return -(nu + 1.0) * math.pi * omega * tf.exp(-s * tf.sqrt(nu) * omega)

    return Site(
        smooth=smooth,
        parameters=(y_0, s, nu),
        kernel=kernel if transform else None,
        gauss=gauss,
        centre=lambda y_0, s, nu: y_0,
        cutoff=lambda spread, y_0, s, nu: tf.minimum(35.0 / (s * tf.sqrt(nu)), 60.0 / spread),
    )


def _student_t_site_density(likelihood: gl.StudentT, Y: tf.Tensor) -> Site:
    return student_t_site(
        Y,
        parameter_per_site(likelihood.scale, "The noise scale", Y),
        Y * 0.0 + float(likelihood.df),
    )


STUDENT_T = SiteDescription(_student_t_loss, _student_t_site_density)


# ---


_GRID = np.linspace(-9.0, 9.0, 1801)
"""Latents on which the extremes of the slopes are sought; beyond, they vanish with the density of
the normal distribution.
"""
_MARGIN = 1e-3
"""Share added to the extremes of the grid, which miss the true ones by less than 2e-4."""


def _beta_loss(likelihood: gl.Beta, Y: TensorType) -> QuadratureLoss:
    """Loss of Beta(scale m, scale (1 - m)) with m = Phi(f) but for GPflow's jitter; not
    log-concave.
    """
    y = site_labels(Y)
    constant_parameter(likelihood.scale, "The scale of the Beta likelihood", positive=True)
    logit = tf.math.log(y) - tf.math.log1p(-y)
    grid = tf.constant(_GRID, y.dtype)[:, None, None] + tf.zeros_like(y)

    def slopes(eta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        scale, mean = tf.convert_to_tensor(likelihood.scale), inv_probit(eta)
        density = tf.exp(-0.5 * tf.square(eta)) / np.sqrt(2.0 * np.pi)
        rise = scale * (1.0 - 2.0 * JITTER) * density  # d (scale m) / d eta
        a, b = scale * mean, scale * (1.0 - mean)
        first = rise * (tf.math.digamma(a) - tf.math.digamma(b) - logit)
        one = tf.ones_like(a)
        bend = tf.math.polygamma(one, a) + tf.math.polygamma(one, b)
        return first, tf.square(rise) * bend - eta * first

    def extremes() -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        first, second = slopes(grid)
        margin = _MARGIN * tf.reduce_max(tf.abs(first), axis=0)
        more = _MARGIN * tf.reduce_max(tf.abs(second), axis=0)
        return (
            tf.reduce_min(first, axis=0) - margin,
            tf.reduce_max(first, axis=0) + margin,
            tf.maximum(-tf.reduce_min(second, axis=0), 0.0) + more,
        )

    return QuadratureLoss(
        likelihood,
        y,
        lower=lambda: extremes()[0],
        upper=lambda: extremes()[1],
        curvature=lambda: extremes()[2],
        slopes=slopes,
    )


def beta_sites(likelihood: gl.Beta) -> SiteDescription:
    """The sites of a likelihood, with losses for the default inverse link alone."""
    loss = _beta_loss if likelihood.invlink is inv_probit else None
    return SiteDescription(loss=loss, support=UNIT_INTERVAL)
