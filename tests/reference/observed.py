"""Log densities of observations given f, slowly: distributions of SciPy, one observation at a time.

Each function takes y, and what else is known of it, and returns f -> log p(y | f) in nats.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import stats
from scipy.integrate import quad
from scipy.special import expit, gammaln, log_expit, log_ndtr, logsumexp

from .grams import Array

__all__ = [
    "LogDensity",
    "asymmetric_laplace",
    "beta_binomial",
    "binomial",
    "censored_normal",
    "counts",
    "expectation",
    "hurdle",
    "log_normal",
    "log_predictive",
    "tweedie",
    "weibull",
    "zero_inflated",
]

LogDensity = Callable[[Array], Array]


def binomial(y: float, trials: float) -> LogDensity:
    """Successes in trials with log odds f."""
    # SciPy's logpmf is -inf where the probability rounds to one
    choices = gammaln(trials + 1) - gammaln(y + 1) - gammaln(trials - y + 1)
    return lambda f: choices + y * log_expit(f) + (trials - y) * log_expit(-np.asarray(f))


def beta_binomial(y: float, trials: float, concentration: float) -> LogDensity:
    """Trials whose probability is Beta(c p, c (1 - p)): a product of their odds, one by one."""

    def log_density(f: Array) -> Array:
        a, b = concentration * expit(f), concentration * expit(-np.asarray(f))
        choices = gammaln(trials + 1) - gammaln(y + 1) - gammaln(trials - y + 1)
        up = sum(np.log(a + i) for i in range(int(y)))
        down = sum(np.log(b + i) for i in range(int(trials - y)))
        return choices + up + down - sum(np.log(concentration + i) for i in range(int(trials)))

    return log_density


def counts(y: float, size: float | None) -> LogDensity:
    """Poisson counts of mean e^f; with a size negative binomial ones of variance m + m^2 / size."""
    if size is None:
        return lambda f: stats.poisson.logpmf(y, np.exp(f))
    constant = gammaln(y + size) - gammaln(size) - gammaln(y + 1.0)

    def log_density(f: Array) -> Array:
        total = np.logaddexp(np.log(size), f)
        return constant + size * (np.log(size) - total) + y * (f - total)

    return log_density


def zero_inflated(y: float, share: float, size: float | None) -> LogDensity:
    """Zero with probability `share`, else a count."""
    law = counts(y, size)
    if y > 0:
        return lambda f: np.log1p(-share) + law(f)
    return lambda f: np.logaddexp(np.log(share), np.log1p(-share) + law(f))


def hurdle(y: float, share: float, size: float | None) -> LogDensity:
    """Zero with probability `share`, else a count given that it is above zero."""
    if y == 0:
        return lambda f: np.log(share) + 0.0 * np.asarray(f)

    def log_density(f: Array) -> Array:
        surprise = np.exp(f) if size is None else size * np.log1p(np.exp(f) / size)
        return np.log1p(-share) + counts(y, size)(f) - np.log(-np.expm1(-surprise))

    return log_density


def censored_normal(y: float, code: float, scale: float) -> LogDensity:
    """Normal noise: its density at y, or its mass above y (code 1) or below it (code -1)."""

    def log_density(f: Array) -> Array:
        z = (y - np.asarray(f)) / scale
        if code == 0:
            return -0.5 * z**2 - np.log(scale * np.sqrt(2.0 * np.pi))
        return log_ndtr(-code * z)

    return log_density


def log_normal(y: float, code: float, scale: float) -> LogDensity:
    """The same of log y, with the density of y."""
    law = censored_normal(np.log(y), code, scale)
    return lambda f: law(f) - (np.log(y) if code == 0 else 0.0)


def weibull(y: float, code: float, shape: float) -> LogDensity:
    """Hazard k (y / e^f)^k / y, and its integral (y / e^f)^k."""

    def log_density(f: Array) -> Array:
        cumulated = np.exp(shape * (np.log(y) - np.asarray(f)))
        if code == 0:
            return np.log(shape * cumulated / y) - cumulated
        return -cumulated if code > 0 else np.log(-np.expm1(-cumulated))

    return log_density


def asymmetric_laplace(y: float, quantile: float, scale: float) -> LogDensity:
    """Minus the loss of a quantile, normalised: two exponential sides."""

    def log_density(f: Array) -> Array:
        u = (y - np.asarray(f)) / scale
        loss = np.where(u > 0.0, quantile * u, (quantile - 1.0) * u)
        return np.log(quantile * (1.0 - quantile) / scale) - loss

    return log_density


def tweedie(y: float, dispersion: float, power: float) -> LogDensity:
    """A Poisson number of gamma amounts, summed over the numbers that have any mass."""

    def log_density(f: Array) -> Array:
        mean = np.exp(np.asarray(f, float))[..., None]
        rate = mean ** (2.0 - power) / (dispersion * (2.0 - power))
        if y == 0:
            return -rate[..., 0]
        scale = dispersion * (power - 1.0) * mean ** (power - 1.0)
        shape = (2.0 - power) / (power - 1.0)
        top = y ** (2.0 - power) / (dispersion * (2.0 - power))
        far = 12.0 * np.sqrt(top) + 60.0
        j = np.arange(max(1, int(top - far)), int(top + far))
        numbers = j * np.log(rate) - rate - gammaln(j + 1.0)
        amounts = (j * shape - 1.0) * np.log(y) - y / scale - j * shape * np.log(scale)
        return logsumexp(numbers + amounts - gammaln(j * shape), axis=-1)

    return log_density


def expectation(function: LogDensity, mean: float, deviation: float) -> float:
    """E g(f), f ~ N(mean, deviation^2), by adaptive quadrature between cuts at -6, -2, ..., 6."""

    def integrand(z: float) -> float:
        return float(function(mean + deviation * z)) * stats.norm.pdf(z)

    return _by_parts(integrand, mean, deviation)


def log_predictive(log_density: LogDensity, mean: float, deviation: float) -> float:
    """log E exp(log_density(f)), scaled by its greatest value on a grid."""
    grid = mean + deviation * np.linspace(-40.0, 40.0, 8001)
    values = log_density(grid) - 0.5 * ((grid - mean) / deviation) ** 2
    top, peak = np.max(values), (grid[np.argmax(values)] - mean) / deviation

    def integrand(z: float) -> float:
        value = float(log_density(mean + deviation * z)) - 0.5 * z * z - top
        return np.exp(value) / np.sqrt(2.0 * np.pi)

    return top + np.log(_by_parts(integrand, mean, deviation, peak))


def _by_parts(
    integrand: Callable[[float], float], mean: float, deviation: float, peak: float = 0.0
) -> float:
    low, high = min(-12.0, peak - 12.0), max(12.0, peak + 12.0)
    inner = {(f - mean) / deviation for f in (-6.0, -2.0, 0.0, 2.0, 6.0)}
    inner |= {peak + step / deviation for step in (-2.0, -0.5, -0.1, 0.0, 0.1, 0.5, 2.0)}
    edges = [low, *sorted({cut for cut in inner if low < cut < high}), high]
    parts = [
        quad(integrand, *pair, epsabs=1e-14, epsrel=1e-12, limit=200)[0]
        for pair in zip(edges, edges[1:])
    ]
    return float(np.sum(parts))
