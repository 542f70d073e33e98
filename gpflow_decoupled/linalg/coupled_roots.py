"""The Newton systems of `coupled` with the dense blocks given by thin roots; nothing is N x N."""

#   [ A A^T + diag a   diag c             ] [x]   [r]
#   [ diag c           1/2 V * V + diag b ] [y] = [s],   V = T^T T,   A [N, p], T [p, N]
#
# (V * V) y is the diagonal of T^T (T diag(y) T^T) T and costs N p^2. The preconditioner keeps only
# the diagonal of V * V and needs one p x p system.

from __future__ import annotations

__all__ = ["coupled_solve_of_roots", "squared_gram_product"]

import tensorflow as tf

from .conjugate_gradients import Blocks, conjugate_gradients
from .coupled import RIDGE, inner_per_latent, ridged
from .woodbury import woodbury_factor, woodbury_solve

_ITERATIONS = 50


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
    ridge: tf.Tensor | float = RIDGE,
    tolerance: float = 1e-6,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return (x, y, ok) of the system above; 3 N p^2 per latent and iteration.

    A is [G, N, p], G of 1 or L, T [L, p, N], and the vectors are [L, N]. Other arguments as
    `coupled_solve`; `ok` concerns the scaled preconditioner.
    """
    # 1) Scale both blocks to a unit diagonal.
    half_squares = 0.5 * tf.square(tf.reduce_sum(tf.square(T), axis=-2))
    scale_x = _scale(tf.reduce_sum(tf.square(A), axis=-1) + a, free[0])
    scale_y = _scale(half_squares + b, free[1])
    A, a, b = (
        scale_x[..., None] * A,
        _diagonal(a, scale_x, free[0], ridge),
        _diagonal(b, scale_y, free[1], ridge),
    )
    cross = c * scale_x * scale_y

    def apply(pair: Blocks) -> Blocks:
        x, y = pair
        top = tf.linalg.matvec(A, tf.linalg.matvec(A, x, transpose_a=True)) + a * x + cross * y
        return top, 0.5 * scale_y * squared_gram_product(T, scale_y * y) + b * y + cross * x

    # 2) Precondition with a unit diagonal as the second block: y = s - cross x, and a
    # low-rank system in x.
    schur = woodbury_factor(A, a - tf.square(cross))

    def precondition(pair: Blocks) -> Blocks:
        x, y = pair
        x = woodbury_solve(schur, x - cross * y)
        return x, y - cross * x

    # 3) Solve.
    right = (r * scale_x, s * scale_y)
    x, y = conjugate_gradients(
        apply, precondition, right, inner_per_latent, tolerance, _ITERATIONS
    ).x
    return x * scale_x, y * scale_y, schur.ok


def _scale(diagonal: tf.Tensor, free: tf.Tensor) -> tf.Tensor:
    return tf.where(free, tf.math.rsqrt(diagonal), tf.zeros_like(diagonal))


def _diagonal(
    values: tf.Tensor, scale: tf.Tensor, free: tf.Tensor, ridge: tf.Tensor | float
) -> tf.Tensor:
    """Scale a diagonal; rows that are not free get a one, and stay at zero."""
    return tf.where(free, ridged(values * tf.square(scale), ridge), tf.ones_like(scale))
