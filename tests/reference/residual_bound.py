"""The bound (N6a): q(f | u) with smaller variances than the prior's, for one latent function.

u has M whitened values, f = A^T u + e with e of covariance R = K - A^T A, variances d = diag R. The
bound of q(u) = N(m, S) with variances v d of e is a sum over rows and one divergence. By quadrature
on a grid, the evidence of a few rows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize_scalar

from .neighbours import Array

__all__ = ["best_shares", "bound", "evidence"]

LogDensity = Callable[[Array], Array]
"""log p(y | f) [N, S] of f [N, S], labels included."""
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(60)
_WEIGHTS = _WEIGHTS / np.sum(_WEIGHTS)


def _expected(log_density: LogDensity, mean: Array, variance: Array) -> Array:
    return log_density(mean[:, None] + np.sqrt(variance)[:, None] * _NODES) @ _WEIGHTS


def _price(v: Array) -> Array:
    return 0.5 * (v - 1.0 - np.log(v))


def bound(log_density: LogDensity, A: Array, d: Array, m: Array, S: Array, v: Array) -> float:
    """The bound at shares v [N] of the variances."""
    mean, variance = A.T @ m, np.sum(A * (S @ A), axis=0)
    rows = _expected(log_density, mean, variance + v * d) - _price(v)
    kl = 0.5 * (np.trace(S) + m @ m - len(m) - np.linalg.slogdet(S)[1])
    return float(np.sum(rows) - kl)


def best_shares(log_density: LogDensity, A: Array, d: Array, m: Array, S: Array) -> Array:
    """The best v in (0, 1] of each row, by a search; rows do not know of each other."""
    mean, variance = A.T @ m, np.sum(A * (S @ A), axis=0)

    def loss(log_v: float, row: int) -> float:
        v = np.full(len(d), np.exp(log_v))
        return -float((_expected(log_density, mean, variance + v * d) - _price(v))[row])

    ends = {"bounds": (-15.0, 0.0), "method": "bounded", "options": {"xatol": 1e-9}}
    return np.exp([minimize_scalar(loss, args=(row,), **ends).x for row in range(len(d))])


def evidence(log_density: LogDensity, K: Array, size: int = 40) -> float:
    """log of the integral of N(f | 0, K) prod_n p(y_n | f_n), by size^N nodes."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(size)
    grid = np.stack(np.meshgrid(*[nodes] * len(K), indexing="ij")).reshape(len(K), -1)
    mass = np.stack(np.meshgrid(*[np.log(weights / np.sum(weights))] * len(K), indexing="ij"))
    logs = np.sum(log_density(np.linalg.cholesky(K) @ grid), axis=0)
    logs += np.sum(mass.reshape(len(K), -1), axis=0)
    return float(np.logaddexp.reduce(logs))
