"""Functions of psi', the derivative of digamma, that the gamma and Dirichlet families share,
without cancellation.
"""

from __future__ import annotations

__all__ = ["gamma_shape", "trigamma", "trigamma_defect", "trigamma_excess"]

import tensorflow as tf

_SERIES = (1 / 2, 1 / 6, 0.0, -1 / 30, 0.0, 1 / 42, 0.0, -1 / 30, 0.0, 5 / 66)
"""x psi'(x) - 1 in powers of 1 / x"""
_LARGE = 30.0
"""Above it the series is exact in double precision"""
_NEWTON = 8


def trigamma(x: tf.Tensor) -> tf.Tensor:
    """psi'(x), of the shape of x: `tf.math.polygamma` with its order as a tensor, which it
    wants.
    """
    return tf.math.polygamma(tf.ones_like(x), x)


def trigamma_excess(x: tf.Tensor) -> tf.Tensor:
    """x psi'(x) - 1 > 0, of the shape of x.

    It is about 1 / (2 x) for large x, where the difference would have lost its digits: all but
    eight of them at x = 1e8.
    """
    large = x > _LARGE
    inverse = 1.0 / tf.where(large, x, _LARGE * tf.ones_like(x))
    series = tf.zeros_like(x)
    for coefficient in reversed(_SERIES):
        series = (series + coefficient) * inverse
    near = tf.where(large, tf.ones_like(x), x)
    return tf.where(large, series, near * trigamma(near) - 1.0)


def trigamma_defect(x: tf.Tensor) -> tf.Tensor:
    """x - 1 / psi'(x), between 0 and 1/2, of the shape of x."""
    excess = trigamma_excess(x)
    return x * excess / (1.0 + excess)


def gamma_shape(gap: tf.Tensor) -> tf.Tensor:
    """The x with log x - psi(x) = gap > 0, of the shape of gap: the shape of the gamma distribution
    with these moments.

    By Newton's method in 1 / x from Minka's approximation, eight steps; a bracketing root finder
    would need twenty and a bracket.
    """
    start = (3.0 - gap + tf.sqrt(tf.square(gap - 3.0) + 24.0 * gap)) / (12.0 * gap)

    def step(x: tf.Tensor) -> tf.Tensor:
        residual = tf.math.log(x) - tf.math.digamma(x) - gap
        return 1.0 / (1.0 / x - residual / (x * trigamma_excess(x)))

    for _ in range(_NEWTON):
        start = step(start)
    return start
