"""Preconditioned conjugate gradients for blocks or latents; `begin` and `advance` run them
stepwise.
"""

from __future__ import annotations

__all__ = ["Iterate", "Solution", "advance", "begin", "conjugate_gradients"]

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

Blocks = tuple[tf.Tensor, ...]
"""The blocks of one vector."""
Inner = Callable[[Blocks, Blocks], tf.Tensor]
"""Inner product of a residual and a direction, see `conjugate_gradients`."""


class Solution(NamedTuple):
    """The solution and its status."""

    x: Blocks
    ok: tf.Tensor
    """[], bool: every direction had positive curvature, and the tolerance was reached."""


class Iterate(NamedTuple):
    """The state of an iteration; blocks have the caller's shapes, for example [N, L]."""

    step: tf.Tensor
    x: Blocks
    residual: Blocks
    direction: Blocks
    size: tf.Tensor
    """<residual, preconditioned residual>"""
    curvature: tf.Tensor
    """<direction, matrix direction> of the last step; infinite before the first."""


def begin(precondition: Callable[[Blocks], Blocks], right: Blocks, inner: Inner) -> Iterate:
    """Return the iterate at x = 0; arguments as for `conjugate_gradients`."""
    start = precondition(right)
    size = inner(right, start)
    nothing = tuple(tf.zeros_like(block) for block in start)
    return Iterate(
        tf.constant(0),
        nothing,
        right,
        start,
        size,
        tf.fill(tf.shape(size), tf.constant(np.inf, size.dtype)),
    )


def advance(
    now: Iterate,
    apply: Callable[[Blocks], Blocks],
    precondition: Callable[[Blocks], Blocks],
    inner: Inner,
) -> Iterate:
    """Take one step: one product with the matrix, one with the preconditioner."""
    product = apply(now.direction)
    curvature = inner(product, now.direction)
    length = tf.math.divide_no_nan(now.size, curvature)
    x = _moved(now.x, length, now.direction)
    residual = _moved(now.residual, -length, product)
    z = precondition(residual)
    size = inner(residual, z)
    direction = _moved(z, tf.math.divide_no_nan(size, now.size), now.direction)
    return Iterate(now.step + 1, x, residual, direction, size, curvature)


def conjugate_gradients(
    apply: Callable[[Blocks], Blocks],
    precondition: Callable[[Blocks], Blocks],
    right: Blocks,
    inner: Inner,
    tolerance: float,
    iterations: int,
    norm: Callable[[Blocks], tf.Tensor] | None = None,
) -> Solution:
    """Solve apply(x) = right, starting at zero.

    :param precondition: its extra blocks travel with every direction and with x.
    :param inner: inner product of a residual and a direction: a scalar, or [L, 1] for L independent
        systems in blocks [L, N].
    :param tolerance: on the root of `norm`, relative to the right-hand side.
    :param norm: squared size of a residual; by default its `inner` with the preconditioned one.
    """
    first = begin(precondition, right, inner)
    goal = tolerance**2 * (first.size if norm is None else norm(right))

    def left(now: Iterate) -> tf.Tensor:
        return now.size if norm is None else norm(now.residual)

    def running(ok: tf.Tensor, *state: tf.Tensor) -> tf.Tensor:
        now = Iterate(*state)
        return (now.step < iterations) & tf.reduce_any(left(now) > goal)

    def body(ok: tf.Tensor, *state: tf.Tensor) -> tuple:
        before = Iterate(*state)
        now = advance(before, apply, precondition, inner)
        return ok & tf.reduce_all((now.curvature > 0.0) | (left(before) <= goal)), *now

    ok, *state = tf.while_loop(running, body, (tf.constant(True), *first))
    last = Iterate(*state)
    return Solution(last.x, ok & tf.reduce_all(left(last) <= goal))


def _moved(blocks: Blocks, length: tf.Tensor, by: Blocks) -> Blocks:
    return tuple(block + length * change for block, change in zip(blocks, by))
