"""The log evidence, which no bound may exceed: exact for Gaussian noise, by quadrature for one to
three observations.

Gram matrices come from the kernel; everything else is NumPy in extended precision, and shares no
code with the package."""

from __future__ import annotations

__all__ = ["gaussian_evidence", "quadrature_evidence"]

import math
from collections.abc import Callable

import numpy as np
from scipy.special import logsumexp


def gaussian_evidence(
    K: np.ndarray, residual: np.ndarray, noise: float, digits: float
) -> tuple[float, float]:
    """log N(residual; 0, K + noise I) in nats, and how much of it the round-off of K decides.

    :param K: prior covariance [N, N].
    :param residual: observations less their prior mean [N].
    :param noise: its variance.
    :param digits: round-off of an entry of K, relative to the largest.
    """
    spread = digits * len(K) * float(np.max(np.abs(np.diagonal(K))))
    values = [_log_density(K, residual, noise + extra) for extra in (0.0, spread)]
    return values[0], abs(values[0] - values[1]) if np.all(np.isfinite(values)) else math.inf


def _log_density(K: np.ndarray, residual: np.ndarray, noise: float) -> float:
    """log N(residual; 0, K + noise I) by a Cholesky factorisation in extended precision; NaN if
    there is none.
    """
    A = np.asarray(K, np.longdouble) + np.longdouble(noise) * np.eye(len(K), dtype=np.longdouble)
    rest, total = np.asarray(residual, np.longdouble).copy(), np.longdouble(0.0)
    for column in range(len(A)):  # one elimination for factor, solve and determinant
        pivot = A[column, column]
        if not pivot > 0:
            return math.nan
        total += rest[column] ** 2 / pivot + np.log(2.0 * np.longdouble(np.pi) * pivot)
        share = A[column + 1 :, column] / pivot
        rest[column + 1 :] -= share * rest[column]
        A[column + 1 :, column + 1 :] -= share[:, None] * A[column, column + 1 :]
    return float(-0.5 * total)


def quadrature_evidence(
    K: np.ndarray, mean: np.ndarray, log_density: Callable[[np.ndarray], np.ndarray]
) -> tuple[float, float]:
    """log integral of N(f; mean, K) prod_n p(y_n | f_n) in nats, for N of 1 to 3, and an estimate
    of its error.

    A trapezoidal rule over eight standard deviations of the whitened f. The error is what half of
    the nodes change, and infinite where the integrand has not died out at the ends of the grid.

    :param K: prior covariance [N, N].
    :param mean: prior mean [N].
    :param log_density: of f [Q, N], log p(y_n | f_n) summed over n, [Q] in nats.
    """
    size = len(K)
    values, vectors = np.linalg.eigh(K)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    count = {1: 20_001, 2: 601, 3: 105}[size]
    line = np.linspace(-8.0, 8.0, count)
    whitened = np.stack(np.meshgrid(*[line] * size, indexing="ij"), axis=-1)
    weight = -0.5 * np.sum(whitened**2, axis=-1) + size * (
        math.log(line[1] - line[0]) - 0.5 * math.log(2.0 * math.pi)
    )
    joint = weight + log_density(mean + whitened.reshape(-1, size) @ root.T).reshape(weight.shape)
    half = joint[(slice(None, None, 2),) * size] + size * math.log(2.0)
    full, coarse, inner = (logsumexp(part) for part in (joint, half, joint[(slice(5, -5),) * size]))
    died_out = np.isfinite(full) and full - inner < 1e-6
    return float(full), abs(float(full - coarse)) if died_out else math.inf
