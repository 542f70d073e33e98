"""Sites of negative binomial counts, and of counts whose zeros have a law of their own."""

from __future__ import annotations

__all__ = [
    "BETA_BINOMIAL", "BINOMIAL", "BinomialLoss", "HURDLE", "LogLinearLoss", "NEGATIVE_BINOMIAL",
    "TWEEDIE", "ZERO_INFLATED", "exponential_sites", "gamma_sites", "poisson_sites",
]  # fmt: skip

from collections.abc import Callable
from functools import partial

import numpy as np
import tensorflow as tf
from gpflow import likelihoods as gl
from gpflow.base import TensorType

from ..errors import DataError
from ..expectations.logit_integrals import softplus_mean, softplus_moments
from .bernoulli import inner_log_odds
from .counts import (
    BetaBinomial,
    Binomial,
    HurdlePoisson,
    NegativeBinomial,
    ZeroInflatedPoisson,
    log_choices,
)
from .parameters import COUNTS, NOT_NEGATIVE, POSITIVE, Support, constant_parameter
from .site_loss import (
    Expansion,
    ExpectedLoss,
    Maximiser,
    QuadratureLoss,
    SiteDescription,
    SiteLoss,
    SiteLossBuilder,
    dual_objective,
    site_labels,
)
from .tweedie import Tweedie

# ---
# Sites of successes in trials.


_GRID = np.linspace(-1.0, 1.0, 321)
"""Log odds on which the extremes of slopes are sought, in units of the farthest bend and more."""
_BEYOND = 8.0
_MARGIN = 1e-3
"""Share added to the extremes of the grid."""


