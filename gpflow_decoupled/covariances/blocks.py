"""Sums over the blocks of an N x M matrix that is never stored."""

from __future__ import annotations

__all__ = [
    "BLOCKS", "Chunk", "How", "Visit", "chunks", "chunks_of", "in_chunks", "number_of_threads",
    "shares", "split", "stationary_product", "sweep", "unsplit", "xla_works",
]  # fmt: skip

import functools
import itertools
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ..replicas import Group
from .stationary import Profile, augmented_columns, augmented_rows

# `sweep` is one loop for TensorFlow's runtime and XLA, compiled once for all chunks of `in_chunks`:
# 0.1 s each, for interrupts and progress.


Visit = Callable[[tf.Tensor, tf.Tensor, tf.Tensor, bool], tuple[tf.Tensor, tf.Tensor | None]]
"""(rows [B, P], their transpose, columns [C, Q], on the diagonal?) -> the block's share of the sums
of its rows [B, p], and of its columns [q, C] or None.
"""

_ENTRIES = 1e8
"""Matrix entries per chunk: about 0.1 s, the wait after Ctrl-C."""


class Chunk(NamedTuple):
    """Blocks of rows first, ..., last - 1."""

    first: int
    last: int
    entries: int
    device: str | None = None
    """The device; None is the default."""


