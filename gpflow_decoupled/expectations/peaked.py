"""Quadrature for a function that bends near one place."""

# A Gaussian narrow beside the bend gets Gauss-Hermite nodes; a wide one Gauss-Legendre nodes in t,
# y = centre + width sinh t, dense over the bend.

from __future__ import annotations

__all__ = ["peaked_mean", "peaked_rule"]

import math
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from numpy.polynomial.hermite_e import hermegauss
from numpy.polynomial.legendre import leggauss

_NODES, _REACH = 128, 8.5
"""Nodes for a wide Gaussian, and the standard deviations that they cover."""
_NARROW, _FAR = 0.25, 15.0
"""A narrow Gaussian's deviation is below 0.25 widths, or a 15th of the distance to the centre."""
_WIDEST = 1e8
"""Largest deviation, in widths; beyond, it is clipped."""


def peaked_rule(
    m: tf.Tensor, spread: tf.Tensor, centre: tf.Tensor, width: tf.Tensor, hermite: int = 20
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return nodes z and weights w [Q, ...] with sum_q w_q g(m + spread z_q) = E g(y) to 1e-9.

    y ~ N(m, spread^2); g's nearest complex singularity is at about centre + i width or farther.
    Nodes and weights are constants.

    :param m: means [...]; `spread` standard deviations [...]; a negative one reverses the nodes.
    :param centre: where g bends [...]; `width` of the bend [...], above 0.
    :return: z and w with Q = max(128, `hermite`).
    """
    m, spread, centre, width = (tf.stop_gradient(part) for part in (m, spread, centre, width))
    lead = [-1] + [1] * len(m.shape)
    size = tf.abs(spread)
    # 1) Gauss-Hermite nodes, with weights of zero added up to Q
    z_narrow, w_narrow = hermegauss(hermite)
    room = (0, max(0, _NODES - hermite))
    z_narrow, w_narrow = (
        np.pad(part, room).reshape(lead) for part in (z_narrow, w_narrow / w_narrow.sum())
    )
    z_narrow, w_narrow = (tf.constant(part, m.dtype) for part in (z_narrow, w_narrow))

    # 2) nodes in t, with distances in units of the width
    nodes, weights = (
        tf.constant(part.reshape(lead), m.dtype) for part in leggauss(max(_NODES, hermite))
    )
    unit = tf.maximum(width, size / _WIDEST)
    offset, deviation = (m - centre) / unit, tf.maximum(size / unit, 0.1 * _NARROW)
    low, high = (tf.asinh(offset + side * deviation) for side in (-_REACH, _REACH))
    half = 0.5 * (high - low)
    t = 0.5 * (high + low) + half * nodes
    z_wide = (tf.sinh(t) - offset) / deviation
    w_wide = (
        weights
        * half
        * tf.cosh(t)
        * tf.exp(-0.5 * tf.square(z_wide))
        / (math.sqrt(2.0 * math.pi) * deviation)
    )
    w_wide /= tf.reduce_sum(w_wide, axis=0)

    # 3) for each Gaussian the nodes that fit
    narrow = size < tf.maximum(_NARROW * width, tf.abs(m - centre) / _FAR)
    sign = tf.where(spread < 0.0, -tf.ones_like(spread), tf.ones_like(spread))
    z, w = tf.where(narrow, z_narrow, z_wide), tf.where(narrow, w_narrow, w_wide)
    return tf.stop_gradient(sign * z), tf.stop_gradient(w)


def peaked_mean(
    function: Callable[[tf.Tensor], tf.Tensor],
    mean: tf.Tensor,
    spread: tf.Tensor,
    centre: tf.Tensor,
    width: tf.Tensor,
    hermite: int = 40,
) -> tf.Tensor:
    """Return E g(f) [...], f ~ N(mean, spread^2), by `peaked_rule`, differentiable in both moments.

    :param function: g, f [Q, ...] -> [Q, ...], finite everywhere and at most linear far out.
    :param mean: of f [...]; `spread` the standard deviation [...].
    :param centre: where g bends; `width` of the bend, both broadcast to [...].
    """
    like = tf.zeros_like(mean + spread + centre + width)
    z, w = peaked_rule(mean + like, spread + like, centre + like, width + like, hermite)
    return tf.reduce_sum(w * function(mean + spread * z), axis=0)
