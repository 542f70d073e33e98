"""Bounds of y^T (K + D)^-1 y."""

# For any a, with r = y - (K + D) a and a Nystrom matrix Q <= K, (D32),
#
#     2 a^T y - a^T (K + D) a  <=  y^T (K + D)^-1 y  <=  the same + r^T (Q + D)^-1 r.

from __future__ import annotations

__all__ = ["Nystrom", "Quadratic", "bound_quadratic"]

import copy
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import Kernel

from ...covariances.latents import gram_to_data, gram_to_factor
from ...errors import NumericalError
from ...linalg.cholesky import cholesky
from ...linalg.conjugate_gradients import Blocks, conjugate_gradients
from ...linalg.triangular import solve, symmetric_product

_SHARE = 0.5
"""Of the tolerance, that the recursion's residual must reach: round-off takes some of the rest."""
Product = Callable[[tf.Tensor, tf.DType | None], tf.Tensor]
"""(K + D) v [N, R] for v [N, R], with K in a dtype."""


class Quadratic(NamedTuple):
    """Bounds of y^T (K + D)^-1 y, summed over columns of y."""

    lower: float
    upper: float
    products: int


class Nystrom:
    """Q + D for Q = K_xz K_z^-1 K_zx at M points.

    :param Z: points [M, D].
    :param X: inputs [N, D].
    :param noise: the noise variances [N].

    Cost: N M^2, memory N M.
    """

    def __init__(self, kernel: Kernel, Z: tf.Tensor, X: tf.Tensor, noise: tf.Tensor) -> None:
        points = InducingPoints(Z)
        chol, fine = cholesky(gram_to_factor(kernel, points))
        self._A = solve(chol, gram_to_data(kernel, points, X))  # [1, M, N]
        self._weigh(noise, fine)

    def with_noise(self, noise: tf.Tensor) -> Nystrom:
        """Q + D for other noise variances [N], which shares the covariances; N M^2."""
        other = copy.copy(self)
        other._weigh(noise, tf.constant(True))
        return other

    def _weigh(self, noise: tf.Tensor, fine: tf.Tensor) -> None:
        """Factorise I + A D^-1 A^T; `fine` tells whether A itself is."""
        self._weights = 1.0 / noise
        product = symmetric_product(self._A, self._weights[None])
        product = tf.linalg.set_diag(product, tf.linalg.diag_part(product) + 1.0)
        self._chol, ok = cholesky(product)
        if not bool(fine & ok):
            raise NumericalError(
                "The covariance at the inducing points of the evidence could not be factorised:"
                " the kernel or the noise variance is not finite, or far too small.",
                "I + A W A^T",
            )

    def log_determinant(self) -> float:
        """log|Q + D|, a lower bound of log|K + D|."""
        half = tf.reduce_sum(tf.math.log(tf.linalg.diag_part(self._chol)))
        return 2.0 * float(half) - float(tf.reduce_sum(tf.math.log(self._weights)))

    def quadratic(self, residual: tf.Tensor) -> tf.Tensor:
        """r^T (Q + D)^-1 r [1, R] for the columns of r [N, R], from above; N M R."""
        # It is the minimum over t of (r - A^T t)^T W (r - A^T t) + t^T t, a sum of squares, which
        # round-off in t can only raise.
        t, rest = self._split(residual)
        squares = tf.reduce_sum(self._weights[:, None] * tf.square(rest), axis=0)
        return (squares + tf.reduce_sum(tf.square(t), axis=0))[None]

    def solve(self, right: tf.Tensor) -> tf.Tensor:
        """(Q + D)^-1 r for the columns of r [N, R]; N M R."""
        return self._weights[:, None] * self._split(right)[1]

    def _split(self, right: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """t [M, R], and r - A^T t [N, R], at that minimum."""
        A, weights = self._A[0], self._weights[:, None]
        half = tf.linalg.triangular_solve(self._chol[0], tf.matmul(A, weights * right))
        t = tf.linalg.triangular_solve(self._chol[0], half, adjoint=True)
        return t, right - tf.matmul(A, t, transpose_a=True)

    def left(self, prior: tf.Tensor) -> tf.Tensor:
        """The variance that the points leave unexplained, diag(K - Q) [N], of diag(K)."""
        return tf.maximum(prior - tf.reduce_sum(tf.square(self._A[0]), axis=0), 0.0)


def bound_quadratic(
    product: Product,
    precondition: Callable[[tf.Tensor], tf.Tensor],
    nystrom: Nystrom,
    y: tf.Tensor,
    tolerance: float,
    max_products: int,
) -> Quadratic:
    """Solve (K + D) a = y by conjugate gradients until the two bounds are close.

    :param product: with K + D.
    :param precondition: an approximate inverse of K + D, applied to [N, R].
    :param tolerance: largest difference of half the bounds, in nats.
    :param max_products: a limit; bounds hold however far the solution is.
    """
    # Products in single precision come first, then one in full, which certifies; if that is not
    # good enough, more in full precision follow.
    a, residual, count = tf.zeros_like(y), y, 0
    best = _bounds(nystrom, y, a, residual, count)
    for dtype in (tf.float32, y.dtype) if y.dtype == tf.float64 else (y.dtype,):
        start = float(tf.reduce_sum(nystrom.quadratic(residual)))
        goal = 2.0 * _SHARE * tolerance
        if start <= goal or count >= max_products - 1:
            break
        used = [0]

        def apply(blocks: Blocks, dtype: tf.DType = dtype, used: list = used) -> Blocks:
            used[0] += 1
            return (product(blocks[0], dtype),)

        found = conjugate_gradients(
            apply,
            lambda blocks: (precondition(blocks[0]),),
            (residual,),
            lambda left, right: tf.reduce_sum(left[0] * right[0], axis=0, keepdims=True),
            float(np.sqrt(goal / start)),
            max_products - 1 - count,
            lambda blocks: tf.reduce_sum(nystrom.quadratic(blocks[0])),
        )
        a = a + found.x[0]
        residual = y - product(a, None)
        count += used[0] + 1
        then = _bounds(nystrom, y, a, residual, count)
        # the better of each side: both hold at any a
        best = Quadratic(max(best.lower, then.lower), min(best.upper, then.upper), count)
    return best


def _bounds(
    nystrom: Nystrom, y: tf.Tensor, a: tf.Tensor, residual: tf.Tensor, products: int
) -> Quadratic:
    """Both bounds at a [N, R] with its residual; not finite ones say nothing."""
    lower = float(tf.reduce_sum(a * (y + residual)))
    upper = lower + float(tf.reduce_sum(nystrom.quadratic(residual)))
    if not np.isfinite(upper):
        return Quadratic(-np.inf, np.inf, products)
    return Quadratic(lower, upper, products)
