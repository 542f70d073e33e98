"""Divergences and parametrisations of Gaussians."""

# For N(m, S) per latent function, with L latents of M variables:
#
# | parametrisation | arrays |
# |---|---|
# | mean and root | m [M, L], lower triangular root [L, M, M] with S = root root^T |
# | natural | theta [M, L] = S^-1 m, precision [L, M, M] = S^-1 |
#
# No jitter is added: a natural-gradient step of size one stays exact. Costs are M^3 per latent.

from __future__ import annotations

__all__ = [
    "apply_per_latent", "kl_from_whitened", "precision_factor", "precision_from_root",
    "root_from_factor", "root_from_precision",
]  # fmt: skip

import tensorflow as tf

from .cholesky import CholeskyFactor, cholesky
from .triangular import inverse, lower_root_gram


def apply_per_latent(matrix: tf.Tensor, vectors: tf.Tensor, adjoint: bool = False) -> tf.Tensor:
    """Multiply one matrix and one column per latent; cost M K L.

    Matrices are [L, M, K], or [1, M, K] if shared, `vectors` [K, L], and the result [M, L]; if
    `adjoint`, which transposes the matrices, [M, L] and [K, L].
    """
    if matrix.shape[0] == 1:
        return tf.matmul(tf.squeeze(matrix, 0), vectors, transpose_a=adjoint)
    columns = tf.linalg.matvec(matrix, tf.transpose(vectors), transpose_a=adjoint)
    return tf.transpose(columns)


def kl_from_whitened(mean: tf.Tensor, root: tf.Tensor) -> tf.Tensor:
    """Return KL[N(m, S) || N(0, I)] in nats, summed over the latents, as in (D2), (D4); L M^2.

    m is [M, L], the lower triangular root of S [L, M, M].
    """
    # log det S = 2 sum log |root_ii|; the sign of a column of the root is free
    log_diagonal = tf.math.log(tf.abs(tf.linalg.diag_part(root)))
    size = tf.cast(tf.size(log_diagonal), root.dtype)
    trace = tf.reduce_sum(tf.square(root))
    # (D2)
    return 0.5 * (tf.reduce_sum(tf.square(mean)) + trace - size) - tf.reduce_sum(log_diagonal)


def precision_from_root(root: tf.Tensor) -> tf.Tensor:
    """Return the precision S^-1 [L, M, M] from the lower root [L, M, M] of S."""
    return lower_root_gram(inverse(root))


def precision_factor(precision: tf.Tensor) -> CholeskyFactor:
    """Factorise J P J = F F^T for a precision P [L, M, M], with J the reversal of the variables;
    M^3 / 3.
    """
    # `root_from_factor` turns F [L, M, M] into a lower root of P^-1.
    return cholesky(tf.reverse(precision, axis=[-2, -1]))


def root_from_factor(factor: tf.Tensor) -> tf.Tensor:
    """Return the lower root [L, M, M] of S, with positive diagonal, from `precision_factor`."""
    return tf.reverse(tf.linalg.matrix_transpose(inverse(factor)), axis=[-2, -1])


def root_from_precision(precision: tf.Tensor) -> CholeskyFactor:
    """Return the lower root [L, M, M] of S, with positive diagonal, from S^-1 [L, M, M]; M^3."""
    factor, ok = precision_factor(precision)
    return CholeskyFactor(root_from_factor(factor), ok)
