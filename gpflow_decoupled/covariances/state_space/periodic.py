"""Constants, cosines and periodic kernels as state spaces."""

# Solin & Sarkka 2014: exp(z (cos(w t) - 1)) = sum_j a_j cos(j w t), with non-negative a_j that fall
# faster than any power, and a cosine is a rotation of two states.

from __future__ import annotations

__all__ = ["constant", "cosine", "periodic", "series_error"]

import functools
import math

import gpflow
import numpy as np
import tensorflow as tf

from .model import StateSpace, added

_NODES = 64
"""Nodes of the Fourier integrals, beside four for each term; the error is a term of that order."""


def constant(variance: tf.Tensor, steps: tf.Tensor) -> StateSpace:
    """A constant with the variance [], over steps [N]."""
    A = tf.ones_like(steps)[:, None, None]
    return StateSpace(A, tf.zeros_like(A), tf.reshape(variance, [1, 1]), np.ones(1))


def cosine(variance: tf.Tensor, rate: tf.Tensor, steps: tf.Tensor) -> StateSpace:
    """The kernel variance cos(rate t), over steps [N]."""
    c, s = tf.cos(rate * steps), tf.sin(rate * steps)
    A = tf.stack([tf.stack([c, -s], axis=-1), tf.stack([s, c], axis=-1)], axis=-2)
    P = variance * tf.eye(2, dtype=steps.dtype)
    return StateSpace(A, tf.zeros_like(A), P, np.eye(2)[0])


def periodic(kernel: gpflow.kernels.Periodic, steps: tf.Tensor, harmonics: int) -> StateSpace:
    """The first terms of the cosine series of a periodic kernel, 2 `harmonics` + 1 states.

    :param kernel: with a squared exponential base.
    :param steps: between inputs [N].
    :param harmonics: J; see `series_error`.
    """
    amplitudes = kernel.base_kernel.variance * _series(kernel, harmonics)
    rate = 2.0 * math.pi / tf.reshape(kernel.period, [])
    terms = [constant(amplitudes[0], steps)]
    terms += [cosine(amplitudes[j], j * rate, steps) for j in range(1, harmonics + 1)]
    return functools.reduce(added, terms)


def series_error(kernel: gpflow.kernels.Periodic, harmonics: int) -> tf.Tensor:
    """The largest error of a covariance that a cosine series makes, as a share of the variance, [].

    The sum of the terms left out: with 7 harmonics 2e-12, 8e-8 and 5e-4 for lengthscales 1, 1/2 and
    1/4.
    """
    return tf.maximum(1.0 - tf.reduce_sum(_series(kernel, harmonics)), 0.0)


def _series(kernel: gpflow.kernels.Periodic, harmonics: int) -> tf.Tensor:
    """The coefficients a_0, ..., a_J [J + 1], by the trapezium rule, which is exact here."""
    z = 0.25 / tf.square(tf.reshape(kernel.base_kernel.lengthscales, []))
    nodes = 4 * harmonics + _NODES
    angles = 2.0 * np.pi * np.arange(nodes) / nodes
    values = tf.exp(z * tf.constant(np.cos(angles) - 1.0, z.dtype))
    waves = np.cos(np.arange(harmonics + 1)[:, None] * angles) * (2.0 / nodes)
    waves[0] *= 0.5
    return tf.maximum(tf.linalg.matvec(tf.constant(waves, z.dtype), values), 0.0)