def split(array: tf.Tensor, size: int, roomy: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
    """Split an array [N, P] into zero-padded blocks; return their number and [blocks, size, P].

    :param roomy: pad to 2^k or 3 2^k blocks, so that few shapes are compiled.
    """
    count = room = -(-tf.shape(array)[0] // size)
    if roomy:
        power = 2 ** (int(count) - 1).bit_length()
        room = 3 * power // 4 if int(count) <= 3 * power // 4 else power
    filled = tf.pad(array, [[0, room * size - tf.shape(array)[0]], [0, 0]])
    return count, tf.reshape(filled, [room, size, array.shape[1]])


def unsplit(blocks: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Return the first `size` rows [size, P] of blocks [blocks, B, P]."""
    return tf.reshape(blocks, [-1, blocks.shape[2]])[:size]


def sweep(
    visit: Visit,
    rows: tf.Tensor,
    columns: tf.Tensor,
    bounds: tuple[tf.Tensor, tf.Tensor, tf.Tensor],
    same: bool,
    widths: tuple[int, int],
    dtype: tf.DType,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Sum over columns [blocks, B, p] and over rows [blocks, C, q], for a range of row blocks.

    :param rows: [blocks, B, P]; `columns` [blocks, C, Q].
    :param bounds: first block of rows, the one after the last, and the number of column blocks.
    :param same: rows and columns are the same points; only blocks with column >= row are visited.
    :param widths: p and q; q = 0 if `visit` gives no sums of columns.
    """
    first, last, total = bounds
    (p, q), (B, C) = widths, (rows.shape[1], columns.shape[1])
    many_rows, many_columns = tf.shape(rows)[0], tf.shape(columns)[0]

    def row_block(index: tf.Tensor, row_sums: tf.TensorArray, *column_sums: tf.Tensor) -> tuple:
        row = rows[index]
        # here, because XLA would fold it into a product, which is slow then
        turned = tf.transpose(row)
        start, total_of_row = tf.zeros([], tf.int32), tf.zeros([B, p], dtype)
        if same:
            start, total_of_row = (
                index + 1,
                tf.cast(visit(row, turned, columns[index], True)[0], dtype),
            )
        parts = [_array(dtype, many_columns, [q, C])] if q else []

        def column_block(at: tf.Tensor, sums: tf.Tensor, *parts: tf.TensorArray) -> tuple:
            to_row, to_column = visit(row, turned, columns[at], False)
            # written once and added up below: XLA copies an array that one loop reads and writes
            return (
                at + 1,
                sums + tf.cast(to_row, dtype),
                *(part.write(at, tf.cast(to_column, dtype)) for part in parts),
            )

        _, total_of_row, *parts = tf.while_loop(
            lambda at, *_: at < total,
            column_block,
            (start, total_of_row, *parts),
            parallel_iterations=1,
        )
        return (
            index + 1,
            row_sums.write(index, total_of_row),
            # the stack of a graph forgets how many it holds, and a loop's state must keep its shape
            *(
                tf.ensure_shape(part.stack(), sums.shape) + sums
                for part, sums in zip(parts, column_sums)
            ),
        )

    zeros = [tf.zeros([many_columns, q, C], dtype)] if q else []
    state = (first, _array(dtype, many_rows, [B, p]), *zeros)
    _, row_sums, *column_sums = tf.while_loop(
        lambda index, *_: index < last, row_block, state, parallel_iterations=1
    )
    other_sums = (
        tf.linalg.matrix_transpose(column_sums[0]) if q else tf.zeros([many_columns, C, 0], dtype)
    )
    return row_sums.stack(), other_sums


def _array(dtype: tf.DType, size: tf.Tensor, shape: list[int]) -> tf.TensorArray:
    return tf.TensorArray(dtype, size, element_shape=shape).unstack(tf.zeros([size, *shape], dtype))


def chunks(
    rows: int,
    columns: int,
    block: tuple[int, int],
    same: bool,
    share: tuple[int, int] | None = None,
) -> list[Chunk]:
    """Cut blocks of rows into chunks of at most about 1e8 entries, at least one block each."""
    begin, end = (0, rows) if share is None else share
    found, first, entries = [], begin, 0
    for index in range(begin, end):
        mine = block[0] * block[1] * (columns - index if same else columns)
        if entries and entries + mine > _ENTRIES:
            found.append(Chunk(first, index, entries))
            first, entries = index, 0
        entries += mine
    return [*found, Chunk(first, end, entries)]


def shares(rows: int, columns: int, same: bool, count: int) -> list[tuple[int, int]]:
    """Split the row blocks into `count` ranges (first, end) with about equal numbers of entries."""
    ends = np.cumsum([0, *(columns - index if same else columns for index in range(rows))])
    bounds = [int(np.argmin(np.abs(ends - ends[-1] * place / count))) for place in range(count + 1)]
    return list(zip(bounds[:-1], bounds[1:]))


def chunks_of(
    group: Group, rows: int, columns: int, block: tuple[int, int], same: bool
) -> list[Chunk]:
    """The `chunks` of this process's replicas, interleaved."""
    if group.replicas == 1:
        return chunks(rows, columns, block, same)
    all_shares = shares(rows, columns, same, group.replicas)
    of_each = [
        [
            chunk._replace(device=device)
            for chunk in chunks(rows, columns, block, same, all_shares[number])
        ]
        for number, device in group.own
    ]
    return [
        chunk for turn in itertools.zip_longest(*of_each) for chunk in turn if chunk is not None
    ]


Sums = tuple[tf.Tensor, tf.Tensor]


def in_chunks(
    run: Callable[[Chunk], Sums],
    parts: list[Chunk],
    progress: Callable[[float], None] | None,
    threads: int,
) -> Sums:
    """Sum `run` over all chunks, in a fixed order.

    :param progress: called after every chunk with the share of entries done.
    :param threads: chunks at a time; an interrupt waits for them.
    """
    whole, done, sums = sum(part.entries for part in parts), 0, None
    for part, found in zip(parts, _results(run, parts, min(threads, len(parts)))):
        sums = found if sums is None else (sums[0] + found[0], sums[1] + found[1])
        done += part.entries
        if progress is not None:
            progress(done / max(whole, 1))
    assert sums is not None
    return sums


def _results(run: Callable[[Chunk], Sums], parts: list[Chunk], threads: int) -> Iterator[Sums]:
    if threads <= 1:
        yield from map(run, parts)
        return
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[Sums]] = deque()
        for part in parts:
            if len(waiting) >= threads:
                yield waiting.popleft().result()
            waiting.append(pool.submit(run, part))
        while waiting:
            yield waiting.popleft().result()


def number_of_threads() -> int:
    """TensorFlow's threads per operation: as configured, from its environment, or all cores."""
    # One where there is a GPU, because one thread feeds it.
    if tf.config.list_logical_devices("GPU"):
        return 1
    configured = tf.config.threading.get_intra_op_parallelism_threads()
    return configured or int(os.environ.get("TF_NUM_INTRAOP_THREADS", 0)) or os.cpu_count() or 1


@functools.cache
def xla_works() -> bool:
    """Return True if this TensorFlow build compiles with XLA on this processor."""
    try:
        tf.function(lambda x: x + 1.0, jit_compile=True, autograph=False)(tf.zeros([]))
    except tf.errors.OpError:  # a build without XLA, or a processor that it does not serve
        return False
    return True


# ---
# Fused blocks for products with the matrix of a smooth stationary kernel.


# `_sums` runs `blocks`' loop over `_block`: by XLA in chunks and threads if eager, else in the
# graph.


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
