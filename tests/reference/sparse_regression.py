"""Sparse regression by dense matrices: the objectives and predictions of VFE, DTC and FITC, and the
exact GP.
"""

from __future__ import annotations

import numpy as np

from .collapsed import log_normal
from .grams import Array


def noise_of(kind: str, K: Array, Q: Array, noise: Array) -> Array:
    """Lambda [N, N] of (C40), for noise variances [N]."""
    return np.diag(noise + (np.diag(K - Q) if kind == "fitc" else 0.0))


def objective(kind: str, K: Array, K_u: Array, K_uf: Array, y: Array, noise: Array) -> float:
    """What "vfe", "dtc" or "fitc" maximise, for y [N], K [N, N], K_u [M, M], K_uf [M, N]."""
    Q = K_uf.T @ np.linalg.solve(K_u, K_uf)
    value = log_normal(y, Q + noise_of(kind, K, Q, noise))  # (C40)
    return value - 0.5 * float(np.sum(np.diag(K - Q) / noise)) if kind == "vfe" else value  # (C40)


def prediction(
    kind: str, K: Array, K_u: Array, K_uf: Array, y: Array, noise: Array, K_us: Array, K_s: Array
) -> tuple[Array, Array]:
    """Mean [T] and covariance [T, T] at test inputs, from K_us [M, T] and K_s [T, T]."""
    Q = K_uf.T @ np.linalg.solve(K_u, K_uf)
    inverse = np.linalg.inv(noise_of(kind, K, Q, noise))
    Sigma = np.linalg.inv(K_u + K_uf @ inverse @ K_uf.T)
    mean = K_us.T @ Sigma @ K_uf @ inverse @ y  # (C41)
    return mean, K_s - K_us.T @ np.linalg.solve(K_u, K_us) + K_us.T @ Sigma @ K_us  # (C41)
