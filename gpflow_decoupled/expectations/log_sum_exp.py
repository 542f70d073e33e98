"""An upper bound of E log sum_k exp(f_k) for independent f_k ~ N(m_k, v_k)."""

# For any a [C], Knowles & Minka (NIPS 2011), the diagonal case of (T5):
#
#   E lse(f) <= 1/2 sum_k a_k^2 v_k + lse(t),   t_k = m_k + (1 - 2 a_k) v_k / 2        (V33)
#
# The best a is the softmax of its t: w_k = v_k a_k is Wright's omega function of log v_k + m_k
# + v_k / 2 - A, where A, the root of a decreasing convex function, makes the a_k sum to one.

from __future__ import annotations

__all__ = ["best_tilt", "tilted_bound"]

import numpy as np
import tensorflow as tf

_MOST_STEPS = 100
"""Newton steps for A: four to eight for similar variances, some twenty if they differ by 1e4."""
_ACCURATE = 64.0
"""Tolerance of sum a = 1, in machine epsilons."""
_LEAST_VARIANCE = 1e-8
"""Below, the tilt is the softmax of the means to all digits."""
_FARTHEST = -80.0
"""Below, omega(y) = e^y is negligible, but still a number in single precision."""


def tilted_bound(mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """Return the bound [...] on E log sum_k exp(f_k) in nats, for m, v [..., C].

    Derivatives are at fixed a, exact for the best a.
    """
    a = best_tilt(mean, variance)
    t = mean + (0.5 - a) * variance
    # (V33)
    return 0.5 * tf.reduce_sum(tf.square(a) * variance, axis=-1) + tf.reduce_logsumexp(t, axis=-1)


def best_tilt(mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """Return the a [..., C] of the lowest bound for m, v [..., C]; no gradient."""
    # Newton's method for A from max_k (m_k - v_k / 2), where no step overshoots.
    mean, variance = tf.stop_gradient(mean), tf.stop_gradient(variance)
    v = tf.maximum(variance, tf.constant(_LEAST_VARIANCE, variance.dtype))
    shifted = mean + 0.5 * v + tf.math.log(v)
    accuracy = _ACCURATE * float(np.finfo(mean.dtype.as_numpy_dtype).eps)

    def step(A: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        w = _omega(shifted - A)
        a = w / v
        excess = tf.reduce_sum(a, axis=-1, keepdims=True) - 1.0
        move = excess / tf.reduce_sum(a / (1.0 + w), axis=-1, keepdims=True)
        # a row that has converged stays, so that it does not depend on the rows beside it
        return tf.where(excess > accuracy, A + move, A), excess

    first = tf.reduce_max(mean - 0.5 * v, axis=-1, keepdims=True)
    A, _ = tf.while_loop(
        lambda _, excess: tf.reduce_any(excess > accuracy),
        step,
        (first, tf.fill(tf.shape(first), tf.constant(np.inf, mean.dtype))),
        maximum_iterations=_MOST_STEPS,
    )
    a = _omega(shifted - A) / v
    return a / tf.reduce_sum(a, axis=-1, keepdims=True)


def _omega(y: tf.Tensor) -> tf.Tensor:
    """Solve w + log w = y by two fourth-order steps (Fritsch, Shafer & Crowley 1973)."""
    y = tf.maximum(y, tf.constant(_FARTHEST, y.dtype))
    w = tf.nn.softplus(y)  # within 40 %
    for _ in range(2):
        r, p = y - w - tf.math.log(w), w + 1.0
        q = p * (p + 2.0 * r / 3.0)
        w *= 1.0 + r / p * (q - 0.5 * r) / (q - r)
    return w
