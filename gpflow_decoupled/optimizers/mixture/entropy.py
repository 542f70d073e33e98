"""The entropy of a mixture of Gaussians."""

# For q(w) = sum_j pi_j N(w | m_j, S_j), with S = (S_j + S_l) / 2 for a pair of components,
#
#   H[q] >= sum_j pi_j H_j - sum_j pi_j log sum_l pi_l C_jl,                          (A30)
#   C_jl = int N_j^(1/2) N_l^(1/2) dw,
#   log C_jl = -1/8 (m_j - m_l)^T S^-1 (m_j - m_l) - 1/2 log|S| + 1/4 log|S_j| + 1/4 log|S_l|
#   H[q] >= -sum_j pi_j log sum_l pi_l N(m_j | m_l, S_j + S_l)                        (A31)
#   H[q] = sum_j pi_j (H_j - log pi_j) + sum_j pi_j E_j log r_j(w),  r_j = pi_j N_j / q  (A32)
#
# (A30), Kolchinsky & Tracey 2017 with alpha = 1/2, is exact for one component, equal components,
# and components that do not overlap. (A31) is Jensen's inequality (Gershman, Hoffman & Blei 2012),
# D/2 (1
# - log 2) too low for one component. Only (A32) needs draws.

from __future__ import annotations

__all__ = ["ENTROPIES", "bhattacharyya_entropy", "jensen_entropy", "sampled_entropy"]

import math
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from scipy.special import log_softmax

from ...linalg.cholesky import cholesky

_LOG_TWO_PI = math.log(2.0 * math.pi)


def _pairs(means: tf.Tensor, roots: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    covariances = tf.matmul(roots, roots, transpose_b=True)
    chol = cholesky(0.5 * (covariances[:, None] + covariances[None])).chol
    apart = means[:, None] - means[None]
    scaled = tf.linalg.triangular_solve(chol, apart[..., None])[..., 0]
    return tf.reduce_sum(tf.square(scaled), axis=-1), _log_det(chol)


def _log_det(roots: tf.Tensor) -> tf.Tensor:
    return 2.0 * tf.reduce_sum(tf.math.log(tf.abs(tf.linalg.diag_part(roots))), axis=-1)


def bhattacharyya_entropy(log_weights: tf.Tensor, means: tf.Tensor, roots: tf.Tensor) -> tf.Tensor:
    """Lower bound (A30) in nats, for log weights [J], means [J, D], roots [J, D, D]; J^2 D^3."""
    distance, log_det = _pairs(means, roots)
    own = _log_det(roots)
    overlap = -0.125 * distance - 0.5 * log_det + 0.25 * (own[:, None] + own[None])
    within = 0.5 * (own + means.shape[1] * (1.0 + _LOG_TWO_PI))
    return tf.reduce_sum(
        tf.exp(log_weights) * (within - tf.reduce_logsumexp(log_weights[None] + overlap, axis=1))
    )  # (A30)


def jensen_entropy(log_weights: tf.Tensor, means: tf.Tensor, roots: tf.Tensor) -> tf.Tensor:
    """Lower bound (A31) in nats, for log weights [J], means [J, D], roots [J, D, D]; J^2 D^3."""
    distance, log_det = _pairs(means, roots)
    log_density = -0.25 * distance - 0.5 * (
        log_det + means.shape[1] * (math.log(2.0) + _LOG_TWO_PI)
    )
    return -tf.reduce_sum(
        tf.exp(log_weights) * tf.reduce_logsumexp(log_weights[None] + log_density, axis=1)
    )  # (A31)


ENTROPIES: dict[str, Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]] = {
    "bhattacharyya": bhattacharyya_entropy,
    "jensen": jensen_entropy,
}
"""The lower bounds by their names in `MixtureAscent`."""


def sampled_entropy(
    log_weights: np.ndarray,
    means: np.ndarray,
    roots: np.ndarray,
    draws: int,
    rng: np.random.Generator,
) -> tuple[float, float]:
    """Unbiased estimate of the entropy by (A32), and its standard error, in nats.

    Log weights are [J], means [J, D], roots [J, D, D]; `draws` are per component.
    """
    D = means.shape[1]
    log_dets = np.linalg.slogdet(roots)[1]
    known = np.exp(log_weights) @ (log_dets + 0.5 * D * (1.0 + _LOG_TWO_PI) - log_weights)
    shares, variances = np.zeros(len(means)), np.zeros(len(means))
    for j in range(len(means)):
        w = means[j] + rng.standard_normal((draws, D)) @ roots[j].T
        z = np.linalg.solve(roots, np.swapaxes(w[None] - means[:, None], 1, 2))  # [J, D, draws]
        log_r = log_softmax(log_weights - log_dets - 0.5 * np.sum(z**2, axis=1).T, axis=1)[:, j]
        shares[j], variances[j] = np.mean(log_r), np.var(log_r) / draws
    weights = np.exp(log_weights)
    return float(known + weights @ shares), float(np.sqrt(weights**2 @ variances))  # (A32)
