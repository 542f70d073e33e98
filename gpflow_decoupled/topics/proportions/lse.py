"""The expectation of log-sum-exp under a Gaussian: an upper bound in closed form, and points for
expectations without one.

For any a, E log sum_k exp(eta_k) = a^T m + E log sum_k exp(eta_k - a^T eta), and Jensen's
inequality gives

    E lse <= log sum_k exp(t_k) + 1/2 a^T V a,   t = m + 1/2 diag V - V a        (Knowles & Minka,
    NIPS 2011)

The best a solves a = softmax(t). The bound does not change if a constant is added to all eta_k, and
its curvature in m has the form of (T6) with a in the place of softmax(eta).
"""

from __future__ import annotations

__all__ = ["best_tilt", "normal_points", "tilted_bound"]

import numpy as np

from ..dirichlet import scaled_exp

_TILT_STEPS = 4


def tilted_bound(
    mean: np.ndarray, covariance: np.ndarray, tilt: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The bound on E log sum_k exp eta_k [b], and its derivative in m, softmax(t) [b, K].

    :param mean: m [b, K].
    :param covariance: V [b, K, K], or its diagonal [b, K].
    :param tilt: a [b, K], whose rows sum to 1.
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
    """The a [b, K] after four scaled fixed-point steps from `tilt`; every a gives a bound, so that
    it need not be exact.
    """
    variance = covariance if covariance.ndim == 2 else np.diagonal(covariance, axis1=1, axis2=2)
    for _ in range(_TILT_STEPS):
        _, s = tilted_bound(mean, covariance, tilt)
        tilt = tilt + (s - tilt) / (
            1.0 + s * (1.0 - s) * variance
        )  # the Newton step of each component alone
        tilt = tilt / tilt.sum(1, keepdims=True)
    return tilt


def normal_points(num: int, size: int, seed: int = 0) -> np.ndarray:
    """Points [num, size] whose mean is 0, covariance I and third moments 0, from num / 2 normal
    draws and their negatives.

    num / 2 must be at least `size`.
    """
    half = np.random.default_rng(seed).standard_normal((num // 2, size))
    root = np.linalg.cholesky(half.T @ half / len(half))
    half = np.linalg.solve(root, half.T).T
    return np.concatenate([half, -half])
