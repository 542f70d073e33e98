"""Dirichlet parameters c [..., K] and e = E log theta, and the Fisher matrix between them: for Dirichlet and Beta."""

from __future__ import annotations

__all__ = ["dirichlet_fisher_solve", "dirichlet_from_log_mean", "dirichlet_log_mean", "dirichlet_log_partition"]

import tensorflow as tf

from ...special.trigamma import trigamma, trigamma_defect

_NEWTON = 60


def dirichlet_log_partition(c: tf.Tensor) -> tf.Tensor:
    """A [...] = sum log Gamma(c_k) - log Gamma(c_0)."""
    return tf.reduce_sum(tf.math.lgamma(c), axis=-1) - tf.math.lgamma(tf.reduce_sum(c, axis=-1))


def dirichlet_log_mean(c: tf.Tensor) -> tf.Tensor:
    """E log theta [..., K] = psi(c) - psi(c_0)."""
    return tf.math.digamma(c) - tf.math.digamma(tf.reduce_sum(c, axis=-1, keepdims=True))


def dirichlet_fisher_solve(c: tf.Tensor, g: tf.Tensor) -> tf.Tensor:
    """I(c)^-1 g [..., K]; K operations.

    The denominator of (C35) over psi'(c_0) is r(c_0) - sum r(c_k) with r(x) = x - 1 / psi'(x), which does not cancel.
    """
    total = tf.reduce_sum(c, axis=-1, keepdims=True)
    scaled = g / trigamma(c)
    room = tf.reduce_sum(trigamma_defect(c), axis=-1, keepdims=True) - trigamma_defect(total)
    return scaled + tf.reduce_sum(scaled, axis=-1, keepdims=True) / (room * trigamma(c))  # (C35)


def dirichlet_from_log_mean(log_mean: tf.Tensor) -> tf.Tensor:
    """The c [..., K] with E log theta = log_mean [..., K], by Newton steps on A(c) - <c, log_mean>, which is convex."""

    def objective(c: tf.Tensor) -> tf.Tensor:
        return dirichlet_log_partition(c) - tf.reduce_sum(c * log_mean, axis=-1, keepdims=False)

    def go(c: tf.Tensor, share: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        direction = dirichlet_fisher_solve(c, log_mean - dirichlet_log_mean(c))
        proposed = c + share[..., None] * direction
        inside = tf.reduce_all(proposed > 0.0, axis=-1)
        safe = tf.where(inside[..., None], proposed, c)
        good = inside & (objective(safe) <= objective(c))
        moved = tf.where(good[..., None], safe, c)
        small = tf.reduce_all(tf.abs(direction) <= 1e-15 * c)
        return moved, tf.where(good, tf.minimum(2.0 * share, 1.0), 0.5 * share), small

    c = tf.nn.softmax(log_mean, axis=-1) * tf.cast(tf.shape(log_mean)[-1], log_mean.dtype)
    start = (c, tf.ones_like(c[..., 0]), tf.constant(False))
    return tf.while_loop(lambda c, share, small: ~small, go, start, maximum_iterations=_NEWTON)[0]
