"""Observations given earlier neighbours, for one latent function."""

# Conditioning on fewer observations cannot lower a variance, so for every ordering and choice of
# earlier neighbours, (N3),
#
#   log|K + D| <= sum_i log tau_i,      tau_i = Var(y_i | its neighbours).

from __future__ import annotations

__all__ = [
    "Conditioning", "conditional_variances", "neighbourhood_covariances", "ordered_neighbours",
]  # fmt: skip

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel

from ...linalg.neighbours import conditional, vacuous_noise
from .distances import NOBODY
from .earlier import earlier_neighbours
from .grams import neighbourhood_grams

_FLOOR = {tf.float64: 1e-10, tf.float32: 1e-4}
"""Least noise in units of the prior variance: below it the covariance of neighbours is singular to
round-off. More noise raises log|K + D|, so that its bound remains one."""
_ENTRIES = 8_000_000
"""Most entries of the covariance matrices of a block of rows, 64 MB in double precision."""


class Conditioning(NamedTuple):
    """Rows of the data, and the earlier neighbours that each is conditioned on."""

    rows: tf.Tensor
    """Row numbers [B]: all, or a random sample, whose sums are then enlarged by N / B."""
    neighbours: tf.Tensor
    """Row numbers [G, B, m], -1 for none; G = 1 if the latents share them, else one each."""


def ordered_neighbours(
    kernel: Kernel, X: tf.Tensor, order: np.ndarray, count: int, rows: np.ndarray | None = None
) -> np.ndarray:
    """The nearest earlier rows of each row, or of some.

    :param kernel: of one latent function.
    :param X: inputs [N, D].
    :param order: all row numbers [N].
    :param count: m.
    :param rows: row numbers [B]; all N if not given.
    :return: row numbers [B, m], int32, -1 for none; not differentiable. Cost: B N D, or B m log N
        and N log N by trees in up to eight columns.
    """
    order = np.asarray(order)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    rows = np.arange(len(order)) if rows is None else rows
    count = min(count, max(1, len(order) - 1))
    found = earlier_neighbours(kernel, tf.gather(X, order), tf.gather(X, rows), rank[rows], count)
    return np.where(found < 0, NOBODY, order[np.maximum(found, 0)]).astype(np.int32)


def neighbourhood_covariances(
    kernel: Kernel, X: tf.Tensor, noise: tf.Tensor, rows: tf.Tensor, neighbours: tf.Tensor
) -> tf.Tensor:
    """Covariances [B, m + 1, m + 1] of observations: a row's neighbours, and the row last.

    Parameters as in `conditional_variances`. Absent neighbours carry no information.
    """
    joint = tf.concat([neighbours, rows[:, None]], axis=1)
    there, joint = joint >= 0, tf.maximum(joint, 0)
    K = neighbourhood_grams(kernel, tf.gather(X, joint))
    prior = tf.linalg.diag_part(K)
    nothing = vacuous_noise(K.dtype) * tf.reduce_max(prior, axis=1, keepdims=True)
    noise = tf.maximum(tf.gather(noise, joint), _FLOOR[K.dtype] * prior)
    return tf.linalg.set_diag(K, prior + tf.where(there, noise, nothing))


def conditional_variances(
    kernel: Kernel, X: tf.Tensor, noise: tf.Tensor, rows: tf.Tensor, neighbours: tf.Tensor
) -> tf.Tensor:
    """tau_i, the variances of observations given their neighbours, (N1); noise included.

    :param kernel: of one latent function.
    :param X: inputs [N, D].
    :param noise: the noise variances [N], above zero.
    :param rows: row numbers [B].
    :param neighbours: row numbers [B, m], -1 for none.
    :return: [B], at least the noise; differentiable once, in the kernel's parameters, X and noise.
        Cost: B (m^3 / 3 + m^2 D), memory a block of rows.
    """
    size = max(1, _ENTRIES // (int(neighbours.shape[1]) + 1) ** 2)

    @tf.recompute_grad
    def of_block(X: tf.Tensor, noise: tf.Tensor, start: int) -> tf.Tensor:
        these, near = rows[start : start + size], neighbours[start : start + size]
        joint = neighbourhood_covariances(kernel, X, noise, these, near)
        variance = conditional(joint, tf.zeros_like(joint[:, 1:, :1])).variance
        # round-off in large neighbourhoods must not take a variance below its noise
        return tf.maximum(variance, tf.gather(noise, these))

    starts = range(0, int(rows.shape[0]), size)
    return tf.concat([of_block(X, noise, start) for start in starts], axis=0)
