"""Sums inside a training step that several replicas run on their rows of the batch."""

# `total` adds the replicas' sums; a term without data, such as a KL divergence, enters as a
# `share`.

from __future__ import annotations

__all__ = [
    "Message",
    "agreed",
    "count",
    "counted",
    "fold_in_rank",
    "note_message",
    "of_first",
    "rank",
    "share",
    "total",
]

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import tensorflow as tf

from ..probability import tfp

_watching: list[list[Message]] = []
"""Lists handed out by `counted` whose blocks still run."""


class Message(NamedTuple):
    """One sum over all replicas; in a ring of R each sends 2 (R - 1) / R times its size."""

    replica: int
    """The replica that traced it."""
    size: int
    """Bytes that a replica puts in; -1 for a `Group` traced for any size, whose messages are
    counted by `Group.summed` only.
    """


def count() -> int:
    """The number of replicas that run this code; 1 outside of `strategy.run`."""
    context = tf.distribute.get_replica_context()
    return 1 if context is None else int(context.num_replicas_in_sync)


def rank() -> int:
    """The number of this replica, 0, 1, ...; 0 outside of `strategy.run`."""
    context = tf.distribute.get_replica_context()
    if context is None or count() == 1:
        return 0
    # in a graph it is a constant tensor
    return int(tf.get_static_value(context.replica_id_in_sync_group))


def share(value: tf.Tensor) -> tf.Tensor:
    """A replica's share of a value [...] that all have, so that it is counted once."""
    return value if count() == 1 else value / count()


def fold_in_rank(seed: tf.Tensor) -> tf.Tensor:
    """Return the stateless seed [2] of this replica."""
    return seed if count() == 1 else tf.random.experimental.stateless_fold_in(seed, rank())


def total(parts: Sequence[tf.Tensor], symmetric: Collection[int] = ()) -> list[tf.Tensor]:
    """Sum each tensor over the replicas in one message; a single replica returns them unchanged.

    Not inside a loop or branch of a graph, where TensorFlow cannot sum over replicas.

    :param parts: tensors of one type and any shapes [...].
    :param symmetric: places of symmetric matrices [..., M, M] in `parts`; one triangle is sent.
    """
    if count() == 1 or not parts:
        return list(parts)
    # gradients of gathered rows are sparse
    tensors = [tf.convert_to_tensor(part) for part in parts]
    sent = [_triangle(part) if place in symmetric else part for place, part in enumerate(tensors)]
    flat = tf.concat([tf.reshape(part, [-1]) for part in sent], axis=0)
    size = -1 if flat.shape[0] is None else flat.dtype.size * int(flat.shape[0])
    note_message(rank(), size)
    summed = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, flat)
    pieces = tf.split(summed, [tf.size(part) for part in sent], num=len(sent))
    shapes = [part.shape if part.shape.is_fully_defined() else tf.shape(part) for part in sent]
    shaped = [tf.reshape(piece, shape) for piece, shape in zip(pieces, shapes)]
    return [_matrix(part) if place in symmetric else part for place, part in enumerate(shaped)]


def agreed(ok: tf.Tensor, number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return whether all replicas are `ok`, and the sum of a number; one message.

    :param ok: [], bool, of this replica.
    :param number: [], int, of this replica.
    """
    if count() == 1:
        return ok, number
    # GPUs sum floating-point numbers alone
    votes, summed = total([tf.cast(ok, tf.float64), tf.cast(number, tf.float64)])
    return tf.equal(votes, tf.cast(count(), tf.float64)), tf.cast(summed, number.dtype)


def of_first(tensor: tf.Tensor) -> tf.Tensor:
    """The first replica's integers [...], on all replicas."""
    if count() == 1:
        return tensor
    (sent,) = total([tf.cast(tensor if rank() == 0 else tf.zeros_like(tensor), tf.float64)])
    return tf.cast(sent, tensor.dtype)


def note_message(replica: int, size: int) -> None:
    """Record a replica's message of `size` bytes for `counted`."""
    for messages in _watching:
        messages.append(Message(replica, size))


@contextmanager
def counted() -> Iterator[list[Message]]:
    """Collect the messages traced or sent eagerly in this block by this process's replicas."""
    messages: list[Message] = []
    _watching.append(messages)
    try:
        yield messages
    finally:
        _watching[:] = [other for other in _watching if other is not messages]


def _triangle(matrix: tf.Tensor) -> tf.Tensor:
    # it wants zeros above
    return tfp.math.fill_triangular_inverse(tf.linalg.band_part(matrix, -1, 0))


def _matrix(triangle: tf.Tensor) -> tf.Tensor:
    lower = tfp.math.fill_triangular(triangle)
    above = tf.linalg.set_diag(lower, tf.zeros_like(tf.linalg.diag_part(lower)))
    return lower + tf.linalg.matrix_transpose(above)