class BinomialLoss(SiteLoss):
    """Of y [N, L] successes in t trials, f = t E log(1 + e^eta) - y h - log(t over y), to 1e-12."""

    def __init__(self, likelihood: Binomial, Y: TensorType) -> None:
        y, trials = likelihood.split(site_labels(Y))
        super().__init__(y)
        self._trials = trials + tf.zeros_like(y)
        self._constant_part = log_choices(self._trials, y)

    @property
    def lower(self) -> tf.Tensor:
        return -self.Y

    @property
    def upper(self) -> tf.Tensor:
        return self._trials - self.Y

    def value(self, h: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
        mean = softplus_mean(h + tf.zeros_like(sigma), sigma + tf.zeros_like(h))
        return self._trials * mean - self.Y * h - self._constant_part

    def expand(self, h: tf.Tensor, sigma: tf.Tensor) -> Expansion:
        parts = softplus_moments(h, sigma)
        _, d_h, *others = (self._trials * part for part in parts)
        return Expansion(self.value(h, sigma), d_h - self.Y, *others)

    def start(self, alpha: tf.Tensor) -> tf.Tensor:
        return inner_log_odds((self.Y + alpha) / self._trials)


def _beta_binomial_loss(likelihood: BetaBinomial, Y: TensorType) -> ExpectedLoss:
    """Loss of overdispersed successes; not log-concave, but with one trial."""
    Y = site_labels(Y)
    y, trials = likelihood.split(Y)
    failures = trials - y
    constant_parameter(likelihood.concentration, "The concentration", positive=True)

    def rising(f: tf.Tensor, n: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Derivatives of log a (a + 1) ... (a + n - 1), a = c / (1 + e^-f)."""
        p, q = tf.sigmoid(f), tf.sigmoid(-f)
        a, some = likelihood.concentration * p, tf.maximum(n, 1.0)
        one = tf.ones_like(a + some)
        D = tf.math.digamma(a + some) - tf.math.digamma(a + 1.0)
        bend = tf.math.polygamma(one, a + some) - tf.math.polygamma(one, (a + 1.0) * one)
        first, second = q + a * q * D, a * q * (q - p) * D + tf.square(a * q) * bend - p * q
        return tf.where(n > 0.0, first, 0.0), tf.where(n > 0.0, second, 0.0)

    def extremes() -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        # the farthest bends are at log(1 + c), on both sides; beyond, slopes are -1, 0 or 1
        far = _BEYOND + tf.math.log1p(likelihood.concentration)
        f = far * tf.constant(_GRID, y.dtype)[:, None, None]
        (up, up_bend), (down, down_bend) = rising(f, y), rising(-f, failures)
        bend = tf.minimum(tf.reduce_min(-up_bend - down_bend, axis=0), 0.0)
        share = tf.where(bend < 0.0, 1.0 + _MARGIN, tf.ones_like(bend))
        return (
            share * tf.minimum(tf.reduce_min(down - up, axis=0), -tf.sign(y)),
            share * tf.maximum(tf.reduce_max(down - up, axis=0), tf.sign(failures)),
            -share * bend,
        )

    def start(alpha: tf.Tensor) -> tf.Tensor:
        c = likelihood.concentration
        return inner_log_odds((y + alpha * (c + trials) / (c + 1.0)) / trials)

    return ExpectedLoss(likelihood, Y, lambda: extremes()[:2], start, lambda: extremes()[2])


def _in_trials(Y: np.ndarray) -> np.ndarray:
    whole = Y == np.round(Y)
    trials = Y[:, -1:]
    inside = np.where(trials >= 1.0, (Y >= 0.0) & (Y <= trials), True)  # the trials are named first
    inside[:, -1:] = trials >= 1.0
    return whole & inside


_TRIALS = Support(
    "whole numbers from 0 to the trials of the row, at least 1, which are the last column of Y",
    _in_trials,
    "pass the trials: build(..., trials=t), or Y = np.hstack([successes, trials])",
)
BINOMIAL = SiteDescription(loss=BinomialLoss, support=_TRIALS)
BETA_BINOMIAL = SiteDescription(loss=_beta_binomial_loss, support=_TRIALS)


# ---
# Sites with rate or scale e^f: Poisson, exponential, gamma, Tweedie.


_TINY = 1e-30
"""Least E in h, so that it stays finite for an alpha at the end of S."""


class LogLinearLoss(SiteLoss):
    """The site loss f = E - a s h + b, E = exp(s h + sigma^2 / 2 + log c), s = 1 or -1.

    Poisson: s = 1, a = y, c the size of a bin. Gamma of shape k: s = -1, a = k, c = y.

    :param sign: s; `log_scale` is log c, [] or [N, L].
    :param weight: returns a, and `constant` b, [] or [N, L], so that gradients reach Parameters.
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


# ---


_LOG_ODDS = np.linspace(-40.0, 40.0, 1601)
"""Log odds on which the extremes of slopes are sought; beyond, these are constant. The grid misses
the true ones by less than 4e-4 of them."""
_LEAST_RATE = 1e-12


def _negative_binomial_loss(likelihood: NegativeBinomial, Y: TensorType) -> QuadratureLoss:
    """Log-concave loss of counts with mean exp(eta) and variance mean + mean^2 / size."""
    y = site_labels(Y)
    constant_parameter(likelihood.size, "The size of the negative binomial", positive=True)

    def size() -> tf.Tensor:
        return tf.convert_to_tensor(likelihood.size)

    def slopes(eta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        x = eta - tf.math.log(size())
        p = tf.sigmoid(x)
        return (y + size()) * p - y, (y + size()) * p * tf.sigmoid(-x)

    def start(alpha: tf.Tensor) -> tf.Tensor:
        return _log_odds(tf.maximum(y + alpha, _LEAST_RATE), alpha, size)

    def centre() -> tf.Tensor:
        return tf.math.log(size())  # with pi i it is where 1 + exp(eta) / size is zero

    return QuadratureLoss(
        likelihood, y, -y, size, slopes=slopes, start=start, width=np.pi, centre=centre
    )


def _zero_inflated_loss(likelihood: ZeroInflatedPoisson, Y: TensorType) -> SiteLoss:
    """Loss of counts with slope m - y (1 - s) above 0, with m = size s, s = e^eta / (size + e^eta),
    or m = e^eta, s = 0. Zeros are not log-concave.
    """
    y, size = site_labels(Y), _size(likelihood)

    def odds() -> tf.Tensor:
        log_share, log_rest = likelihood._logs()
        return log_rest - log_share

    def of_zero(L: tf.Tensor, s: tf.Tensor, m: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # r is the probability that a zero is one of the counts
        r = tf.sigmoid(odds() - L)
        return r * m, r * m * (1.0 - s - tf.sigmoid(L - odds()) * m)

    def extremes() -> tuple[tf.Tensor, tf.Tensor]:
        L = tf.nn.softplus(odds() + tf.constant(_LOG_ODDS, y.dtype))
        s = tf.zeros_like(L) if size is None else -tf.math.expm1(-L / size())
        first, second = of_zero(L, s, L if size is None else size() * s)
        bend = tf.minimum(tf.reduce_min(second), 0.0)
        return (1.0 + _MARGIN) * tf.reduce_max(first), -(1.0 + _MARGIN) * bend

    def slopes(eta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        k = tf.convert_to_tensor(likelihood.size)
        s = tf.sigmoid(eta - tf.math.log(k))
        m = k * s
        zero = of_zero(likelihood._family().surprise(eta), s, m)
        some = m - y * (1.0 - s), (1.0 - s) * (m + y * s)
        return tuple(tf.where(y > 0.0, *pair) for pair in zip(some, zero))

    def ends() -> tuple[tf.Tensor, tf.Tensor]:
        return -y, tf.where(y > 0.0, _largest(y, size), extremes()[0])

    def curvature() -> tf.Tensor:
        return tf.where(y > 0.0, tf.zeros_like(y), extremes()[1])

    def start(alpha: tf.Tensor) -> tf.Tensor:
        return _log_odds(tf.maximum(y + alpha, _LEAST_RATE), alpha, size)

    if size is None:
        return ExpectedLoss(likelihood, y, ends, start, curvature)

    def bend(part: int, of_some: tf.Tensor) -> tf.Tensor:
        return tf.where(y > 0.0, of_some, likelihood._family().zero_bend(odds())[part])

    return QuadratureLoss(
        likelihood,
        y,
        lambda: ends()[0],
        lambda: ends()[1],
        curvature,
        slopes=slopes,
        start=start,
        width=lambda: bend(1, tf.constant(np.pi, y.dtype)),
        centre=lambda: bend(0, tf.math.log(size())),
    )


def _hurdle_loss(likelihood: HurdlePoisson, Y: TensorType) -> SiteLoss:
    """Loss of counts above 0 with slope q - y (1 - s), q = m / p(y > 0), log-concave unless the
    size is below 1; zeros say nothing of eta.
    """
    y, size = site_labels(Y), _size(likelihood)
    zero = tf.zeros_like(y)

    def slopes(eta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        family, log_size = likelihood._family(), tf.math.log(likelihood.size)
        x = eta - log_size
        s, L = tf.sigmoid(x), family.surprise(eta)
        q = tf.exp(log_size + tf.math.log_sigmoid(x) - family.log_some(eta))
        first, second = q - y * (1.0 - s), q * (1.0 - s - q * tf.exp(-L)) + y * s * (1.0 - s)
        return tuple(tf.where(y > 0.0, part, tf.zeros_like(part)) for part in (first, second))

    def extremes() -> tuple[tf.Tensor, tf.Tensor]:
        if size is None:
            return _largest(y, size), zero
        first, second = slopes(tf.math.log(size()) + tf.constant(_LOG_ODDS, y.dtype)[:, None, None])
        concave, limit = size() >= 1.0, _largest(y, size)
        steepest = (1.0 + _MARGIN) * tf.reduce_max(first, axis=0)
        bend = -(1.0 + _MARGIN) * tf.minimum(tf.reduce_min(second, axis=0), 0.0)
        return (
            tf.where(concave, limit, tf.maximum(limit, steepest)),
            tf.where(concave, zero, bend),
        )

    def ends() -> tuple[tf.Tensor, tf.Tensor]:
        return tf.where(y > 0.0, 1.0 - y, zero), tf.where(y > 0.0, extremes()[0], zero)

    def curvature() -> tf.Tensor:
        return tf.where(y > 0.0, extremes()[1], zero)

    def start(alpha: tf.Tensor) -> tf.Tensor:
        # the mean of Poisson counts above 0 is about e^eta + 1 / (1 + e^eta)
        mean = tf.maximum(y + alpha, 1.0 + _LEAST_RATE)
        return tf.where(y > 0.0, _log_odds(mean - 1.0 / mean, alpha, size), zero)

    if size is None:
        return ExpectedLoss(likelihood, y, ends, start)
    return QuadratureLoss(
        likelihood,
        y,
        lambda: ends()[0],
        lambda: ends()[1],
        curvature,
        slopes=slopes,
        start=start,
        width=0.5 * np.pi,
        centre=lambda: likelihood._family().some_bend()[0],
    )


def _size(likelihood: ZeroInflatedPoisson) -> Callable[[], tf.Tensor] | None:
    if likelihood._family().size is None:
        return None
    constant_parameter(likelihood.size, "The size of the negative binomial", positive=True)
    return lambda: tf.convert_to_tensor(likelihood.size)


def _largest(y: tf.Tensor, size: Callable[[], tf.Tensor] | None) -> tf.Tensor:
    """The slope for a large eta."""
    return tf.zeros_like(y) + (tf.constant(np.inf, y.dtype) if size is None else size())


def _log_odds(rate: tf.Tensor, alpha: tf.Tensor, size: Callable[[], tf.Tensor] | None) -> tf.Tensor:
    if size is None:
        return tf.math.log(rate)
    return tf.math.log(size() * rate / tf.maximum(size() - alpha, _LEAST_RATE))


NEGATIVE_BINOMIAL = SiteDescription(loss=_negative_binomial_loss, support=COUNTS)
ZERO_INFLATED = SiteDescription(loss=_zero_inflated_loss, support=COUNTS)
HURDLE = SiteDescription(loss=_hurdle_loss, support=COUNTS)
