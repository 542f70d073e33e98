"""Densities of the likelihoods with numbers beside observations, zeros and censoring, and integrals
over a Gaussian latent: NumPy and SciPy, no code shared with the package."""

from __future__ import annotations

__all__ = ["DENSITIES", "expected_log_density", "log_expected_density"]

from collections.abc import Callable

import numpy as np
from scipy import stats
from scipy.special import expit, logsumexp

Density = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""log p(y | f) in nats [Q] of f [Q] and one row of Y."""


def _poisson(f: np.ndarray, y: float) -> np.ndarray:
    return stats.poisson.logpmf(y, np.exp(f))


def _negative_binomial(f: np.ndarray, y: float, size: float = 2.0) -> np.ndarray:
    return stats.nbinom.logpmf(y, size, size / (size + np.exp(f)))


def _inflated(log_density: Callable[..., np.ndarray], share: float = 0.3) -> Density:
    def of(f: np.ndarray, row: np.ndarray) -> np.ndarray:
        usual = np.log1p(-share) + log_density(f, row[0])
        return np.logaddexp(np.log(share), usual) if row[0] == 0.0 else usual

    return of


def _hurdle(log_density: Callable[..., np.ndarray], share: float = 0.3) -> Density:
    def of(f: np.ndarray, row: np.ndarray) -> np.ndarray:
        if row[0] == 0.0:
            return np.full_like(f, np.log(share))
        some = np.log(-np.expm1(log_density(f, 0.0)))
        return np.log1p(-share) + log_density(f, row[0]) - some

    return of


def _censored(law: Callable[[np.ndarray], stats.rv_continuous]) -> Density:
    def of(f: np.ndarray, row: np.ndarray) -> np.ndarray:
        y, code = row
        at = law(f)
        return (at.logpdf if code == 0.0 else at.logsf if code > 0.0 else at.logcdf)(y)

    return of


def _asymmetric(f: np.ndarray, row: np.ndarray, q: float = 0.8, scale: float = 0.3) -> np.ndarray:
    u = row[0] - f
    return np.log(q * (1.0 - q) / scale) - u * (q - (u < 0.0)) / scale


def _tweedie(f: np.ndarray, row: np.ndarray, phi: float = 0.8, p: float = 1.4) -> np.ndarray:
    """A Poisson number of gamma amounts, summed over the number."""
    mean, y = np.exp(f), row[0]
    rate = mean ** (2.0 - p) / (phi * (2.0 - p))
    if y == 0.0:
        return -rate
    # the numbers that matter for y do not depend on the mean
    likely = y ** (2.0 - p) / (phi * (2.0 - p))
    number = np.arange(1.0, likely + 20.0 * np.sqrt(likely) + 60.0)
    shape, scale = (2.0 - p) / (p - 1.0), phi * (p - 1.0) * mean ** (p - 1.0)
    each = stats.poisson.logpmf(number, rate[:, None])
    return logsumexp(each + stats.gamma.logpdf(y, number * shape, scale=scale[:, None]), axis=1)


def _successes(f: np.ndarray, row: np.ndarray) -> np.ndarray:
    # the smaller of both chances has all digits
    y, trials = row
    return stats.binom.logpmf(y, trials, expit(f))


def _overdispersed(f: np.ndarray, row: np.ndarray, c: float = 5.0) -> np.ndarray:
    return stats.betabinom.logpmf(row[0], int(row[1]), c * expit(f), c * expit(-f))


DENSITIES: dict[str, Density] = {
    "Binomial": _successes,
    "BetaBinomial": _overdispersed,
    "ZeroInflatedPoisson": _inflated(_poisson),
    "ZeroInflatedNegativeBinomial": _inflated(_negative_binomial),
    "HurdlePoisson": _hurdle(_poisson),
    "HurdleNegativeBinomial": _hurdle(_negative_binomial),
    "CensoredNormal": _censored(lambda f: stats.norm(f, 0.3)),
    "LogNormal": _censored(lambda f: stats.lognorm(0.7, scale=np.exp(f))),
    "Weibull": _censored(lambda f: stats.weibull_min(1.5, scale=np.exp(f))),
    "AsymmetricLaplace": _asymmetric,
    "Tweedie": _tweedie,
}
"""With the Parameters that `problems.likelihoods` gives them at a scale of 0.3."""

_NODES = np.linspace(-12.0, 12.0, 6001)
_LOG_WEIGHTS = stats.norm.logpdf(_NODES) + np.log(_NODES[1] - _NODES[0])


def expected_log_density(density: Density, mean: float, variance: float, row: np.ndarray) -> float:
    """E log p(y | f) in nats, f ~ N(mean, variance), by the trapezoidal rule."""
    values = density(mean + np.sqrt(variance) * _NODES, row)
    weights = np.exp(_LOG_WEIGHTS)
    # a weight of 1e-31 and less does not matter, however small the density is there
    return float(np.sum(np.where(weights > 1e-31, weights * values, 0.0)))


def log_expected_density(density: Density, mean: float, variance: float, row: np.ndarray) -> float:
    """log E p(y | f) in nats, f ~ N(mean, variance), by the trapezoidal rule."""
    return float(logsumexp(_LOG_WEIGHTS + density(mean + np.sqrt(variance) * _NODES, row)))
