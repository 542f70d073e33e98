"""Fused blocks for products with the matrix of a smooth stationary kernel."""

# `_sums` runs `blocks`' loop over `_block`: by XLA in chunks and threads if eager, else in the
# graph.

from __future__ import annotations

__all__ = ["BLOCKS", "How", "stationary_product"]

import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import NamedTuple

import tensorflow as tf

from ..replicas import Group
from .blocks import Chunk, chunks_of, in_chunks, number_of_threads, split, sweep, unsplit, xla_works
from .profiles import Profile, augmented_columns, augmented_rows

BLOCKS: dict[tf.DType, tuple[int, int]] = {tf.float32: (512, 512), tf.float64: (256, 256)}
"""Rows and columns of a block: half a megabyte or one, which fits a core's cache."""


class How(NamedTuple):
    """Settings of a product by blocks."""

    profile: Profile
    dtype: tf.DType
    block: tuple[int, int] | None
    progress: Callable[[float], None] | None
    xla: bool | None
    group: Group
    """The replicas that share out the blocks, if eager."""


class _Task(NamedTuple):
    profile: Profile
    inputs: int
    """D"""
    backward: bool
    same: bool
    right: int
    """R"""
    dtype: tf.DType
    """Dtype of the sums."""

    @property
    def widths(self) -> tuple[int, int]:
        if not self.backward:
            return self.right, self.right if self.same else 0
        return self.inputs + 1 + (self.right if self.same else 0), self.inputs + 2 + self.right


def stationary_product(
    how: How, variance: tf.Tensor, V: tf.Tensor, *scaled: tf.Tensor
) -> tf.Tensor:
    """variance * f(|x_i - z_j|^2) V for scaled, centred inputs (x [N, D], z [M, D]), or (x,)."""
    same, R = len(scaled) == 1, V.shape[1]

    @tf.custom_gradient
    def run(variance: tf.Tensor, V: tf.Tensor, *scaled: tf.Tensor) -> tuple:
        left, right = (tf.cast(one, how.dtype) for one in (scaled[0], scaled[-1]))
        D, rows, columns = left.shape[1], augmented_rows(left), augmented_columns(right)
        task = _Task(how.profile, D, False, same, max(R, 2) if same else R, V.dtype)
        wide = _widened(tf.cast(V, how.dtype), task.right)

        def product() -> list[tf.Tensor]:
            value, other = _sums(
                how,
                task,
                variance,
                tf.concat([rows, wide], 1) if same else rows,
                tf.concat([columns, wide], 1),
            )
            return [(value + other if same else value)[:, :R]]

        (value,) = how.group.summed(product)

        def to_others(upstream: tf.Tensor) -> list[tf.Tensor]:
            task = _Task(how.profile, D, True, same, max(R, 2), V.dtype)
            U, W = (_widened(tf.cast(one, how.dtype), task.right) for one in (upstream, V))
            both = [rows, U, W], [columns, W, U]
            to_row, to_column = _sums(
                how, task, variance, *(tf.concat(part if same else part[:2], 1) for part in both)
            )
            # sum_j w_ij (x_i - z_j), w = (dk/dr2) U V^T, from sum_j w_ij z_j and sum_j w_ij; and
            # for z from -2 sum_i w_ij x_i
            to_V = to_column[:, D + 2 : D + 2 + R]
            means, totals = to_row[:, :D], to_row[:, D : D + 1]
            other_means, other_totals = -0.5 * to_column[:, :D], to_column[:, D + 1 : D + 2]
            if same:
                to_V = to_V + to_row[:, D + 1 : D + 1 + R]
                pairs = [(left, means + other_means, totals + other_totals)]
            else:
                pairs = [(left, means, totals), (right, other_means, other_totals)]
            to_inputs = [
                tf.cast(2.0 * (total * tf.cast(x, V.dtype) - mean), scaled[0].dtype)
                for x, mean, total in pairs
            ]
            return [to_V, *to_inputs]

        def grad(upstream: tf.Tensor) -> tuple:
            to_variance = tf.cast(tf.reduce_sum(upstream * value), variance.dtype) / variance
            return to_variance, *how.group.summed(lambda: to_others(upstream))

        return value, grad

    return run(tf.convert_to_tensor(variance), V, *scaled)


