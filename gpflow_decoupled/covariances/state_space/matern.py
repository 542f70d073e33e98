"""Matern kernels of orders 1/2, 3/2 and 5/2 as state spaces."""

# With p = nu - 1/2 and the rate lambda = (2 nu)^1/2 / lengthscale, f solves (d/dt + lambda)^(p+1) f
# = white noise. In the time s = lambda t the states f, f', ..., f^(p) have F = N - 1, N nilpotent:
#
#   A(s) = exp(-s) sum_k N^k s^k / k!,   Q(s) = sigma^2 q integral_0^s b(r) b(r)^T exp(-2 r) dr
#
# where b is the last column of the sum, a vector of polynomials. P - A P A^T would lose all digits
# of Q over short steps, where its first entry is of order s^(2 p + 1).

from __future__ import annotations

__all__ = ["matern"]

import functools
import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from .model import StateSpace

_TERMS = 18
"""Of the series of an incomplete gamma function at arguments below one: the rest is below 1e-16."""

_FAR = 1e3
"""Where e^-s is zero in floats; powers of a much larger s are infinite."""


class _Constants(NamedTuple):
    powers: np.ndarray
    """N^k / k! [p + 1, d, d]"""
    P: np.ndarray
    noise: np.ndarray
    """Coefficients [2 p + 1, d, d] of Q in the incomplete gamma functions of 1, ..., 2 p + 1."""


def matern(p: int, variance: tf.Tensor, rate: tf.Tensor, steps: tf.Tensor) -> StateSpace:
    """The Matern process of order p + 1/2.

    :param p: 0, 1, 2, ...
    :param variance: sigma^2, a scalar.
    :param rate: lambda, a scalar; (2 p + 1)^1/2 / lengthscale.
    :param steps: between inputs [N], not negative.
    """
    s, constants = tf.minimum(rate * steps, _FAR), _constants(p)
    powers = tf.stack(_powers(s, p), axis=-1) * tf.exp(-s)[:, None]
    A = tf.tensordot(powers, tf.constant(constants.powers, s.dtype), 1)
    Q = variance * tf.tensordot(
        _incomplete_gammas(2 * p + 1, 2.0 * s), tf.constant(constants.noise, s.dtype), 1
    )
    return StateSpace(A, Q, variance * tf.constant(constants.P, s.dtype), np.eye(p + 1)[0])


@functools.cache
def _constants(p: int) -> _Constants:
    d = p + 1
    F = np.eye(d, k=1)
    F[-1] = [-math.comb(d, k) for k in range(d)]
    nilpotent = F + np.eye(d)
    powers = np.stack([np.linalg.matrix_power(nilpotent, k) / math.factorial(k) for k in range(d)])
    last = powers[:, :, -1]
    integrals = np.zeros((2 * p + 1, d, d))
    for i in range(d):
        for j in range(d):
            integral = math.factorial(i + j) / 2 ** (i + j + 1)  # of r^(i + j) exp(-2 r)
            integrals[i + j] += integral * np.outer(last[i], last[j])
    P = integrals.sum(axis=0)  # the integrals over all times
    return _Constants(powers, P / P[0, 0], integrals / P[0, 0])


def _incomplete_gammas(count: int, z: tf.Tensor) -> tf.Tensor:
    # The last one by its series for small z; the others by adding positive terms to it.
    small = tf.minimum(z, 1.0)
    series = tf.ones_like(z)
    for term in range(_TERMS, 0, -1):
        series = 1.0 + series * small / (count + term)
    first = _powers(small, count)[-1] * tf.exp(-small) * series / math.factorial(count)
    powers = _powers(z, count - 1)
    weights = [power * tf.exp(-z) / math.factorial(k) for k, power in enumerate(powers)]
    found = [tf.where(z < 1.0, first, 1.0 - tf.add_n(weights))]
    for k in range(count - 1, 0, -1):
        found.append(found[-1] + weights[k])
    return tf.stack(found[::-1], axis=-1)


def _powers(z: tf.Tensor, last: int) -> list[tf.Tensor]:
    """1, z, ..., z^last; the gradient of z**0 at zero is not a number."""
    powers = [tf.ones_like(z)]
    for _ in range(last):
        powers.append(powers[-1] * z)
    return powers
