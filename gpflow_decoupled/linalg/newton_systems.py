"""Newton systems of Gaussian sites, (I + H G)(x; y) = (r; s), from the covariance V alone."""

#   G = blockdiag(K, 1/2 V * V),   V = (K^-1 + Lambda)^-1,   H: a block (a, c; c, b) per observation
#
# I + H G is self-adjoint in <u, w> = u^T G w, the inner product of the conjugate gradients here.
# The first block is preconditioned by (I + Lambda K)^-1 = I - Lambda V. K is not needed, as K (I +
# Lambda K)^-1 = V.

from __future__ import annotations

__all__ = ["stationary_solve"]

import tensorflow as tf

from .conjugate_gradients import Blocks, conjugate_gradients
from .coupled import inner_per_latent
from .coupled_roots import squared_gram_product

_ITERATIONS = 60


def stationary_solve(
    V: tf.Tensor,
    lam: tf.Tensor,
    H: tuple[tf.Tensor, tf.Tensor, tf.Tensor],
    r: tf.Tensor,
    s: tf.Tensor,
    tolerance: float = 1e-3,
    root: bool = False,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return (x, y, ok) of the system above, [L, N] each; 2 N^2 per latent and iteration.

    :param V: [L, N, N]; with `root`, T [L, p, N] with V = T^T T, at 4 N p + 2 N p^2.
    :param lam: lambda [L, N], the diagonal of Lambda; r and s are [L, N].
    :param H: (a, b, c), [L, N] each.
    :return: x, y, and whether G + G H G was positive definite and the tolerance reached [].
    """
    a, b, c = H
    squared = None if root else tf.square(V)

    def precondition(residual: Blocks) -> Blocks:
        """Return the preconditioned residual z, and G z: [L, N] each."""
        x, y = residual
        if squared is not None:
            G_z = tf.linalg.matvec(V, x), 0.5 * tf.linalg.matvec(squared, y)
        else:
            G_z = (
                tf.linalg.matvec(V, tf.linalg.matvec(V, x), transpose_a=True),
                0.5 * squared_gram_product(V, y),
            )
        return x - lam * G_z[0], y, *G_z

    def apply(direction: Blocks) -> Blocks:
        x, y, G_x, G_y = direction
        return x + a * G_x + c * G_y, y + c * G_x + b * G_y

    def inner(residual: Blocks, direction: Blocks) -> tf.Tensor:
        return inner_per_latent(residual, direction[2:])

    found = conjugate_gradients(apply, precondition, (r, s), inner, tolerance, _ITERATIONS)
    return found.x[0], found.x[1], found.ok
