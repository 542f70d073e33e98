"""Affine-independent inference by brute force: densities of w on grids, bounds by sampling or by
two-dimensional sums.

Challis & Barber 2012. Nothing here uses a Fourier transform, and nothing is shared with the
package."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy import integrate, optimize, stats
from scipy.special import gamma, log_expit

from .grams import Array

__all__ = [
    "LogDensity",
    "gaussian_bound",
    "jaakkola_jordan",
    "jaakkola_jordan_bound",
    "laplace",
    "log_evidence",
    "log_q",
    "logistic",
    "monte_carlo_bound",
    "standardised_log_pdf",
    "toy_problems",
]

LogDensity = Callable[[Array], Array]
"""Of w [S, D]: log of prior times likelihood, [S]."""


def logistic(X: Array, labels: Array, slope: float = 1.0) -> LogDensity:
    """Labels of 0 or 1."""
    signs = 2.0 * labels - 1.0
    return lambda w: np.sum(log_expit(slope * signs * (w @ X.T)), axis=1)


def laplace(X: Array, y: Array, scale: float) -> LogDensity:
    return lambda w: np.sum(-np.abs(w @ X.T - y) / scale - np.log(2.0 * scale), axis=1)


def _normal_prior(variance: float) -> LogDensity:
    return lambda w: np.sum(stats.norm.logpdf(w, scale=np.sqrt(variance)), axis=1)


def toy_problems() -> dict[str, tuple[LogDensity, dict]]:
    """Two weights each, after Figures 1 to 3: log p(w, y), and the arrays to build a model from."""
    problems: dict[str, tuple[LogDensity, dict]] = {}
    for name, x, y in (("sparse far", (0.1, 1.0), 1.0), ("sparse near", (0.8, 0.5), 0.5)):
        X, Y = np.array([x]), np.array([y])
        noise = lambda w, X=X, Y=Y: np.sum(  # noqa: E731
            stats.norm.logpdf(w @ X.T - Y, scale=np.sqrt(0.05)), axis=1
        )  # noqa: E731
        prior = laplace(np.eye(2), np.zeros(2), 0.16)
        problems[name] = (_sum(noise, prior), {"X": X, "Y": Y})
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((4, 2))
        w = np.sqrt(10.0) * rng.standard_normal(2)
        labels = np.where(rng.uniform(size=4) < 1.0 / (1.0 + np.exp(-5.0 * X @ w)), 1.0, 0.0)
        problems[f"logistic {seed}"] = (
            _sum(logistic(X, labels, 5.0), _normal_prior(10.0)),
            {"X": X, "Y": labels},
        )
    X, Y = np.array([[1.0, 0.3], [-0.4, 1.0]]), np.array([1.2, -1.6])
    problems["robust"] = (_sum(laplace(X, Y, 0.1581), _normal_prior(1.0)), {"X": X, "Y": Y})
    return problems


def _sum(*parts: LogDensity) -> LogDensity:
    return lambda w: sum(part(w) for part in parts)


def log_evidence(log_p: LogDensity, reach: float = 16.0, panels: int = 96) -> float:
    """log of the integral of exp(log_p) over the plane, by Gauss-Legendre panels around the
    mode.
    """
    mode = optimize.minimize(
        lambda w: -log_p(w[None])[0], np.zeros(2) + 0.01, method="Nelder-Mead"
    ).x
    nodes, weights = np.polynomial.legendre.leggauss(12)

    def rule(centre: float) -> tuple[Array, Array]:
        edges = np.sort(
            np.concatenate([[0.0], centre + reach * np.linspace(-1.0, 1.0, panels + 1) ** 3])
        )
        half, middle = 0.5 * np.diff(edges), 0.5 * (edges[1:] + edges[:-1])
        return (middle[:, None] + half[:, None] * nodes).ravel(), (half[:, None] * weights).ravel()

    (x, a), (y, b) = rule(mode[0]), rule(mode[1])
    total = 0.0
    peak = log_p(mode[None])[0]
    for value, weight in zip(x, a):
        w = np.stack([np.full_like(y, value), y], axis=1)
        total += weight * np.sum(b * np.exp(log_p(w) - peak))
    return float(np.log(total) + peak)


def standardised_log_pdf(base: str, theta: Array) -> Callable[[Array], Array]:
    """The log density of one base variable of mean 0 and variance 1."""
    if base == "skew_normal":
        delta = theta[0] / np.sqrt(1.0 + theta[0] ** 2)
        mean = delta * np.sqrt(2.0 / np.pi)
        sd = np.sqrt(1.0 - mean**2)
        return lambda v: stats.skewnorm.logpdf(mean + sd * v, theta[0]) + np.log(sd)
    if base == "generalized_normal":
        sd = np.sqrt(gamma(3.0 / theta[0]) / gamma(1.0 / theta[0]))
        return lambda v: stats.gennorm.logpdf(sd * v, theta[0]) + np.log(sd)
    if base == "laplace":
        return lambda v: stats.laplace.logpdf(v, scale=np.sqrt(0.5))
    return lambda v: stats.norm.logpdf(v)


def log_q(w: Array, A: Array, b: Array, base: str | Sequence[str], theta: Array) -> Array:
    """The log density [S] of w [S, D] under w = A v + b, with one base for all v or a base for
    each: (A1).
    """
    v = np.linalg.solve(A, (w - b).T)
    bases = [base] * len(v) if isinstance(base, str) else base
    each = [standardised_log_pdf(name, shape)(part) for name, shape, part in zip(bases, theta, v)]
    return np.sum(each, axis=0) - np.linalg.slogdet(A)[1]


def monte_carlo_bound(
    log_p: LogDensity, w: Array, A: Array, b: Array, base: str | Sequence[str], theta: Array
) -> tuple[float, float]:
    """The bound E_q log p - log q from draws w [S, D] of q, and its standard error."""
    terms = log_p(w) - log_q(w, A, b, base, theta)
    return float(np.mean(terms)), float(np.std(terms) / np.sqrt(len(terms)))


def gaussian_bound(features: Array, g: Callable[[float, int], float], b: Array, L: Array) -> float:
    """The bound at N(b, L L^T) under the prior N(0, I): sites g(y, n) by adaptive quadrature."""
    D = len(b)
    value = np.linalg.slogdet(L)[1] + 0.5 * D - 0.5 * (b @ b + np.sum(L**2))
    for n, row in enumerate(features):
        m, s = row @ b, np.linalg.norm(row @ L)
        f = lambda z, n=n, m=m, s=s: stats.norm.pdf(z) * g(m + s * z, n)  # noqa: E731
        value += integrate.quad(f, -12.0, 12.0, limit=400, epsabs=1e-12)[0]
    return float(value)


def jaakkola_jordan_bound(K: Array, prior_mean: Array, labels: Array, xi: Array) -> float:
    """(C39) at any xi [N]: the log of the integral of N(f; prior_mean, K) times the local bounds,
    term by term.
    """
    curvature = np.tanh(0.5 * xi) / (4.0 * xi)
    nu, W = labels - 0.5, np.diag(2.0 * curvature)
    P = np.linalg.inv(K)
    first = P @ prior_mean + nu
    log_partition = 0.5 * (
        np.linalg.slogdet(P)[1]
        - np.linalg.slogdet(P + W)[1]
        + first @ np.linalg.solve(P + W, first)
        - prior_mean @ P @ prior_mean
    )
    return float(log_partition + np.sum(log_expit(xi) - 0.5 * xi + curvature * xi**2))


def jaakkola_jordan(K: Array, prior_mean: Array, labels: Array) -> tuple[float, Array]:
    """(C39) at its best xi, by a general optimiser in log xi: bound and xi [N]."""
    value = lambda log_xi: -jaakkola_jordan_bound(K, prior_mean, labels, np.exp(log_xi))  # noqa: E731
    options = {"gtol": 1e-10}
    found = min(
        (
            optimize.minimize(value, np.full(len(K), start), method="BFGS", options=options)
            for start in (-1.0, 0.0, 1.0)
        ),
        key=lambda result: result.fun,
    )
    return -float(found.fun), np.exp(found.x)
