"""The observations of rows, less the mean function."""

from __future__ import annotations

__all__ = ["mean_values", "residuals_of"]

import tensorflow as tf
from gpflow.functions import MeanFunction, Zero


def mean_values(mean_function: MeanFunction, X: tf.Tensor, num_outputs: int) -> tf.Tensor:
    """The mean function [..., P] at inputs X [..., D], which it sees as a matrix."""
    shape = tf.concat([tf.shape(X)[:-1], [num_outputs]], axis=0)
    if isinstance(mean_function, Zero):
        return tf.zeros(shape, X.dtype)
    values = mean_function(tf.reshape(X, [-1, X.shape[-1]]))
    return tf.reshape(tf.broadcast_to(values, [tf.reduce_prod(shape[:-1]), num_outputs]), shape)


def residuals_of(mean_function: MeanFunction, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
    """Y less the mean function, [..., P]; zero where Y is NaN."""
    residuals = Y - mean_values(mean_function, X, int(Y.shape[-1]))
    return tf.where(tf.math.is_nan(Y), tf.zeros_like(Y), residuals)
