"""Newton systems of Gaussian sites, (I + H G) x = r, by conjugate gradients that need V alone.

    G = blockdiag(K, 1/2 V * V),   H: a symmetric block (a, c; c, b) for each observation

I + H G is self-adjoint in the inner product of G. Its first block is preconditioned by (I + Lambda K)^-1 = I - Lambda V, and
K (I + Lambda K)^-1 = V, so that neither K nor a factorisation is asked for.
"""

from __future__ import annotations

__all__ = ["stationary_solve"]

from typing import NamedTuple

import tensorflow as tf

from .coupled_roots import squared_gram_product

_ITERATIONS = 60


class _Loop(NamedTuple):
    """Vectors [L, N] in pairs, one of K and one of V * V."""

    step: tf.Tensor
    x: tuple[tf.Tensor, tf.Tensor]
    residual: tuple[tf.Tensor, tf.Tensor]
    p: tuple[tf.Tensor, tf.Tensor]
    G_p: tuple[tf.Tensor, tf.Tensor]
    size: tf.Tensor
    """Squared length of the preconditioned residual [L, 1]."""
    ok: tf.Tensor
    """[], bool: whether no direction of negative curvature was met."""


def stationary_solve(
    V: tf.Tensor,
    lam: tf.Tensor,
    H: tuple[tf.Tensor, tf.Tensor, tf.Tensor],
    r: tf.Tensor,
    s: tf.Tensor,
    tolerance: float = 1e-3,
    root: bool = False,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """(x, y, ok) of (I + H G) (x; y) = (r; s) for V [L, N, N] = (K^-1 + diag lam)^-1 and vectors [L, N]; 2 N^2 an iteration.

    :param H: its entries (a, b, c), [L, N] each.
    :param root: V is given by T [L, p, N] with V = T^T T; 4 N p + 2 N p^2 an iteration.
    :param tolerance: relative, on the residual. ok [] is False where G + G H G is not positive definite, or it is not reached.
    """
    a, b, c = H
    squared = None if root else tf.square(V)

    def products(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """V x and 1/2 (V * V) y."""
        if squared is not None:
            return tf.linalg.matvec(V, x), 0.5 * tf.linalg.matvec(squared, y)
        return tf.linalg.matvec(V, tf.linalg.matvec(V, x), transpose_a=True), 0.5 * squared_gram_product(V, y)

    def preconditioned(residual: tuple) -> tuple[tuple, tuple]:
        """The residual times the preconditioner, and G times that."""
        G_z = products(*residual)
        return (residual[0] - lam * G_z[0], residual[1]), G_z

    def body(*state: tf.Tensor) -> _Loop:
        now = _Loop(*state)
        product = (
            now.p[0] + a * now.G_p[0] + c * now.G_p[1],
            now.p[1] + c * now.G_p[0] + b * now.G_p[1],
        )
        curved = _inner(product, now.G_p)
        length = tf.math.divide_no_nan(now.size, curved)
        residual = _moved(now.residual, -length, product)
        z, G_z = preconditioned(residual)
        size = _inner(residual, G_z)
        share = tf.math.divide_no_nan(size, now.size)
        ok = now.ok & tf.reduce_all((curved > 0.0) | (now.size <= goal))
        x = _moved(now.x, length, now.p)
        return _Loop(now.step + 1, x, residual, _moved(z, share, now.p), _moved(G_z, share, now.G_p), size, ok)

    def running(*state: tf.Tensor) -> tf.Tensor:
        now = _Loop(*state)
        return (now.step < _ITERATIONS) & now.ok & tf.reduce_any(now.size > goal)

    z, G_z = preconditioned((r, s))
    size = _inner((r, s), G_z)
    goal = tolerance**2 * size
    nothing = tf.zeros_like(r), tf.zeros_like(s)
    last = _Loop(*tf.while_loop(running, body, _Loop(tf.constant(0), nothing, (r, s), z, G_z, size, tf.constant(True))))
    return *last.x, last.ok & tf.reduce_all(last.size <= goal)


def _inner(left: tuple, right: tuple) -> tf.Tensor:
    """The sum of products of both pairs, a latent [L, 1]."""
    return tf.reduce_sum(left[0] * right[0] + left[1] * right[1], axis=-1, keepdims=True)


def _moved(pair: tuple, length: tf.Tensor, by: tuple) -> tuple[tf.Tensor, tf.Tensor]:
    return pair[0] + length * by[0], pair[1] + length * by[1]
