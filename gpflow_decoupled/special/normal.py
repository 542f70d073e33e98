"""The normal cdf, accurate in its tails."""

from __future__ import annotations

__all__ = ["inverse_mills", "log_normal_cdf", "normal_cdf"]

import numpy as np
import tensorflow as tf

from ..probability import tfp

_SQRT_2, _SQRT_2_PI = np.sqrt(2.0), np.sqrt(2.0 * np.pi)


def normal_cdf(x: tf.Tensor) -> tf.Tensor:
    """Return Phi(x), of the shape of x, accurate in the lower tail.

    Equal to `tfd.Normal(0, 1).cdf(x)`, which evaluates three error functions to select one.
    """
    return 0.5 * tf.math.erfc(-x / _SQRT_2)


def log_normal_cdf(u: tf.Tensor) -> tf.Tensor:
    """Return log Phi(u), of the shape of u; relative error 5e-15 (1e-6 in single precision).

    `tfd.Normal(0, 1).log_cdf(u)` has relative errors of 1e-8 at u = 5.75 (0.04 at u = 5 in single
    precision), and of 8e-11 in the gradient at u = -20.
    """
    left = tf.math.log(0.5 * _scaled_erfc(u)) - 0.5 * tf.square(u)
    return tf.where(u < 0.0, left, tf.math.log1p(-0.5 * tf.math.erfc(tf.maximum(u, 0.0) / _SQRT_2)))


def inverse_mills(u: tf.Tensor) -> tf.Tensor:
    """Return phi(u) / Phi(u), the derivative of log Phi, of the shape of u."""
    right = tf.maximum(u, 0.0)
    density = tf.exp(-0.5 * tf.square(right)) / _SQRT_2_PI
    return tf.where(u < 0.0, np.sqrt(2.0 / np.pi) / _scaled_erfc(u), density / normal_cdf(right))


def _scaled_erfc(u: tf.Tensor) -> tf.Tensor:
    return tfp.math.erfcx(-tf.minimum(u, 0.0) / _SQRT_2)
