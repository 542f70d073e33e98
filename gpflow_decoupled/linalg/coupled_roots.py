"""The Newton systems of `coupled` where the dense blocks are given by thin roots, without any N x N matrix.

    [ A A^T + diag a   diag c             ] [x]   [r]
    [ diag c           1/2 V * V + diag b ] [y] = [s],   V = T^T T,   A [N, p], T [p, N]

by conjugate gradients: (V * V) y = diag T^T (T diag(y) T^T) T costs N p^2, and the preconditioner is the same matrix with the
diagonal of V * V alone, whose inverse is a p x p system. What it leaves out is small: with sites of precision lambda the rows
of 1/2 V * V sum to v / (2 lambda) at most, and b is about v / lambda.
"""

from __future__ import annotations

__all__ = ["coupled_solve_of_roots", "squared_gram_product"]

from typing import Any

import tensorflow as tf

from .cholesky import cholesky
from .coupled import conjugate_gradients
from .triangular import solve


def squared_gram_product(T: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """(V * V) y [L, N] with V = T^T T, for T [L, p, N] and y [L, N]; 2 N p^2."""
    middle = tf.matmul(T * y[:, None, :], T, transpose_b=True)
    return tf.reduce_sum(T * tf.matmul(middle, T), axis=-2)


def coupled_solve_of_roots(
    A: tf.Tensor,
    a: tf.Tensor,
    T: tf.Tensor,
    b: tf.Tensor,
    c: tf.Tensor,
    r: tf.Tensor,
    s: tf.Tensor,
    free: tuple[tf.Tensor, tf.Tensor],
    tolerance: float = 1e-6,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """(x, y, ok) of the system above for A [G, N, p], T [L, p, N] and vectors [L, N]; 3 N p^2 a latent and an iteration.

    :param free: masks [L, N] of the rows of x and of y; x and y are zero in other rows.
    :param tolerance: relative, on the residual.

    Both blocks are scaled to a unit diagonal, and ok [] says whether the preconditioner was positive definite then.
    """
    half_squares = 0.5 * tf.square(tf.reduce_sum(tf.square(T), axis=-2))
    scale_x = _scale(tf.reduce_sum(tf.square(A), axis=-1) + a, free[0])
    scale_y = _scale(half_squares + b, free[1])
    A, a, b = scale_x[..., None] * A, _diagonal(a, scale_x, free[0]), _diagonal(b, scale_y, free[1])
    cross = c * scale_x * scale_y

    def apply(both: tf.Tensor) -> tf.Tensor:
        x, y = tf.split(both, 2, axis=-1)
        top = tf.linalg.matvec(A, tf.linalg.matvec(A, x, transpose_a=True)) + a * x + cross * y
        return tf.concat([top, 0.5 * scale_y * squared_gram_product(T, scale_y * y) + b * y + cross * x], axis=-1)

    schur, ok = _preconditioner(A, a - tf.square(cross))

    def precondition(both: tf.Tensor) -> tf.Tensor:
        x, y = tf.split(both, 2, axis=-1)
        x = schur(x - cross * y)
        return tf.concat([x, y - cross * x], axis=-1)

    found = conjugate_gradients(apply, precondition, tf.concat([r * scale_x, s * scale_y], axis=-1), tolerance)
    x, y = tf.split(found, 2, axis=-1)
    return x * scale_x, y * scale_y, ok


def _scale(diagonal: tf.Tensor, free: tf.Tensor) -> tf.Tensor:
    return tf.where(free, tf.math.rsqrt(diagonal), tf.zeros_like(diagonal))


def _diagonal(values: tf.Tensor, scale: tf.Tensor, free: tf.Tensor) -> tf.Tensor:
    """Scaled; rows that are not free stand for themselves alone."""
    return tf.where(free, values * tf.square(scale), tf.ones_like(scale))


def _preconditioner(A: tf.Tensor, d: tf.Tensor) -> tuple[Any, tf.Tensor]:
    """The inverse of A A^T + diag d for A [L, N, p] and d [L, N], through I + A^T D^-1 A; and whether d is positive."""
    spread = A / d[..., None]
    small = tf.matmul(A, spread, transpose_a=True)
    chol, ok = cholesky(tf.linalg.set_diag(small, tf.linalg.diag_part(small) + 1.0))

    def inverse(x: tf.Tensor) -> tf.Tensor:
        pulled = tf.linalg.matvec(spread, x, transpose_a=True)[..., None]
        return x / d - tf.linalg.matvec(spread, solve(chol, solve(chol, pulled), adjoint=True)[..., 0])

    return inverse, ok & tf.reduce_all(d > 0.0)
