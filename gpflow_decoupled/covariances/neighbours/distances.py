"""The nearest of some rows by differences of inputs."""

from __future__ import annotations

__all__ = ["NOBODY", "SPARE", "best", "by_differences", "slack", "squares", "within"]

import numpy as np
import tensorflow as tf

NOBODY = -1
"""Stands for a neighbour that does not exist."""
SPARE = 8
"""Rows that are found beyond those asked for, from which differences choose."""


def squares(points: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Squared distances [B, n] of rows [B, D] to points [n, D] or [B, n, D], by differences."""
    return tf.reduce_sum(tf.square(points - rows[:, None]), axis=-1)


def slack(dtype: tf.DType, columns: int) -> float:
    """A bound of the error of |a|^2 + |b|^2 - 2 a^T b, in units of |a|^2 + |b|^2."""
    # half of eps for each of D sums and products, for inputs rounded to this dtype, and for sums
    return float((2 * columns + 16) * np.finfo(dtype.as_numpy_dtype).eps)


def by_differences(
    points: tf.Tensor, rows: tf.Tensor, kept: tf.Tensor, count: int, limits: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The nearest of the `kept` points [B, n], the first of equals, and the square of the last."""
    kept = tf.sort(kept, axis=1)
    found, closeness = best(-squares(tf.gather(points, kept), rows), kept, count, limits)
    return found, -closeness[:, -1]


def within(closeness: tf.Tensor, limits: tf.Tensor) -> tf.Tensor:
    """Closeness [B, N] of rows 0 to limit - 1 of each query; minus infinity beyond."""
    columns = tf.range(tf.shape(closeness)[1])
    least = tf.constant(-np.inf, closeness.dtype)
    return tf.where(columns < limits[:, None], closeness, least)


def best(
    closeness: tf.Tensor, rows: tf.Tensor, count: int, limits: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The best `count` of rows [B, n], the first of equals, and their closeness [B, m]."""
    there = rows < limits[:, None]
    closeness = tf.where(there, closeness, tf.constant(-np.inf, closeness.dtype))
    closeness, order = tf.math.top_k(closeness, count)
    return tf.gather(tf.where(there, rows, NOBODY), order, batch_dims=1), closeness
