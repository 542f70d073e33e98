"""Lookup of smooth functions in tables on a regular grid, by cubic or quintic Hermite
interpolation.
"""

from __future__ import annotations

__all__ = ["hermite_lookup"]

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

_CUBIC = [[1, 0, -3, 2], [0, 1, -2, 1], [0, 0, 3, -2], [0, 0, -1, 1]]
"""Rows: the polynomials of value and slope at the left end of a cell, then at its right end;
columns: powers of the place t
"""
_QUINTIC = [
    [1, 0, 0, -10, 15, -6],
    [0, 1, 0, -6, 8, -3],
    [0, 0, 0.5, -1.5, 1.5, -0.5],
    [0, 0, 0, 10, -15, 6],
    [0, 0, 0, -4, 7, -3],
    [0, 0, 0, 0.5, -1, 0.5],
]
"""The same with second derivatives: of value, slope and curvature at the left end, then at the
right end
"""


def hermite_lookup(tables: Sequence[tf.Tensor], step: float, x: tf.Tensor) -> tf.Tensor:
    """f(x) by interpolation of values, first and perhaps second derivatives of f at 0, step, ...,
    (J - 1) step.

    Not `tfp.math.interp_regular_1d_grid`, which interpolates linearly: the error would be step^2 /
    8 of the second derivative in the place of step^4 / 384 of the fourth, or step^6 / 46080 of the
    sixth.

    :param tables: f, f' and, for the smaller error, f'' at the grid [..., J].
    :param step: the distance of neighbours in the grid.
    :param x: [...]; the leading axes of the tables broadcast with it. It is clipped to the grid.
    :return: f(x), of the shape of x; differentiable in x and in the tables.
    """
    cells = tf.stack([table * step**order for order, table in enumerate(tables)], axis=-1)
    polynomials = np.array(_CUBIC if len(tables) == 2 else _QUINTIC)
    J = tables[0].shape[-1]
    ends = tf.concat([cells[..., :-1, :], cells[..., 1:, :]], axis=-1)
    powers = tf.matmul(
        ends, tf.constant(polynomials, x.dtype)
    )  # of every cell, so that x costs a single gather
    place = tf.clip_by_value(x / step, 0.0, J - 1.0)
    cell = tf.minimum(tf.cast(place, tf.int32), J - 2)
    t = place - tf.cast(cell, x.dtype)
    lead = tf.shape(tables[0])[:-1]
    index = tf.reshape((J - 1) * tf.range(tf.reduce_prod(lead)), lead) + cell
    parts = tf.unstack(tf.gather(tf.reshape(powers, [-1, polynomials.shape[1]]), index), axis=-1)
    value = parts[-1]
    for part in reversed(parts[:-1]):
        value = value * t + part
    return value
