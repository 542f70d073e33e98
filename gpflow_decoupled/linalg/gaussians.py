"""Gaussians by their factors: Kullback-Leibler divergences and changes of parametrisation.

| parametrisation | arrays |
|---|---|
| mean and root | m [M, L], lower root [L, M, M] with S = root root^T |
| natural | theta [M, L] = S^-1 m, precision [L, M, M] = S^-1 |

No jitter is added here: it would make a natural-gradient step of size one inexact. Cost M^3 per latent.
"""

from __future__ import annotations

__all__ = [
    "apply_per_latent", "kl_from_whitened", "precision_factor", "precision_from_root", "root_from_factor",
    "root_from_precision",
]  # fmt: skip

import tensorflow as tf

from .cholesky import Factor, cholesky
from .triangular import inverse, lower_root_gram


def apply_per_latent(matrix: tf.Tensor, vectors: tf.Tensor, adjoint: bool = False) -> tf.Tensor:
    """A matrix a latent times a column a latent: [L, M, K] (or [1, M, K] for all) and [K, L] -> [M, L]; M K L."""
    if matrix.shape[0] == 1:
        return tf.matmul(tf.squeeze(matrix, 0), vectors, transpose_a=adjoint)
    columns = tf.linalg.matvec(matrix, tf.transpose(vectors), transpose_a=adjoint)
    return tf.transpose(columns)


def kl_from_whitened(mean: tf.Tensor, root: tf.Tensor) -> tf.Tensor:
    """KL[N(m, S) || N(0, I)] in nats, summed over latents: the second form of (D2) and (D4); L M^2."""
    log_diagonal = tf.math.log(tf.abs(tf.linalg.diag_part(root)))
    size = tf.cast(tf.size(log_diagonal), root.dtype)
    trace = tf.reduce_sum(tf.square(root))
    return 0.5 * (tf.reduce_sum(tf.square(mean)) + trace - size) - tf.reduce_sum(log_diagonal)  # (D2)


def precision_from_root(root: tf.Tensor) -> tf.Tensor:
    """S^-1 [L, M, M] from the lower root of S."""
    return lower_root_gram(inverse(root))


def precision_factor(precision: tf.Tensor) -> Factor:
    """The lower L [L, M, M] with J P J = L L^T, J the reversal of the coordinates: what roots come from; M^3 / 3."""
    return cholesky(tf.reverse(precision, axis=[-2, -1]))


def root_from_factor(factor: tf.Tensor) -> tf.Tensor:
    """The lower root [L, M, M] of S from `precision_factor` of S^-1; its diagonal is positive.

    P = U U^T for U = J L J, upper triangular, so that U^-T = J L^-T J is lower triangular and a root of S (section 9).
    """
    return tf.reverse(tf.linalg.matrix_transpose(inverse(factor)), axis=[-2, -1])


def root_from_precision(precision: tf.Tensor) -> Factor:
    """The lower root [L, M, M] of S from P = S^-1, with one factorisation; its diagonal is positive."""
    factor, ok = precision_factor(precision)
    return Factor(root_from_factor(factor), ok)