def _widened(V: tf.Tensor, columns: int) -> tf.Tensor:
    """Zero-pad V to `columns` columns; XLA is slower on one column than on two."""
    return tf.pad(V, [[0, 0], [0, columns - V.shape[1]]])


def _block(
    task: _Task,
    variance: tf.Tensor,
    row: tf.Tensor,
    turned: tf.Tensor,
    column: tf.Tensor,
    diagonal: bool,
) -> tuple:
    # `row` holds (-2 x, |x|^2, 1, U, V), `column` (z, 1, |z|^2, V, U), U only for gradients;
    # `turned` is the transpose of `row`.
    A, R = task.inputs + 2, task.right
    squares = tf.maximum(tf.matmul(row[:, :A], column[:, :A], transpose_b=True), 0.0)
    if diagonal:
        squares = tf.linalg.set_diag(squares, tf.zeros_like(row[:, 0]))
    values, slopes = task.profile(squares, variance)
    if not task.backward:
        return tf.matmul(values, column[:, A:]), tf.matmul(
            turned[A:], values
        ) if task.same else None
    weights = slopes * tf.matmul(row[:, A:], column[:, A:], transpose_b=True)
    to_row = [tf.matmul(weights, column[:, : A - 1])]
    if task.same:
        to_row.append(tf.matmul(values, column[:, A + R :]))
    to_column = [tf.matmul(turned[:A], weights), tf.matmul(turned[A : A + R], values)]
    return tf.concat(to_row, 1), tf.concat(to_column, 0)


def _loop(
    task: _Task, variance: tf.Tensor, rows: tf.Tensor, columns: tf.Tensor, *bounds: tf.Tensor
) -> tuple:
    visit = functools.partial(_block, task, variance)
    return sweep(visit, rows, columns, bounds, task.same, task.widths, task.dtype)


@functools.cache
def _compiled(task: _Task, xla: bool) -> tf.types.experimental.PolymorphicFunction:
    return tf.function(functools.partial(_loop, task), jit_compile=xla, autograph=False)


def _sums(
    how: How, task: _Task, variance: tf.Tensor, rows: tf.Tensor, columns: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    variance = tf.cast(variance, how.dtype)
    if tf.executing_eagerly():
        return _eager_sums(how, task, variance, rows, columns)
    counts, data = zip(*(split(one, size) for one, size in zip((rows, columns), _sizes(how, task))))
    loop = _compiled(task, True) if how.xla else functools.partial(_loop, task)
    found = loop(variance, *data, tf.zeros([], tf.int32), *counts)
    return unsplit(found[0], tf.shape(rows)[0]), unsplit(found[1], tf.shape(columns)[0])


def _eager_sums(
    how: How, task: _Task, variance: tf.Tensor, rows: tf.Tensor, columns: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    xla, sizes = xla_works() if how.xla is None else how.xla, _sizes(how, task)
    loop = _compiled(task, xla)

    @tf.custom_gradient
    def run(*inputs: tf.Tensor) -> tuple:
        variance, *arrays = (tf.stop_gradient(one) for one in inputs)
        (N, rows), (M, columns) = (split(one, size, roomy=xla) for one, size in zip(arrays, sizes))

        def run_chunk(chunk: Chunk) -> tuple[tf.Tensor, tf.Tensor]:
            with nullcontext() if chunk.device is None else tf.device(chunk.device):
                return loop(
                    variance, rows, columns, tf.constant(chunk.first), tf.constant(chunk.last), M
                )

        parts = chunks_of(how.group, int(N), int(M), sizes, task.same)
        found = in_chunks(
            run_chunk, parts, how.progress, max(number_of_threads(), len(how.group.own))
        )

        def grad(*_: tf.Tensor) -> tuple:
            raise NotImplementedError(
                "kernel_product can be differentiated once; for more, use the stored kernel matrix."
            )

        return tuple(unsplit(one, of.shape[0]) for one, of in zip(found, arrays)), grad

    return run(variance, rows, columns)


def _sizes(how: How, task: _Task) -> tuple[int, int]:
    B, C = how.block or BLOCKS[how.dtype]
    return B, B if task.same else C
