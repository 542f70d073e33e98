"""Kernels on a line in closed form, and a textbook Kalman filter with its Rauch-Tung-Striebel
smoother, row by row.

Sums over kernels are not needed: add the covariances."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import expm, solve_continuous_lyapunov

from .grams import Array

__all__ = ["Filtered", "kalman", "matern", "matern_model", "periodic"]


def matern(p: int, t: Array, s: Array, variance: float, lengthscale: float) -> Array:
    """The Matern covariance of order p + 1/2 [N, M], p = 0, 1 or 2."""
    r = np.sqrt(2 * p + 1) * np.abs(t[:, None] - s) / lengthscale
    polynomial = (1.0, 1.0 + r, 1.0 + r + r**2 / 3.0)[p]
    return variance * polynomial * np.exp(-r)


def periodic(t: Array, s: Array, variance: float, lengthscale: float, period: float) -> Array:
    """GPflow's periodic covariance [N, M], of a squared exponential."""
    wave = np.sin(np.pi * (t[:, None] - s) / period)
    return variance * np.exp(-0.5 * (wave / lengthscale) ** 2)


def matern_model(p: int, variance: float, lengthscale: float) -> tuple[Array, Array]:
    """F [d, d] and the stationary covariance [d, d] of f, f', ..., by SciPy's Lyapunov solver."""
    rate = np.sqrt(2 * p + 1) / lengthscale
    roots = np.poly(np.full(p + 1, -rate))
    F = np.eye(p + 1, k=1)
    F[-1] = -roots[:0:-1]
    noise = np.zeros_like(F)
    noise[-1, -1] = 1.0
    P = solve_continuous_lyapunov(F, -noise)
    return F, variance * P / P[0, 0]


class Filtered(NamedTuple):
    """f at each row given all rows, and the log evidence of the observations."""

    mean: Array  # [N]
    variance: Array  # [N]
    log_evidence: float


def kalman(F: Array, P: Array, t: Array, y: Array, noise: Array) -> Filtered:
    """Filter and smooth observations y [N] of f, with noise variances [N], at sorted inputs t."""
    h, total = np.eye(len(F))[0], 0.0
    means, covs, steps = [], [], []
    m, V = np.zeros(len(F)), P
    for n, (value, variance) in enumerate(zip(y, noise)):
        A = expm(F * (t[n] - t[n - 1])) if n else np.eye(len(F))
        m, V = A @ m, A @ V @ A.T + P - A @ P @ A.T
        s = h @ V @ h + variance
        total -= 0.5 * (np.log(2.0 * np.pi * s) + (value - h @ m) ** 2 / s)
        gain = V @ h / s
        m, V = m + gain * (value - h @ m), V - np.outer(gain, gain) * s
        means.append(m), covs.append(V), steps.append(A)
    for n in range(len(y) - 2, -1, -1):
        A = steps[n + 1]
        predicted = A @ covs[n] @ A.T + P - A @ P @ A.T
        G = np.linalg.solve(predicted, A @ covs[n]).T
        means[n] = means[n] + G @ (means[n + 1] - A @ means[n])
        covs[n] = covs[n] + G @ (covs[n + 1] - predicted) @ G.T
    return Filtered(
        np.array([h @ m for m in means]), np.array([h @ V @ h for V in covs]), float(total)
    )
