"""Mean-field posteriors of small models in closed form, by coordinate ascent, or as functions to be
maximised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.integrate import quad, trapezoid
from scipy.optimize import minimize
from scipy.special import betaln, digamma, gammaln, polygamma
from scipy.stats import multivariate_normal

from .grams import Array

__all__ = [
    "NormalGamma",
    "Regression",
    "best_positive",
    "beta_bound",
    "beta_evidence",
    "gamma_bound",
    "gamma_evidence",
    "gamma_poisson",
    "normal_gamma",
    "normal_gamma_divergence",
    "regression_bound",
    "regression_evidence",
    "regression_sweep",
]


def gamma_poisson(y: Array, a: float, b: float) -> tuple[float, float, float]:
    """Shape, rate and log evidence of counts y [N] with a rate that is Gamma(a, b)."""
    a_N, b_N = a + np.sum(y), b + len(y)
    evidence = (
        a * np.log(b) - gammaln(a) + gammaln(a_N) - a_N * np.log(b_N) - np.sum(gammaln(y + 1.0))
    )
    return a_N, b_N, float(evidence)


class NormalGamma(NamedTuple):
    """t ~ Gamma(a, b), m | t ~ N(center, 1 / (scale t))."""

    center: float
    scale: float
    a: float
    b: float


def normal_gamma(x: Array, prior: NormalGamma) -> tuple[NormalGamma, float]:
    """The exact posterior of mean and precision of x [N], and its log evidence."""
    n, scale = len(x), prior.scale + len(x)
    center = (prior.scale * prior.center + np.sum(x)) / scale
    spread = np.sum((x - x.mean()) ** 2) + prior.scale * n / scale * (x.mean() - prior.center) ** 2
    exact = NormalGamma(center, scale, prior.a + 0.5 * n, prior.b + 0.5 * spread)
    evidence = (
        gammaln(exact.a) - gammaln(prior.a) + prior.a * np.log(prior.b) - exact.a * np.log(exact.b)
    )
    return exact, float(
        evidence + 0.5 * np.log(prior.scale / scale) - 0.5 * n * np.log(2.0 * np.pi)
    )


def normal_gamma_divergence(
    mean: float, variance: float, a: float, b: float, exact: NormalGamma
) -> float:
    """KL of N(mean, variance) times Gamma(a, b) from a normal-Gamma density, in nats."""
    e_log, e = digamma(a) - np.log(b), a / b
    entropy = (
        0.5 * np.log(2.0 * np.pi * np.e * variance)
        + a
        - np.log(b)
        + gammaln(a)
        + (1.0 - a) * digamma(a)
    )
    square = (mean - exact.center) ** 2 + variance
    normal = 0.5 * (np.log(exact.scale / (2.0 * np.pi)) + e_log - exact.scale * e * square)
    gamma = exact.a * np.log(exact.b) - gammaln(exact.a) + (exact.a - 1.0) * e_log - exact.b * e
    return float(-entropy - normal - gamma)


class Regression(NamedTuple):
    """q of linear regression with unknown noise: w ~ N(mean [p], cov [p, p]), t ~ Gamma(a, b)."""

    mean: Array
    cov: Array
    a: float
    b: float


def regression_sweep(
    X: Array, y: Array, q: Regression, weight_precision: float, a: float, b: float
) -> Regression:
    """One round of variational message passing: w, then t, for w ~ N(0, I / weight_precision) and t
    ~ Gamma(a, b).
    """
    t = q.a / q.b
    cov = np.linalg.inv(weight_precision * np.eye(X.shape[1]) + t * X.T @ X)
    mean = cov @ (t * X.T @ y)
    rest = np.sum((y - X @ mean) ** 2) + np.trace(X @ cov @ X.T)
    return Regression(mean, cov, a + 0.5 * len(y), b + 0.5 * rest)


def regression_bound(
    X: Array, y: Array, q: Regression, weight_precision: float, a: float, b: float
) -> float:
    """The bound of any q, in nats."""
    p, log_t, t = len(q.mean), digamma(q.a) - np.log(q.b), q.a / q.b
    rest = np.sum((y - X @ q.mean) ** 2) + np.trace(X @ q.cov @ X.T)
    data = 0.5 * len(y) * (log_t - np.log(2.0 * np.pi)) - 0.5 * t * rest
    size = weight_precision * (np.trace(q.cov) + q.mean @ q.mean)
    kl_w = 0.5 * (size - p - p * np.log(weight_precision) - np.linalg.slogdet(q.cov)[1])
    kl_t = (
        (q.a - a) * digamma(q.a)
        - gammaln(q.a)
        + gammaln(a)
        + a * np.log(q.b / b)
        + q.a * (b - q.b) / q.b
    )
    return float(data - kl_w - kl_t)


def regression_evidence(X: Array, y: Array, weight_precision: float, a: float, b: float) -> float:
    """log p(y), with the noise precision integrated by quadrature."""
    K, center = X @ X.T / weight_precision, np.log(a / b)

    def log_joint(u: float) -> float:
        likelihood = multivariate_normal(np.zeros(len(y)), K + np.exp(-u) * np.eye(len(y))).logpdf(
            y
        )
        return float(likelihood + a * u - b * np.exp(u) + a * np.log(b) - gammaln(a))

    grid = center + np.linspace(-8.0, 8.0, 200)
    peak = max(log_joint(u) for u in grid)
    top = grid[np.argmax([log_joint(u) for u in grid])]
    return peak + float(
        np.log(quad(lambda u: np.exp(log_joint(u) - peak), top - 6.0, top + 6.0, epsabs=1e-12)[0])
    )


def gamma_bound(y: Array, a: float, b: float, center: float, variance: float) -> float:
    """The bound of q = Gamma(a, b) for counts y [N] whose log rate is N(center, variance) under the
    prior.
    """
    e = digamma(a) - np.log(b)
    data = np.sum(y) * e - len(y) * a / b - np.sum(gammaln(y + 1.0))
    prior = (
        -e
        - ((e - center) ** 2 + polygamma(1, a)) / (2.0 * variance)
        - 0.5 * np.log(2.0 * np.pi * variance)
    )
    return float(data + prior + a - np.log(b) + gammaln(a) + (1.0 - a) * digamma(a))


def gamma_evidence(y: Array, center: float, variance: float) -> float:
    """log p(y) of the same model, by quadrature over the log rate."""
    log_joint = lambda u: (  # noqa: E731
        np.sum(y) * u
        - len(y) * np.exp(u)
        - np.sum(gammaln(y + 1.0))
        - (u - center) ** 2 / (2.0 * variance)
    )
    return _log_integral(log_joint, np.linspace(-6.0, 6.0, 2001)) - 0.5 * np.log(
        2.0 * np.pi * variance
    )


def beta_bound(k: int, n: int, c: Array, center: float, variance: float) -> float:
    """The bound of q = Beta(c) for k successes of n, whose log odds are N(center, variance) under
    the prior.
    """
    e = digamma(c) - digamma(np.sum(c))
    choose = gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0)
    spread = (e[0] - e[1] - center) ** 2 + np.sum(polygamma(1, c))
    prior = -np.sum(e) - spread / (2.0 * variance) - 0.5 * np.log(2.0 * np.pi * variance)
    return float(k * e[0] + (n - k) * e[1] + choose + prior + betaln(*c) - (c - 1.0) @ e)


def beta_evidence(k: int, n: int, center: float, variance: float) -> float:
    """log p(k) of the same model, by quadrature over the log odds."""
    choose = gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0)
    log_joint = lambda u: k * u - n * np.logaddexp(0.0, u) - (u - center) ** 2 / (2.0 * variance)  # noqa: E731
    return (
        _log_integral(log_joint, np.linspace(-12.0, 12.0, 4001))
        + choose
        - 0.5 * np.log(2.0 * np.pi * variance)
    )


def best_positive(value: Callable[[Array], float], size: int) -> tuple[Array, float]:
    """The positive numbers [size] that maximise `value`, and the maximum, by a general optimizer
    from ones.
    """
    options = {"xatol": 1e-11, "fatol": 1e-14, "maxiter": 5000, "maxfev": 5000}
    found = minimize(
        lambda x: -value(np.exp(x)), np.zeros(size), method="Nelder-Mead", options=options
    )
    return np.exp(found.x), -float(found.fun)


def _log_integral(log_density: Callable[[float], float], grid: Array) -> float:
    values = np.array([log_density(u) for u in grid])
    return float(np.max(values) + np.log(trapezoid(np.exp(values - np.max(values)), grid)))
