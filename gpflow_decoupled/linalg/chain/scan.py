"""Loops over rows, compiled by XLA."""

from __future__ import annotations

__all__ = ["Step", "scan"]

import functools
from collections.abc import Callable
from typing import TypeAlias

import tensorflow as tf

Tensors: TypeAlias = "tuple[tf.Tensor, ...]"
Step: TypeAlias = Callable[[Tensors, Tensors, Tensors], tuple[Tensors, Tensors]]
"""(carry, inputs of a row, constants) -> (new carry, other outputs of the row)."""
_FEWEST = 64
"""Fewest rows of a loop. XLA compiles a loop for a number of rows, some 0.3 s, so numbers are
rounded up, from 64 on to four sizes per power of two; at most a quarter of the rows is idle."""


def scan(
    step: Step,
    start: Tensors,
    inputs: Tensors,
    constants: Tensors = (),
    *,
    reverse: bool = False,
) -> Tensors:
    """Apply a step to row after row, and return the carries and other outputs of all rows.

    The gradient repeats each step from the stored carry. Cost: a microsecond a row and small
    matrix.

    :param step: a module-level function. A row of zeros must not change a carry, since the loop may
        be longer than the inputs.
    :param start: the carry before the first row; it has no gradient.
    :param inputs: [N, ...] each.
    :param constants: of the step, without gradient.
    :param reverse: go from the last row to the first.
    :return: the carry after each row, then the other outputs, [N, ...] each.
    """
    rows, size = tf.shape(inputs[0])[0], _rounded(inputs[0].shape[0])
    loop, back = _loops(step, len(start), reverse)
    # a tape that saw the loop itself would ask XLA for a gradient that it does not have
    start, constants = (tuple(map(tf.stop_gradient, part)) for part in (start, constants))

    @tf.custom_gradient
    def run(*given: tf.Tensor) -> tuple[Tensors, Callable[..., list[tf.Tensor]]]:
        padded = tuple(_padded(tf.stop_gradient(one), size) for one in given)
        outputs = loop(start, padded, constants)

        def pull(*upstream: tf.Tensor) -> list[tf.Tensor]:
            weights = tuple(_padded(one, size) for one in upstream)
            return [one[:rows] for one in back(start, padded, constants, outputs, weights)]

        return tuple(one[:rows] for one in outputs), pull

    return run(*inputs)


def _rounded(rows: int | None) -> int | None:
    """The number of rows of the loop; None leaves a number that is not known."""
    if rows is None:
        return None
    quarter = max(_FEWEST, 1 << max(rows - 1, 0).bit_length()) // 8
    return -(-max(rows, _FEWEST) // quarter) * quarter


def _padded(tensor: tf.Tensor, size: int | None) -> tf.Tensor:
    if size is None or tensor.shape[0] == size:
        return tensor
    rest = [[0, 0]] * (tensor.shape.rank - 1)
    return tf.pad(tensor, [[0, size - tf.shape(tensor)[0]], *rest])


@functools.cache
def _loops(step: Step, carried: int, reverse: bool) -> tuple[Callable, Callable]:
    def forward(start: Tensors, inputs: Tensors, constants: Tensors) -> Tensors:
        size = tf.shape(inputs[0])[0]
        places = _places(size, reverse)
        stores = [_store(size, one) for one in _outputs(step, start, inputs, constants)]

        def body(i: tf.Tensor, carry: Tensors, filled: list) -> tuple:
            row = places(i)
            carry, other = step(carry, tuple(one[row] for one in inputs), constants)
            return i + 1, carry, [s.write(row, value) for s, value in zip(filled, (*carry, *other))]

        _, _, stores = tf.while_loop(
            lambda i, *_: i < size, body, (tf.constant(0), start, stores), maximum_iterations=size
        )
        return tuple(one.stack() for one in stores)

    def backward(
        start: Tensors, inputs: Tensors, constants: Tensors, outputs: Tensors, weights: Tensors
    ) -> Tensors:
        size = tf.shape(inputs[0])[0]
        places = _places(size, not reverse)
        stores = [_store(size, one[0]) for one in inputs]

        def body(i: tf.Tensor, pulled: Tensors, filled: list) -> tuple:
            row = places(i)
            # the step of this row began with the carry of the row before, or with the start
            before = row + 1 if reverse else row - 1
            inside = (before >= 0) & (before < size)
            at = tf.clip_by_value(before, 0, size - 1)
            carry = tuple(tf.where(inside, one[at], first) for one, first in zip(outputs, start))
            given = tuple(one[row] for one in inputs)
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch([*carry, *given])
                found = [part for parts in step(carry, given, constants) for part in parts]
            upstream = [one[row] for one in weights]
            upstream[:carried] = [a + b for a, b in zip(upstream, pulled)]
            gradients = tape.gradient(
                found,
                [*carry, *given],
                upstream,
                unconnected_gradients=tf.UnconnectedGradients.ZERO,
            )
            kept = [s.write(row, value) for s, value in zip(filled, gradients[carried:])]
            return i + 1, tuple(gradients[:carried]), kept

        nothing = tuple(tf.zeros_like(one) for one in start)
        _, _, stores = tf.while_loop(
            lambda i, *_: i < size, body, (tf.constant(0), nothing, stores), maximum_iterations=size
        )
        return tuple(one.stack() for one in stores)

    return tuple(tf.function(one, jit_compile=True, autograph=False) for one in (forward, backward))


def _places(size: tf.Tensor, reverse: bool) -> Callable[[tf.Tensor], tf.Tensor]:
    return (lambda i: size - 1 - i) if reverse else (lambda i: i)


def _outputs(step: Step, start: Tensors, inputs: Tensors, constants: Tensors) -> list[tf.Tensor]:
    carry, other = step(start, tuple(one[0] for one in inputs), constants)
    return [*carry, *other]


def _store(size: tf.Tensor, like: tf.Tensor) -> tf.TensorArray:
    return tf.TensorArray(like.dtype, size=size, element_shape=like.shape)
