"""Functions of the normal distribution with all digits in its tails."""

from __future__ import annotations

__all__ = ["inverse_mills", "log_normal_cdf"]

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

_SQRT_2, _SQRT_2_PI = np.sqrt(2.0), np.sqrt(2.0 * np.pi)


def log_normal_cdf(u: tf.Tensor) -> tf.Tensor:
    """The log of Phi(u), of the shape of u [...]."""
    left = tf.math.log(0.5 * _scaled_erfc(u)) - 0.5 * tf.square(u)
    return tf.where(u < 0.0, left, tf.math.log1p(-0.5 * tf.math.erfc(tf.maximum(u, 0.0) / _SQRT_2)))


def inverse_mills(u: tf.Tensor) -> tf.Tensor:
    """phi(u) / Phi(u), of the shape of u [...]: the derivative of log Phi."""
    right = tf.maximum(u, 0.0)
    density = tf.exp(-0.5 * tf.square(right)) / _SQRT_2_PI
    return tf.where(u < 0.0, np.sqrt(2.0 / np.pi) / _scaled_erfc(u), density / (0.5 * tf.math.erfc(-right / _SQRT_2)))


def _scaled_erfc(u: tf.Tensor) -> tf.Tensor:
    """2 Phi(u) e^(u^2 / 2) for u <= 0, and 1 above."""
    return tfp.math.erfcx(-tf.minimum(u, 0.0) / _SQRT_2)
