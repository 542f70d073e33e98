"""Preconditioned conjugate gradients, for systems whose unknowns come in several blocks or several latents.

SciPy's and TensorFlow's own take one flat vector, one inner product and one relative residual. Newton steps here need an
unknown in several tensors, an inner product other than the dot product, and to know whether the system was positive definite.
"""

from __future__ import annotations

__all__ = ["Solution", "conjugate_gradients"]

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

Blocks = tuple[tf.Tensor, ...]
"""The blocks of one vector."""


class Solution(NamedTuple):
    """The solution, and whether to trust it."""

    x: Blocks
    ok: tf.Tensor
    """[], bool: whether every direction had positive curvature, and the tolerance was reached."""


class _Loop(NamedTuple):
    step: tf.Tensor
    x: Blocks
    residual: Blocks
    direction: Blocks
    size: tf.Tensor
    """<residual, preconditioned residual>"""
    ok: tf.Tensor


def conjugate_gradients(
    apply: Callable[[Blocks], Blocks],
    precondition: Callable[[Blocks], Blocks],
    right: Blocks,
    inner: Callable[[Blocks, Blocks], tf.Tensor],
    tolerance: float,
    iterations: int,
    norm: Callable[[Blocks], tf.Tensor] | None = None,
) -> Solution:
    """The x with apply(x) = right, from zero.

    :param apply: the matrix times a direction: of the shape of what `precondition` returns, to the shape of `right`.
    :param precondition: the preconditioner times a residual. It may return more blocks than `right` has, which `apply` and
        `inner` then find with every direction, and the caller with x: for example a product that both need.
    :param right: the right-hand side.
    :param inner: the inner product of a residual and a direction: a scalar, or [L, 1] for L independent systems in blocks
        [L, N], each of which has its own step lengths.
    :param tolerance: relative to the right-hand side, on the root of `norm`.
    :param iterations: at most so many.
    :param norm: the squared size of a residual; by default its inner product with the preconditioned residual.
    """
    start = precondition(right)
    size = inner(right, start)
    goal = tolerance**2 * (size if norm is None else norm(right))

    def left(now: _Loop) -> tf.Tensor:
        return now.size if norm is None else norm(now.residual)

    def running(*state: tf.Tensor) -> tf.Tensor:
        now = _Loop(*state)
        return (now.step < iterations) & tf.reduce_any(left(now) > goal)

    def body(*state: tf.Tensor) -> _Loop:
        now = _Loop(*state)
        product = apply(now.direction)
        curvature = inner(product, now.direction)
        ok = now.ok & tf.reduce_all((curvature > 0.0) | (left(now) <= goal))
        length = tf.math.divide_no_nan(now.size, curvature)
        x = _moved(now.x, length, now.direction)
        residual = _moved(now.residual, -length, product)
        z = precondition(residual)
        size = inner(residual, z)
        direction = _moved(z, tf.math.divide_no_nan(size, now.size), now.direction)
        return _Loop(now.step + 1, x, residual, direction, size, ok)

    nothing = tuple(tf.zeros_like(block) for block in start)
    first = _Loop(tf.constant(0), nothing, right, start, size, tf.constant(True))
    last = _Loop(*tf.while_loop(running, body, first))
    return Solution(last.x, last.ok & tf.reduce_all(left(last) <= goal))


def _moved(blocks: Blocks, length: tf.Tensor, by: Blocks) -> Blocks:
    return tuple(block + length * change for block, change in zip(blocks, by))
