"""Functions of rows, by blocks."""

from __future__ import annotations

__all__ = ["map_rows"]

from collections.abc import Callable, Sequence
from typing import TypeVar

import tensorflow as tf

Result = TypeVar("Result")


def map_rows(
    function: Callable[..., Result],
    arrays: Sequence[tf.Tensor],
    size: int,
    signature: object,
    fill: bool = False,
) -> Result:
    """Apply a function of rows by blocks of equal size, the last one padded.

    :param function: of arrays [b, ...]; returns a tensor [b, ...], or a tuple of them.
    :param signature: type or `tf.TensorSpec` of each result.
    :param fill: give all blocks of all calls `size` rows, so that a row's rounding errors do not
        depend on other rows.
    """
    known = None if arrays[0].shape[0] is None else int(arrays[0].shape[0])
    total = tf.shape(arrays[0])[0] if known is None else known
    count = -(-total // size)
    at_least_one = max(count, 1) if known is not None else tf.maximum(count, 1)
    rows_each = size if fill else -(-total // at_least_one)
    rows = tf.minimum(tf.range(count * rows_each), total - 1)
    if known is not None and (tf.executing_eagerly() or count == 1):
        # `map_fn` would rewrite the function's source at every eager call, a second for a kernel
        places = tf.split(rows, count)
        parts = [function(*(tf.gather(array, some) for array in arrays)) for some in places]
        return tf.nest.map_structure(lambda *pieces: tf.concat(pieces, axis=0)[:total], *parts)
    found = tf.map_fn(
        lambda some: function(*(tf.gather(array, some) for array in arrays)),
        tf.reshape(rows, [count, rows_each]),
        fn_output_signature=signature,
        parallel_iterations=1,
    )
    return tf.nest.map_structure(
        lambda part: tf.reshape(part, tf.concat([[-1], tf.shape(part)[2:]], axis=0))[:total], found
    )
