"""Functions of Dirichlet concentrations c [..., K]."""

from __future__ import annotations

__all__ = ["dirichlet_fisher_solve", "dirichlet_log_mean", "dirichlet_log_partition"]

import tensorflow as tf

from ...special.trigamma import trigamma, trigamma_defect


def dirichlet_log_partition(c: tf.Tensor) -> tf.Tensor:
    """Log partition function sum_k log Gamma(c_k) - log Gamma(sum_k c_k) of Dirichlet densities.

    For concentrations c [..., K] above 0; [...] in nats.

    Example::

        dirichlet_log_partition(tf.constant([1.0, 1.0, 1.0]))        # -log 2
    """
    return tf.reduce_sum(tf.math.lgamma(c), axis=-1) - tf.math.lgamma(tf.reduce_sum(c, axis=-1))


def dirichlet_log_mean(c: tf.Tensor) -> tf.Tensor:
    """E log theta = psi(c) - psi(sum_k c_k) [..., K] of Dirichlet densities, psi the digamma
    function.

    For concentrations c [..., K] above 0.

    Example::

        dirichlet_log_mean(tf.constant([2.0, 1.0]))                  # [-1/2, -3/2]
    """
    return tf.math.digamma(c) - tf.math.digamma(tf.reduce_sum(c, axis=-1, keepdims=True))


def dirichlet_fisher_solve(c: tf.Tensor, g: tf.Tensor) -> tf.Tensor:
    """Solve I(c) x = g with the Fisher matrix of a Dirichlet, for c and g [..., K].

    I(c) = diag psi'(c) - psi'(c_0), c_0 the sum; the Sherman-Morrison formula, exact for large
    concentrations.

    Example::

        g = tf.constant([1.0, 0.0, 0.0], tf.float64)
        x = dirichlet_fisher_solve(tf.constant([2.0, 3.0, 5.0], tf.float64), g)
    """
    total = tf.reduce_sum(c, axis=-1, keepdims=True)
    scaled = g / trigamma(c)
    room = tf.reduce_sum(trigamma_defect(c), axis=-1, keepdims=True) - trigamma_defect(total)
    return scaled + tf.reduce_sum(scaled, axis=-1, keepdims=True) / (room * trigamma(c))  # (C35)
