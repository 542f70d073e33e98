"""Mixtures of Gaussians in the plane by brute force: entropies, overlaps and bounds as sums over a
grid.

Gershman, Hoffman & Blei 2012; Kolchinsky & Tracey 2017. Nothing here is shared with the package.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import stats
from scipy.special import logsumexp

from .grams import Array

__all__ = ["bhattacharyya_bound", "bound", "entropy", "grid", "jensen_bound", "log_density"]


def grid(means: Array, covariances: Array, points: int = 701) -> tuple[Array, float]:
    """Cells [S, 2] that reach nine deviations beyond each mean [J, 2], and the area of one."""
    deviations = np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))
    low, high = np.min(means - 9.0 * deviations, axis=0), np.max(means + 9.0 * deviations, axis=0)
    lines = [np.linspace(low[d], high[d], points) for d in range(2)]
    return np.stack(np.meshgrid(*lines), -1).reshape(-1, 2), np.prod(
        [line[1] - line[0] for line in lines]
    )


def log_density(w: Array, weights: Array, means: Array, covariances: Array) -> Array:
    """log q [S] at w [S, 2]."""
    parts = [
        np.log(p) + stats.multivariate_normal(m, S).logpdf(w)
        for p, m, S in zip(weights, means, covariances)
    ]
    return logsumexp(parts, axis=0)


def entropy(weights: Array, means: Array, covariances: Array) -> float:
    w, area = grid(means, covariances)
    log_q = log_density(w, weights, means, covariances)
    return float(-area * np.sum(np.exp(log_q) * log_q))


def bound(
    log_p: Callable[[Array], Array], weights: Array, means: Array, covariances: Array
) -> float:
    """E_q [log p(y, w) - log q(w)] for the log joint density of w [S, 2]."""
    w, area = grid(means, covariances)
    log_q = log_density(w, weights, means, covariances)
    return float(area * np.sum(np.exp(log_q) * (log_p(w) - log_q)))


def bhattacharyya_bound(weights: Array, means: Array, covariances: Array) -> float:
    """Pair by pair, with the overlaps int N_j^(1/2) N_l^(1/2) as sums over the grid."""
    w, area = grid(means, covariances)
    normals = [stats.multivariate_normal(m, S) for m, S in zip(means, covariances)]
    value = 0.0
    for p, one in zip(weights, normals):
        overlaps = [
            area * np.sum(np.exp(0.5 * (one.logpdf(w) + other.logpdf(w)))) for other in normals
        ]
        value += p * (one.entropy() - np.log(weights @ overlaps))
    return float(value)


def jensen_bound(weights: Array, means: Array, covariances: Array) -> float:
    """Pair by pair, with the overlaps int N_j N_l as sums over the grid."""
    w, area = grid(means, covariances)
    densities = [stats.multivariate_normal(m, S).pdf(w) for m, S in zip(means, covariances)]
    value = 0.0
    for p, one in zip(weights, densities):
        value -= p * np.log(weights @ [area * np.sum(one * other) for other in densities])
    return float(value)
