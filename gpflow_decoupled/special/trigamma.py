"""Functions of psi' without cancellation."""

from __future__ import annotations

__all__ = ["gamma_shape", "trigamma", "trigamma_defect", "trigamma_excess"]

import tensorflow as tf

_SERIES = (1 / 2, 1 / 6, 0.0, -1 / 30, 0.0, 1 / 42, 0.0, -1 / 30, 0.0, 5 / 66)
"""x psi'(x) - 1 in powers of 1 / x."""
_LARGE = 30.0
"""From here on the series is exact in double precision."""
_NEWTON = 8  # steps from Minka's approximation, to all digits


def trigamma(x: tf.Tensor) -> tf.Tensor:
    """Return psi'(x), of the shape of x."""
    return tf.math.polygamma(tf.ones_like(x), x)


def trigamma_excess(x: tf.Tensor) -> tf.Tensor:
    """Return x psi'(x) - 1 > 0, of the shape of x.

    It tends to 1 / (2 x); the plain difference keeps eight digits at x = 1e8.
    """
    large = x > _LARGE
    inverse = 1.0 / tf.where(large, x, _LARGE * tf.ones_like(x))
    series = tf.zeros_like(x)
    for coefficient in reversed(_SERIES):
        series = (series + coefficient) * inverse
    near = tf.where(large, tf.ones_like(x), x)
    return tf.where(large, series, near * trigamma(near) - 1.0)


def trigamma_defect(x: tf.Tensor) -> tf.Tensor:
    """Return x - 1 / psi'(x), in (0, 1/2), of the shape of x."""
    excess = trigamma_excess(x)
    return x * excess / (1.0 + excess)


def gamma_shape(gap: tf.Tensor) -> tf.Tensor:
    """Solve log x - psi(x) = gap > 0 for the shape x of a gamma distribution; x as `gap`.

    Eight Newton steps in 1 / x from Minka's approximation; a bracketing solver needs twenty.
    """
    start = (3.0 - gap + tf.sqrt(tf.square(gap - 3.0) + 24.0 * gap)) / (12.0 * gap)

    def step(x: tf.Tensor) -> tf.Tensor:
        residual = tf.math.log(x) - tf.math.digamma(x) - gap
        return 1.0 / (1.0 / x - residual / (x * trigamma_excess(x)))

    for _ in range(_NEWTON):
        start = step(start)
    return start
