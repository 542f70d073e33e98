"""Newton systems of two diagonal blocks, by elimination."""

#   [ P + diag a   diag c     ] [x]   [r]
#   [ diag c       Q + diag b ] [y] = [s]
#
# for symmetric non-negative P, Q. Eliminating y leaves
#
#   [ P + diag a - diag c (Q + diag b)^-1 diag c ] x = r - diag c (Q + diag b)^-1 s
#
# for conjugate gradients preconditioned by P + diag a; the coupling is small, so few iterations
# suffice.

from __future__ import annotations

__all__ = ["RIDGE", "coupled_solve", "inner_per_latent", "ridged"]

import numpy as np
import tensorflow as tf

from .cholesky import cholesky
from .conjugate_gradients import Blocks, conjugate_gradients
from .triangular import solve

RIDGE = 4500.0
"""Added to the unit diagonals of the scaled blocks, in machine epsilons (1e-12 in float64)."""
_ITERATIONS = 50


def coupled_solve(
    P: tf.Tensor,
    a: tf.Tensor,
    Q: tf.Tensor,
    b: tf.Tensor,
    c: tf.Tensor,
    r: tf.Tensor,
    s: tf.Tensor,
    free: tuple[tf.Tensor, tf.Tensor],
    ridge: tf.Tensor | float = RIDGE,
    tolerance: float = 1e-6,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return (x, y, ok) of the system above; 2/3 N^3 per latent, and N^2 per iteration.

    P is [G, N, N], G of 1 or L, Q [L, N, N], and the vectors are [L, N].

    :param free: masks [L, N] of the free rows of x and y; the others are zero.
    :param ridge: added to the unit diagonals of the scaled blocks, in machine epsilons [].
    :return: x, y [L, N], and whether both scaled blocks were positive definite [].
    """
    # 1) Scale both blocks to a unit diagonal and factorise them.
    scale_x, chol_x, ok_x = _block(P, a, free[0], ridge)
    scale_y, chol_y, ok_y = _block(Q, b, free[1], ridge)
    cross = c * scale_x * scale_y

    # 2) Eliminate y, and solve for x.
    def eliminated(x: Blocks) -> Blocks:
        product = tf.linalg.matvec(chol_x, tf.linalg.matvec(chol_x, x[0], transpose_a=True))
        return (product - cross * _solve(chol_y, cross * x[0]),)

    def precondition(residual: Blocks) -> Blocks:
        return (_solve(chol_x, residual[0]),)

    right = _solve(chol_y, s * scale_y)
    start = (r * scale_x - cross * right,)
    (x,) = conjugate_gradients(
        eliminated, precondition, start, inner_per_latent, tolerance, _ITERATIONS
    ).x
    # 3) Put x into the second row.
    y = right - _solve(chol_y, cross * x)
    return x * scale_x, y * scale_y, ok_x & ok_y


def inner_per_latent(left: Blocks, right: Blocks) -> tf.Tensor:
    """Sum the products of blocks [L, N] per latent: [L, 1]."""
    return tf.reduce_sum(sum(x * y for x, y in zip(left, right)), axis=-1, keepdims=True)


def ridged(diagonal: tf.Tensor, ridge: tf.Tensor | float) -> tf.Tensor:
    """Add the ridge [], in machine epsilons, to the diagonal [L, N] of a scaled block."""
    return diagonal + ridge * tf.constant(
        np.finfo(diagonal.dtype.as_numpy_dtype).eps, diagonal.dtype
    )


def _block(
    matrix: tf.Tensor, diagonal: tf.Tensor, free: tf.Tensor, ridge: tf.Tensor | float
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    scale = tf.where(
        free, tf.math.rsqrt(tf.linalg.diag_part(matrix) + diagonal), tf.zeros_like(diagonal)
    )
    scaled = scale[:, :, None] * matrix * scale[:, None, :]
    chol, ok = cholesky(tf.linalg.set_diag(scaled, ridged(tf.ones_like(scale), ridge)))
    return scale, chol, ok


def _solve(chol: tf.Tensor, vectors: tf.Tensor) -> tf.Tensor:
    return solve(chol, solve(chol, vectors[..., None]), adjoint=True)[..., 0]
