"""Hermite interpolation on a regular grid."""

from __future__ import annotations

__all__ = ["hermite_lookup"]

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

_CUBIC = [[1, 0, -3, 2], [0, 1, -2, 1], [0, 0, 3, -2], [0, 0, -1, 1]]
"""Rows: polynomials of value and slope at the left end, then the right; columns: powers of t."""
_QUINTIC = [
    [1, 0, 0, -10, 15, -6],
    [0, 1, 0, -6, 8, -3],
    [0, 0, 0.5, -1.5, 1.5, -0.5],
    [0, 0, 0, 10, -15, 6],
    [0, 0, 0, -4, 7, -3],
    [0, 0, 0, 0.5, -1, 0.5],
]
"""Rows: value, slope and curvature at the left end, then at the right end."""


def hermite_lookup(tables: Sequence[tf.Tensor], step: float, x: tf.Tensor) -> tf.Tensor:
    """Interpolate f from f, f' and perhaps f'' on the grid 0, step, ..., (J - 1) step.

    The error is step^4 / 384 of the fourth derivative with two tables, step^6 / 46080 of the sixth
    with three; `tfp.math.interp_regular_1d_grid` is linear: step^2 / 8 of the second.
    Differentiable in x and the tables.

    :param tables: f, f' and optionally f'' on the grid, [..., J] each.
    :param x: [...], broadcasts with the leading axes of the tables; clipped to the grid.
    """
    cells = tf.stack([table * step**order for order, table in enumerate(tables)], axis=-1)
    polynomials = np.array(_CUBIC if len(tables) == 2 else _QUINTIC)
    J = tables[0].shape[-1]
    ends = tf.concat([cells[..., :-1, :], cells[..., 1:, :]], axis=-1)
    # The powers of every cell, so that x costs a single gather. Of rank 2, because TensorFlow's
    # float32 product of a tensor of rank 4 and a broadcast matrix writes out of bounds (issues
    # 117700 and 123109).
    rows = tf.reshape(ends, [-1, polynomials.shape[0]])
    powers = tf.matmul(rows, tf.constant(polynomials, x.dtype))
    place = tf.clip_by_value(x / step, 0.0, J - 1.0)
    cell = tf.minimum(tf.cast(place, tf.int32), J - 2)
    t = place - tf.cast(cell, x.dtype)
    lead = tf.shape(tables[0])[:-1]
    index = tf.reshape((J - 1) * tf.range(tf.reduce_prod(lead)), lead) + cell
    parts = tf.unstack(tf.gather(powers, index), axis=-1)
    value = parts[-1]
    for part in reversed(parts[:-1]):
        value = value * t + part
    return value
