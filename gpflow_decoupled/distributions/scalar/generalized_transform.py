"""The generalised normal's characteristic function."""

# phi and two derivatives are tabulated once per process for 40 powers, with Chebyshev polynomials
# in log p between; Hermite interpolation in omega, and beyond the grid the series (A7).

from __future__ import annotations

__all__ = ["LARGEST_POWER", "LEAST_POWER", "generalized_normal_transform"]

import math
from functools import cache

import numpy as np
import tensorflow as tf

from ...special.hermite import hermite_lookup

LEAST_POWER, LARGEST_POWER = 0.9, 6.0
_LOW, _HIGH = math.log(0.87), math.log(6.2)  # Chebyshev nodes reach a little beyond the powers
_POWERS = 40
_STEP, _LAST = 0.05, 60.0  # grid of omega; beyond its end, the series (A7)
_TERMS = 6  # of the series (A7)
_PANEL = 16  # Gauss-Legendre nodes per panel


def generalized_normal_transform(omega: tf.Tensor, power: tf.Tensor) -> tf.Tensor:
    """E cos(omega v) for a density ~ exp(-|v|^power), 0.9 <= power <= 6; shapes [...] broadcast.

    One table per entry of `power`: use [D, 1] for power and [N, D, T] for omega.
    """
    size = tf.abs(omega) + tf.zeros_like(power)
    inside = tf.minimum(size, _LAST)
    looked_up = hermite_lookup(_tables_of(power), _STEP, inside)

    def with_series() -> tf.Tensor:
        return tf.where(size < _LAST, looked_up, _series(tf.maximum(size, _LAST), power))

    # the series costs as much as the table, and is rarely needed
    return tf.cond(tf.reduce_all(size < _LAST), lambda: looked_up, with_series)


def _tables_of(power: tf.Tensor) -> list[tf.Tensor]:
    x = (2.0 * tf.math.log(power) - (_LOW + _HIGH)) / (_HIGH - _LOW)
    angle = tf.acos(tf.clip_by_value(x, -1.0 + 1e-9, 1.0 - 1e-9))[..., None]
    polynomials = tf.cos(angle * tf.range(_POWERS, dtype=power.dtype))
    coefficients = tf.constant(_coefficients(), power.dtype)
    return tf.unstack(tf.tensordot(polynomials, coefficients, axes=1), num=3, axis=-1)


def _series(omega: tf.Tensor, power: tf.Tensor) -> tf.Tensor:
    """The expansion (A7) for large omega > 0."""
    total, front = tf.zeros_like(omega), power / tf.exp(tf.math.lgamma(1.0 / power))
    for j in range(1, _TERMS + 1):
        size = tf.exp(
            tf.math.lgamma(j * power + 1.0)
            - math.lgamma(j + 1.0)
            - (j * power + 1.0) * tf.math.log(omega)
        )
        total += (-1.0) ** (j + 1) * tf.sin(0.5 * math.pi * j * power) * size
    return front * total  # (A7)


@cache
def _coefficients() -> np.ndarray:
    angles = np.pi * (np.arange(_POWERS) + 0.5) / _POWERS
    powers = np.exp(0.5 * (_LOW + _HIGH) + 0.5 * (_HIGH - _LOW) * np.cos(angles))
    values = np.stack([_moments_on_the_grid(p) for p in powers])
    to_coefficients = 2.0 / _POWERS * np.cos(np.arange(_POWERS)[:, None] * angles)
    to_coefficients[0] *= 0.5
    return np.tensordot(to_coefficients, values, axes=1)


def _moments_on_the_grid(p: float) -> np.ndarray:
    V = 42.0 ** (1.0 / p)
    panels = int(math.ceil((200 + 1.2 * _LAST * V) / _PANEL))
    nodes, weights = np.polynomial.legendre.leggauss(_PANEL)
    x = ((np.arange(panels)[:, None] + 0.5 * (nodes + 1.0)) / panels).ravel()
    v = V * x**3
    mass = (
        np.tile(0.5 * weights / panels, panels)
        * 3.0
        * V
        * x**2
        * p
        / math.gamma(1.0 / p)
        * np.exp(-(v**p))
    )
    turn = np.exp(1j * _STEP * v)
    wave, moments = np.ones_like(turn), np.stack([mass, v * mass, v**2 * mass], axis=1)
    result = np.empty([round(_LAST / _STEP) + 1, 3])
    for row in result:  # the waves of the next frequency, by one complex product
        sums = moments.T @ wave
        row[:] = sums[0].real, -sums[1].imag, -sums[2].real
        wave = wave * turn
    return result
