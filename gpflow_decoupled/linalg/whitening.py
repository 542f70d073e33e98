"""Whitening by a Cholesky factor, with a cheap gradient."""

from __future__ import annotations

__all__ = [
    "Whitener", "apply_per_latent", "kl_from_whitened", "precision_factor",
    "precision_from_root", "root_from_factor", "root_from_precision", "squares_with_slope",
    "whiten", "whitener",
]  # fmt: skip

from typing import NamedTuple

import tensorflow as tf

from .cholesky import CholeskyFactor, cholesky
from .triangular import inverse, lower_outer, lower_root_gram, mirror, solve, solve_frozen, sum_to

# ---
# Divergences and parametrisations of Gaussians.


# For N(m, S) per latent function, with L latents of M variables:
#
# | parametrisation | arrays |
# |---|---|
# | mean and root | m [M, L], lower triangular root [L, M, M] with S = root root^T |
# | natural | theta [M, L] = S^-1 m, precision [L, M, M] = S^-1 |
#
# No jitter is added: a natural-gradient step of size one stays exact. Costs are M^3 per latent.


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


# ---


# A change dK changes the factor by dL = L phi(X), with X = L^-1 dK L^-T and phi(X) its lower
# triangle with half of the diagonal:
#
#   A = L^-1 R:    dA = -phi(X) A + L^-1 dR
#   B = L^-T R:    dB = -L^-T phi(X)^T R + L^-T dR
#
# 1. `whitener` returns the factor and a matrix of zeros in the role of X, the tangent.
# 2. Each `whiten` adds its share to the gradient of the tangent.
# 3. Their sum G gives the gradient of K once: 1/2 L^-T (G, mirrored from its lower triangle) L^-1.
#
# A tangent of lower precision gives L^-1 R rounded once, with gradients in the lower one.


class Whitener(NamedTuple):
    """The factor of a matrix [..., M, M], and the tangent that carries its derivative."""

    chol: tf.Tensor
    """[..., M, M], lower triangular; solve with it by `whiten`."""
    ok: tf.Tensor
    """[], bool: the factorisation succeeded."""
    tangent: tf.Tensor
    """[..., M, M], zeros; see the module."""


def whitener(matrix: tf.Tensor) -> Whitener:
    """Factorise a positive definite matrix [..., M, M]; M^3 / 3, and M^3 for the gradient."""
    # first derivatives use the tangent only, second derivatives also this factor
    chol, ok = cholesky(matrix)

    @tf.custom_gradient
    def tangent_of(matrix: tf.Tensor) -> tuple:
        def grad(upstream: tf.Tensor) -> tf.Tensor:
            half = solve(chol, 0.5 * mirror(upstream), adjoint=True)
            return solve(chol, tf.linalg.matrix_transpose(half), adjoint=True)

        return tf.zeros_like(matrix), grad

    return Whitener(chol, ok, tangent_of(matrix))


def whiten(
    chol: tf.Tensor, tangent: tf.Tensor | None, rhs: tf.Tensor, adjoint: bool = False
) -> tf.Tensor:
    """Return L^-1 R, or L^-T R if `adjoint`; cost M^2 N.

    :param chol: L [..., M, M], from a `Whitener`.
    :param tangent: its tangent [..., M, M], perhaps cast to a lower precision, the dtype of result
        and gradient; None treats the factor as a constant.
    :param rhs: R [..., M, N].
    """
    if tangent is None:
        return solve_frozen(chol, rhs, adjoint)

    @tf.custom_gradient
    def run(tangent: tf.Tensor, rhs: tf.Tensor) -> tuple:
        value = tf.cast(solve(chol, rhs, adjoint), tangent.dtype)

        def grad(upstream: tf.Tensor) -> tuple:
            # the adjoints of dA and dB above; the tangent takes only the lower triangle of its
            # contribution
            back = solve(tf.cast(chol, tangent.dtype), upstream, not adjoint)
            share = (
                lower_outer(tf.cast(rhs, tangent.dtype), back)
                if adjoint
                else lower_outer(upstream, value)
            )
            return sum_to(-share, tangent), tf.cast(sum_to(back, rhs), rhs.dtype)

        return value, grad

    return run(tangent, rhs)


def squares_with_slope(whitened: tf.Tensor, tangent: tf.Tensor) -> tf.Tensor:
    """Squared norms [..., N] of the columns of L^-1 R, with their gradient in the tangent; M^2 N.

    For L^-1 R whose own gradient in the tangent is stopped.

    :param whitened: L^-1 R [..., M, N] of `whiten`.
    :param tangent: the tangent [..., M, M], perhaps cast to the precision of this product.
    """

    @tf.custom_gradient
    def run(whitened: tf.Tensor, tangent: tf.Tensor) -> tuple:
        def grad(upstream: tf.Tensor) -> tuple:
            of_whitened = 2.0 * upstream[..., None, :] * whitened
            pair = [tf.cast(part, tangent.dtype) for part in (of_whitened, whitened)]
            return of_whitened, sum_to(-lower_outer(*pair), tangent)

        return tf.reduce_sum(tf.square(whitened), axis=-2), grad

    return run(whitened, tangent)
