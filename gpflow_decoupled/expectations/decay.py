"""Grid sums that end too early."""

from __future__ import annotations

__all__ = ["where_decayed"]

import tensorflow as tf

_END = 64
"""The outermost cells are one in 64 on each side."""


def where_decayed(value: tf.Tensor, terms: tf.Tensor, otherwise: float) -> tf.Tensor:
    """Return sums `value` [...] of `terms` [..., K], or `otherwise` if the ends hold much of it."""
    # Such a sum continues beyond the grid. The limit is 1e-3 in single precision.
    limit = 1e-5 if terms.dtype == tf.float64 else 1e-3
    size = tf.abs(tf.stop_gradient(terms))
    cells = max(int(terms.shape[-1]) // _END, 1)
    ends = tf.reduce_sum(size[..., :cells], axis=-1) + tf.reduce_sum(size[..., -cells:], axis=-1)
    good = ends <= limit * (1.0 + tf.reduce_sum(size, axis=-1))
    return tf.where(good, value, tf.constant(otherwise, value.dtype))
