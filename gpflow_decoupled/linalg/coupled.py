"""Newton systems with two dense diagonal blocks and a diagonal between them, solved by block elimination.

    [ P + diag a   diag c ] [x]   [r]
    [ diag c   Q + diag b ] [y] = [s]

for symmetric non-negative P, Q. Eliminating y leaves a system in x that is solved by conjugate gradients, preconditioned by
the first block: the two are coupled by a diagonal only, and a few iterations do. Rows that are not free are left out.
"""

from __future__ import annotations

__all__ = ["conjugate_gradients", "coupled_solve"]

from typing import Any

import tensorflow as tf

from .cholesky import cholesky
from .triangular import solve

_RIDGE = 1e-12
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
    tolerance: float = 1e-6,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """(x, y, ok) of the system above for P [G, N, N], Q [L, N, N] and vectors [L, N]; 2/3 N^3 a latent and N^2 an iteration.

    :param free: masks [L, N] of the rows of x and of y; x and y are zero in other rows.
    :param tolerance: relative, on the residual.

    Both blocks are scaled to a unit diagonal, and ok [] says whether they were positive definite then.
    """
    scale_x, chol_x, ok_x = _block(P, a, free[0])
    scale_y, chol_y, ok_y = _block(Q, b, free[1])
    cross = c * scale_x * scale_y

    def eliminated(x: tf.Tensor) -> tf.Tensor:
        product = tf.linalg.matvec(chol_x, tf.linalg.matvec(chol_x, x, transpose_a=True))
        return product - cross * _solve(chol_y, cross * x)

    right = _solve(chol_y, s * scale_y)
    start = r * scale_x - cross * right
    x = conjugate_gradients(eliminated, lambda v: _solve(chol_x, v), start, tolerance)
    y = right - _solve(chol_y, cross * x)
    return x * scale_x, y * scale_y, ok_x & ok_y


def _block(matrix: tf.Tensor, diagonal: tf.Tensor, free: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The factor of a block scaled to a unit diagonal, and the scale [L, N]: zero in rows that are not free."""
    scale = tf.where(free, tf.math.rsqrt(tf.linalg.diag_part(matrix) + diagonal), tf.zeros_like(diagonal))
    scaled = scale[:, :, None] * matrix * scale[:, None, :]
    chol, ok = cholesky(tf.linalg.set_diag(scaled, tf.fill(tf.shape(scale), tf.constant(1.0 + _RIDGE, scale.dtype))))
    return scale, chol, ok


def _solve(chol: tf.Tensor, vectors: tf.Tensor) -> tf.Tensor:
    return solve(chol, solve(chol, vectors[..., None]), adjoint=True)[..., 0]


def conjugate_gradients(apply: Any, precondition: Any, right: tf.Tensor, tolerance: float) -> tf.Tensor:
    """The x [L, N] with apply(x) = right, each latent by itself."""
    z = precondition(right)
    size = tf.reduce_sum(right * z, axis=-1, keepdims=True)
    goal = tolerance**2 * size

    def running(step: tf.Tensor, x: tf.Tensor, r: tf.Tensor, p: tf.Tensor, now: tf.Tensor) -> tf.Tensor:
        return (step < _ITERATIONS) & tf.reduce_any(now > goal)

    def body(step: tf.Tensor, x: tf.Tensor, r: tf.Tensor, p: tf.Tensor, now: tf.Tensor) -> tuple:
        product = apply(p)
        length = tf.math.divide_no_nan(now, tf.reduce_sum(p * product, axis=-1, keepdims=True))
        x, r = x + length * p, r - length * product
        z = precondition(r)
        then = tf.reduce_sum(r * z, axis=-1, keepdims=True)
        return step + 1, x, r, z + tf.math.divide_no_nan(then, now) * p, then

    return tf.while_loop(running, body, (tf.constant(0), tf.zeros_like(right), right, z, size))[1]
