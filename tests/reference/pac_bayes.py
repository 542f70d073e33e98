"""PAC-Bayes bounds from their definitions: roots by Brent's method, divergences from dense
matrices.
"""

from __future__ import annotations

from math import exp, lgamma, log, sqrt

import numpy as np
from scipy.optimize import brentq, minimize
from scipy.stats import norm

from .grams import Array


def binary_kl(q: float, p: float) -> float:
    """kl(q || p) for q in [0, 1] and p in (0, 1), in nats."""
    first = q * log(q / p) if q > 0.0 else 0.0
    return first + ((1.0 - q) * log((1.0 - q) / (1.0 - p)) if q < 1.0 else 0.0)


def inverse_binary_kl(q: float, c: float) -> float:
    """sup {p >= q: kl(q || p) <= c}."""
    top = 1.0 - 1e-12
    if binary_kl(q, top) <= c:
        return 1.0
    return float(brentq(lambda p: binary_kl(q, p) - c, max(q, 1e-300), top, xtol=1e-15))


def bounds(risk: float, kl: float, n: int, delta: float) -> dict[str, float]:
    """The four bounds of the Gibbs risk, by name."""
    seeger = inverse_binary_kl(risk, (kl + log((n + 1) / delta)) / n)  # (T10)
    c = (kl + log(2.0 * sqrt(n) / delta)) / n
    maurer, pinsker = inverse_binary_kl(risk, c), risk + sqrt(c / 2.0)  # (T11)
    mcallester = risk + sqrt((kl + log(1.0 / delta) + log(n) + 2.0) / (2 * n - 1))  # (T12)
    return {"seeger": seeger, "maurer": maurer, "pinsker": pinsker, "mcallester": mcallester}


def exact_constant(n: int) -> float:
    """sum_k Bin(k; n, k / n), which no sample size lets rise above 2 sqrt(n): what both constants
    of (T10), (T11) bound.
    """
    ks = np.arange(n + 1)
    logs = [lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1) for k in ks]
    terms = [
        (k * log(k / n) if k else 0.0) + ((n - k) * log(1.0 - k / n) if k < n else 0.0) for k in ks
    ]
    return float(sum(exp(a + b) for a, b in zip(logs, terms)))


def gibbs_risk(labels: Array, mean: Array, variance: Array) -> float:
    """The mean probability of a draw of the wrong sign, for labels 0 or 1 [N] and marginals [N]."""
    below = norm.cdf(0.0, loc=mean, scale=np.sqrt(variance))
    return float(np.mean(np.where(labels == 1, below, 1.0 - below)))


def function_kl(K: Array, alpha: Array, cov: Array) -> float:
    """KL[N(K alpha, cov) || N(0, K)], all [N, N] and [N]."""
    ratio = np.linalg.solve(K, cov)
    return 0.5 * float(alpha @ K @ alpha + np.trace(ratio) - len(K) - np.linalg.slogdet(ratio)[1])


def hoeffding(risk: float, members: int, n: int, delta: float) -> float:
    """The bound for one of finitely many classifiers: epsilon with members exp(-2 n epsilon^2) =
    delta, by its root.
    """
    return risk + float(
        brentq(lambda epsilon: members * exp(-2.0 * n * epsilon**2) - delta, 0.0, 1e3)
    )  # (T13)


def gaussian_kl(mean: Array, cov: Array, prior_mean: Array, prior_cov: Array) -> float:
    """KL[N(mean, cov) || N(prior_mean, prior_cov)] from inverses and determinants."""
    inverse, shift = np.linalg.inv(prior_cov), mean - prior_mean
    logs = np.linalg.slogdet(cov)[1] - np.linalg.slogdet(prior_cov)[1]
    return 0.5 * float(
        np.trace(inverse @ cov) + shift @ inverse @ shift - len(mean) - logs
    )  # (T14)


def laplace(X: Array, labels: Array, prior_mean: Array, prior_cov: Array) -> tuple[Array, Array]:
    """Mode of a logistic regression by a general optimiser, and the inverse of minus its Hessian, a
    row at a time.
    """
    inverse = np.linalg.inv(prior_cov)

    def loss(w: Array) -> float:
        below = sum(log(1.0 + exp(-(2.0 * y - 1.0) * float(x @ w))) for x, y in zip(X, labels))
        return below + 0.5 * float((w - prior_mean) @ inverse @ (w - prior_mean))

    mode = minimize(
        loss,
        prior_mean,
        method="Nelder-Mead",
        options={"xatol": 1e-9, "fatol": 1e-14, "maxiter": 20000},
    ).x
    hessian = inverse.copy()
    for x in X:
        s = 1.0 / (1.0 + exp(-float(x @ mode)))
        hessian += s * (1.0 - s) * np.outer(x, x)  # (T15)
    return mode, np.linalg.inv(hessian)
