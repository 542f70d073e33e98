"""E log-sum-exp under a Gaussian, bounded from above."""

# For any a, by Jensen's inequality (Knowles & Minka, NIPS 2011)
#
#   E lse <= log sum_k exp(t_k) + 1/2 a^T V a,   t = m + 1/2 diag V - V a
#
# The best a solves a = softmax(t); the curvature in m is (T6) with a for softmax(eta).

from __future__ import annotations

__all__ = ["best_tilt", "normal_points", "tilted_bound"]

import numpy as np

from ..dirichlet_functions import scaled_exp

_TILT_STEPS = 4  # any tilt gives a bound, so few suffice


def tilted_bound(
    mean: np.ndarray, covariance: np.ndarray, tilt: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The bound on E log sum_k exp eta_k [b], and its slope in m, softmax(t) [b, K].

    m and the tilt a, whose rows sum to 1, are [b, K]; V [b, K, K], or its diagonal [b, K].
    """
    if covariance.ndim == 2:
        variance, product = covariance, covariance * tilt
    else:
        variance, product = (
            np.diagonal(covariance, axis1=1, axis2=2),
            (covariance @ tilt[..., None])[..., 0],
        )
    s, top = scaled_exp(mean + 0.5 * variance - product)
    total = s.sum(1)
    return top + np.log(total) + 0.5 * (tilt * product).sum(1), s / total[:, None]


def best_tilt(mean: np.ndarray, covariance: np.ndarray, tilt: np.ndarray) -> np.ndarray:
    """The a [b, K] after four scaled fixed-point steps from `tilt`; any a gives a bound."""
    variance = covariance if covariance.ndim == 2 else np.diagonal(covariance, axis1=1, axis2=2)
    for _ in range(_TILT_STEPS):
        _, s = tilted_bound(mean, covariance, tilt)
        # the Newton step of each component alone
        tilt = tilt + (s - tilt) / (1.0 + s * (1.0 - s) * variance)
        tilt = tilt / tilt.sum(1, keepdims=True)
    return tilt


def normal_points(num: int, size: int, seed: int = 0) -> np.ndarray:
    """Points [num, size] with mean 0, covariance I, third moments 0: normal draws and negatives."""
    half = np.random.default_rng(seed).standard_normal((num // 2, size))
    root = np.linalg.cholesky(half.T @ half / len(half))
    half = np.linalg.solve(root, half.T).T
    return np.concatenate([half, -half])
