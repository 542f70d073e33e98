"""Bounds of the log evidence of Gaussian observations: upper bounds of log|K + D|, (N3) and (N5).

`K` [N, N] is the kernel matrix of f, `Q` its Nystrom matrix, `D` [N] the noise variances, `y` [N]
centred observations; `neighbours` lists, for each row, some rows that are earlier in an ordering.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .data_mean import quadratic
from .neighbours import Array, conditional

__all__ = ["evidence", "inverse_factor", "log_determinants", "lower_bounds", "upper_bound"]


def evidence(K: Array, D: Array, y: Array) -> float:
    """log N(y | 0, K + D)."""
    C = K + np.diag(D)
    return -0.5 * float(np.linalg.slogdet(2.0 * np.pi * C)[1] + y @ np.linalg.solve(C, y))


def log_determinants(
    K: Array, Q: Array, D: Array, neighbours: Sequence[Sequence[int]]
) -> dict[str, float]:
    """Upper bounds of log|K + D|, by name; "mean" is the one of Artemev et al. 2021."""
    points = float(np.linalg.slogdet(Q + np.diag(D))[1])
    excess = np.diag(K - Q) / D
    nobody, size = np.zeros(len(D)), len(D)
    tau = [conditional(K + np.diag(D), nobody, i, c)[1] for i, c in enumerate(neighbours)]
    return {
        "elbo": points + float(np.sum(excess)),
        "mean": points + size * float(np.log(1.0 + np.sum(excess) / size)),
        "diagonal": points + float(np.sum(np.log(1.0 + excess))),
        "neighbours": float(np.sum(np.log(tau))),
    }


def lower_bounds(
    K: Array, Q: Array, D: Array, y: Array, a: Array, neighbours: Sequence[Sequence[int]]
) -> dict[str, float]:
    """Lower bounds of the evidence at any coefficients a, (N4), by name."""
    rest = len(y) * float(np.log(2.0 * np.pi)) + quadratic(K, Q, 1.0 / D, y, a)
    dets = log_determinants(K, Q, D, neighbours)
    return {name: -0.5 * (log_det + rest) for name, log_det in dets.items()}


def upper_bound(K: Array, Q: Array, D: Array, y: Array, a: Array) -> float:
    """An upper bound of the evidence at any a: log|K + D| >= log|Q + D|."""
    C = K + np.diag(D)
    log_det = float(np.linalg.slogdet(2.0 * np.pi * (Q + np.diag(D)))[1])
    return -0.5 * (log_det + float(2.0 * a @ y - a @ C @ a))


def inverse_factor(C: Array, neighbours: Sequence[Sequence[int]]) -> Array:
    """U [N, N] of (N8): U^T U is close to C^-1, and the diagonal of U C U^T is one."""
    U = np.zeros_like(C)
    for i, c in enumerate(neighbours):
        _, tau = conditional(C, np.zeros(len(C)), i, c)
        U[i, i] = tau**-0.5
        U[i, list(c)] = -(tau**-0.5) * np.linalg.solve(C[np.ix_(c, c)], C[list(c), i])
    return U
