"""The observations of rows, less the mean function."""

from __future__ import annotations

__all__ = ["mean_values", "observed_at", "residuals_of"]

import tensorflow as tf
from gpflow.functions import MeanFunction, Zero
from gpflow.likelihoods import Gaussian

from .conditionals import Observations
from .groups import Group, noise_of_group, noise_variances


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


def observed_at(
    group: Group,
    data: tuple[tf.Tensor, tf.Tensor],
    parts: tuple[MeanFunction, Gaussian],
    rows: tf.Tensor,
) -> Observations:
    """Observations of a group of outputs at rows of the data [...]; no pass over all rows.

    :param data: X [N, D] and Y [N, P], NaN where missing.
    :param parts: the mean function and the likelihood.
    """
    X, Y = (tf.gather(array, rows) for array in data)
    residuals = tf.gather(residuals_of(parts[0], X, Y), group.columns, axis=-1)
    return Observations(X, residuals, noise_of_group(noise_variances(parts[1], X, rows), group))
