"""What a training step needs that runs on several replicas, each with its own rows of the batch.

A sum over the rows of a batch is a sum of what the replicas have, so that each of them adds up its
own rows and `total` adds the replicas. What does not depend on the data, as a KL divergence, is the
same on each and enters as a `share`. Messages are counted when a step is traced, because a graph
sends them in each run.
"""

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
import tensorflow_probability as tfp

_watching: list[list[Message]] = []
"""The lists that `counted` has handed out, as long as its blocks run."""


class Message(NamedTuple):
    """One sum over all replicas.

    With R replicas in a ring each of them sends 2 (R - 1) / R times its size.
    """

    replica: int
    """The number of the replica that has traced it; each replica traces all of its own."""
    size: int
    """Bytes that a replica puts in; -1 where a `Group` is traced for messages of any size, which
    are counted no more, except for those of `Group.summed`, each of which is counted with its
    size."""


def count() -> int:
    """How many replicas run this code, each on its own rows: 1 outside of `strategy.run`."""
    context = tf.distribute.get_replica_context()
    return 1 if context is None else int(context.num_replicas_in_sync)


def rank() -> int:
    """The number of this replica, 0, 1, ...; 0 outside of `strategy.run`."""
    context = tf.distribute.get_replica_context()
    if context is None or count() == 1:
        return 0
    return int(
        tf.get_static_value(context.replica_id_in_sync_group)
    )  # in a graph it is a constant tensor


def share(value: tf.Tensor) -> tf.Tensor:
    """What each replica adds of a value that all of them have, of any shape [...], so that it is
    counted once.
    """
    return value if count() == 1 else value / count()


def fold_in_rank(seed: tf.Tensor) -> tf.Tensor:
    """The stateless seed [2] of random numbers that each replica has its own of."""
    return seed if count() == 1 else tf.random.experimental.stateless_fold_in(seed, rank())


def total(parts: Sequence[tf.Tensor], symmetric: Collection[int] = ()) -> list[tf.Tensor]:
    """Each tensor summed over the replicas, all in one message; with one replica the tensors
    themselves.

    Not inside of a loop or a branch of a graph, where TensorFlow cannot sum over replicas.

    :param parts: tensors of one type and any shapes [...].
    :param symmetric: places in `parts` of symmetric matrices [..., M, M], of which one triangle is
        sent.
    :return: the sums, with the shapes of `parts`, the same on all replicas to the last bit.

    Example::

        bound, precision = total([bound, precision], symmetric=[1])
    """
    if count() == 1 or not parts:
        return list(parts)
    tensors = [
        tf.convert_to_tensor(part) for part in parts
    ]  # gradients of gathered rows are sparse
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
    """Whether all replicas are well, and a number summed over them, in one message.

    :param ok: [], bool, of this replica.
    :param number: [], int, of this replica.
    """
    if count() == 1:
        return ok, number
    votes, summed = total(
        [tf.cast(ok, tf.float64), tf.cast(number, tf.float64)]
    )  # GPUs sum floating-point numbers alone
    return tf.equal(votes, tf.cast(count(), tf.float64)), tf.cast(summed, number.dtype)


def of_first(tensor: tf.Tensor) -> tf.Tensor:
    """The integers [...] that the first replica has, on all of them."""
    if count() == 1:
        return tensor
    (sent,) = total([tf.cast(tensor if rank() == 0 else tf.zeros_like(tensor), tf.float64)])
    return tf.cast(sent, tensor.dtype)


def note_message(replica: int, size: int) -> None:
    """Let `counted` know of a message of so many bytes of one replica."""
    for messages in _watching:
        messages.append(Message(replica, size))


@contextmanager
def counted() -> Iterator[list[Message]]:
    """The messages of all that is traced in this block, or runs eagerly in it, by every replica of
    this process.

    Example::

        with counted() as messages:
            fit(model, (X, Y), steps=1, strategy=strategy)
        print(len([one for one in messages if one.replica == 0]))
    """
    messages: list[Message] = []
    _watching.append(messages)
    try:
        yield messages
    finally:
        _watching[:] = [other for other in _watching if other is not messages]


def _triangle(matrix: tf.Tensor) -> tf.Tensor:
    """The lower triangles of [..., M, M] as vectors [..., M (M + 1) / 2]."""
    return tfp.math.fill_triangular_inverse(
        tf.linalg.band_part(matrix, -1, 0)
    )  # it wants zeros above


def _matrix(triangle: tf.Tensor) -> tf.Tensor:
    """Symmetric matrices [..., M, M] from their lower triangles [..., M (M + 1) / 2]."""
    lower = tfp.math.fill_triangular(triangle)
    above = tf.linalg.set_diag(lower, tf.zeros_like(tf.linalg.diag_part(lower)))
    return lower + tf.linalg.matrix_transpose(above)
