"""Sums over the blocks of an N x M matrix that is never stored."""

# `sweep` is one loop for TensorFlow's runtime and XLA, compiled once for all chunks of `in_chunks`:
# 0.1 s each, for interrupts and progress.

from __future__ import annotations

__all__ = [
    "Chunk", "Visit", "chunks", "chunks_of", "in_chunks", "number_of_threads", "shares", "split",
    "sweep", "unsplit", "xla_works",
]  # fmt: skip

import functools
import itertools
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ..replicas import Group

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
