"""x / sinh x, the logistic's characteristic function."""

from __future__ import annotations

__all__ = ["x_over_sinh", "x_over_sinh_and_rest"]

import tensorflow as tf

_SMALL = 0.1  # below it, a series
_SERIES = [1 / 6, -7 / 360, 31 / 15120, -127 / 604800, 73 / 3421440]
"""(1 - x / sinh x) / x^2 in powers of x^2, for |x| < 0.1."""


def x_over_sinh(x: tf.Tensor) -> tf.Tensor:
    """Return x / sinh x, of the shape of x; 1 at zero.

    `x / tf.sinh(x)` is NaN at zero, and its gradient is NaN beyond |x| = 710.
    """
    return x_over_sinh_and_rest(x)[0]


def x_over_sinh_and_rest(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """k = x / sinh x and (1 - k) / x^2 (1/6 at zero), of the shape of x, without cancellation."""
    small = tf.abs(x) < _SMALL
    # each branch has its argument, harmless where the other is taken, for the sake of gradients
    safe = tf.where(small, tf.ones_like(x), tf.abs(x))
    decay = tf.exp(-safe)
    far = 2.0 * safe * decay / (1.0 - tf.square(decay))
    square = tf.square(tf.where(small, x, tf.zeros_like(x)))
    series = tf.zeros_like(x)
    for coefficient in reversed(_SERIES):
        series = series * square + coefficient
    return tf.where(small, 1.0 - square * series, far), tf.where(
        small, series, (1.0 - far) / tf.square(safe)
    )
