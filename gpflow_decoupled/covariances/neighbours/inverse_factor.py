"""A sparse factor of the inverse covariance of observations."""

# With weights b_i and variance tau_i of observation i given its neighbours, (N8),
#
#   U_ii = tau_i^-1/2,      U_ic = -tau_i^-1/2 b_i^T
#
# has U^T U close to (K + D)^-1: a preconditioner whose iterations hardly depend on the noise.

from __future__ import annotations

__all__ = ["InverseFactor", "inverse_factor"]

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel
from scipy.sparse import csr_matrix

from ...linalg.neighbours import inverse_factor_rows
from .conditioned import neighbourhood_covariances

_ENTRIES = 8_000_000
"""Most entries of the covariance matrices of a block of rows, 64 MB in double precision."""


class InverseFactor(NamedTuple):
    """U, not inside of a `tf.function`; N m operations a column."""

    matrix: csr_matrix
    """[N, N], with m + 1 entries a row at most."""
    back: csr_matrix
    """Its transpose."""
    log_determinant: float
    """-log|U^T U|, an upper bound of log|K + D|, (N3)."""

    def times(self, columns: tf.Tensor) -> tf.Tensor:
        """U v [N, R] for v [N, R]."""
        return tf.constant(self.matrix @ columns.numpy(), columns.dtype)

    def transposed(self, columns: tf.Tensor) -> tf.Tensor:
        """U^T v [N, R] for v [N, R]."""
        return tf.constant(self.back @ columns.numpy(), columns.dtype)

    def solve(self, columns: tf.Tensor) -> tf.Tensor:
        """U^T U v [N, R] for v [N, R], close to (K + D)^-1 v."""
        return self.transposed(self.times(columns))


def inverse_factor(
    kernel: Kernel,
    X: tf.Tensor,
    noise: tf.Tensor,
    neighbours: np.ndarray,
    explained: tf.Tensor | None = None,
) -> InverseFactor:
    """U of all rows; N (m^3 / 3 + m^2 D) and N m numbers of memory, not differentiable.

    :param kernel: of one latent function.
    :param X: inputs [N, D].
    :param noise: the noise variances [N], above zero.
    :param neighbours: the earlier neighbours of each row [N, m], -1 for none.
    :param explained: A^T [N, R], for U of K - A^T A + D: N m^2 R more.
    """
    N, m = neighbours.shape
    width = m + 1 if explained is None else max(m + 1, int(explained.shape[1]))
    size, values = max(1, _ENTRIES // ((m + 1) * width)), []
    for start in range(0, N, size):
        rows = tf.range(start, min(start + size, N))
        near = tf.constant(neighbours[start : start + size])
        joint = neighbourhood_covariances(kernel, X, noise, rows, near)
        if explained is not None:
            which = tf.maximum(tf.concat([near, rows[:, None]], axis=1), 0)
            features = tf.gather(explained, which)
            joint -= tf.matmul(features, features, transpose_b=True)
        values.append(inverse_factor_rows(joint).numpy())
    entries = np.concatenate(values)
    columns = np.concatenate([neighbours, np.arange(N)[:, None]], axis=1)
    there = columns >= 0
    starts = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
    matrix = csr_matrix((entries[there], columns[there], starts), shape=(N, N))
    log_determinant = -2.0 * float(np.sum(np.log(entries[:, -1].astype(float))))
    return InverseFactor(matrix, matrix.T.tocsr(), log_determinant)
