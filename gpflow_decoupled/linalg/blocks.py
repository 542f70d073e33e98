"""Functions of rows, evaluated by blocks of rows."""

from __future__ import annotations

__all__ = ["map_rows"]

from collections.abc import Callable, Sequence
from typing import TypeVar

import tensorflow as tf

Result = TypeVar("Result")


def map_rows(
    function: Callable[..., Result], arrays: Sequence[tf.Tensor], size: int, signature: object
) -> Result:
    """A function of rows, by blocks of the same number of rows each.

    The last block is filled up with copies of the last row. The result for one row is therefore the
    same number whatever the other rows are, as far as the function treats all rows alike.

    :param function: of arrays [size, ...]; returns a tensor [size, ...], or a tuple of them.
    :param arrays: [B, ...] each, with B of at least 1.
    :param size: rows of a block.
    :param signature: the type of each result, or a `tf.TensorSpec`, in the structure of the result.
    :return: the results, [B, ...] each. Memory: that of one block, where nothing is differentiated.

    Example::

        squares = map_rows(lambda x: x**2, (tf.range(10),), 4, tf.int32)
    """
    total = tf.shape(arrays[0])[0]
    count = -(-total // size)
    rows = tf.minimum(tf.range(count * size), total - 1)
    known = arrays[0].shape[0]
    if tf.executing_eagerly() or (known is not None and known <= size):
        # `map_fn` would rewrite the function's source at every eager call, a second for a kernel
        blocks = range(int(count) if tf.executing_eagerly() else 1)
        parts = [
            function(*(tf.gather(array, rows[k * size : (k + 1) * size]) for array in arrays))
            for k in blocks
        ]
        return tf.nest.map_structure(lambda *pieces: tf.concat(pieces, axis=0)[:total], *parts)
    found = tf.map_fn(
        lambda places: function(*(tf.gather(array, places) for array in arrays)),
        tf.reshape(rows, [count, size]),
        fn_output_signature=signature,
        parallel_iterations=1,
    )
    return tf.nest.map_structure(
        lambda part: tf.reshape(part, tf.concat([[-1], tf.shape(part)[2:]], axis=0))[:total], found
    )
