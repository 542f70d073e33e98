"""GPflow's smooth stationary kernels as functions of the squared distance."""

# k = variance f(r2) with r2 = |x - z|^2 of scaled inputs.
#
# | kernel | k / variance | (dk/dr2) / variance |
# |---|---|---|
# | SquaredExponential | e^(-r2/2) | -1/2 e^(-r2/2) |
# | Matern32, s = sqrt(3 r2) | (1 + s) e^-s | -3/2 e^-s |
# | Matern52, s = sqrt(5 r2) | (1 + s + s^2/3) e^-s | -5/6 (1 + s) e^-s |
#
# Matern12 has none: its slope at zero depends on rounding of distances.

from __future__ import annotations

__all__ = ["PROFILES", "Profile", "augmented_columns", "augmented_rows"]

from collections.abc import Callable

import tensorflow as tf
from gpflow.kernels import Matern32, Matern52, SquaredExponential

Profile = Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
"""(squared distances [M, N], variance []) -> k and dk/dr2, both [M, N]."""


def augmented_rows(left: tf.Tensor) -> tf.Tensor:
    """(-2 a, |a|^2, 1) [M, D + 2] for a [M, D]; times `augmented_columns` it gives |a - b|^2."""
    norm = tf.reduce_sum(tf.square(left), axis=-1, keepdims=True)
    return tf.concat([-2.0 * left, norm, tf.ones_like(norm)], axis=1)


def augmented_columns(right: tf.Tensor) -> tf.Tensor:
    """(b, 1, |b|^2) [N, D + 2] for inputs b [N, D]; see `augmented_rows`."""
    norm = tf.reduce_sum(tf.square(right), axis=-1, keepdims=True)
    return tf.concat([right, tf.ones_like(norm), norm], axis=1)


def _squared_exponential(squares: tf.Tensor, variance: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    values = variance * tf.exp(-0.5 * squares)
    return values, -0.5 * values


def _matern32(squares: tf.Tensor, variance: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    distance = tf.sqrt(3.0 * squares)
    decay = variance * tf.exp(-distance)
    return (1.0 + distance) * decay, -1.5 * decay


def _matern52(squares: tf.Tensor, variance: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    distance = tf.sqrt(5.0 * squares)
    decay = variance * tf.exp(-distance)
    linear = (1.0 + distance) * decay
    return linear + (5.0 / 3.0) * squares * decay, (-5.0 / 6.0) * linear


PROFILES: dict[type, Profile] = {
    SquaredExponential: _squared_exponential,
    Matern32: _matern32,
    Matern52: _matern52,
}
"""The kernels of the table. Subclasses are not looked up: they may override the kernel."""
