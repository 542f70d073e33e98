"""Nodes for the mean of a function that bends near one place, under a Gaussian that is narrower or
much wider than the bend.

Gauss-Hermite nodes follow the Gaussian. Where it is narrow beside the width of the bend, 20 of them
are exact to round-off; where it is wide, all of them miss the bend. Here the nodes of a wide
Gaussian are those of Gauss and Legendre in t, where y = centre + width sinh t: they lie evenly over
the bend, and ever further apart in its tails.
"""

from __future__ import annotations

__all__ = ["peaked_rule"]

import math

import numpy as np
import tensorflow as tf
from numpy.polynomial.hermite_e import hermegauss
from numpy.polynomial.legendre import leggauss

_NODES, _REACH = 128, 8.5
"""Nodes under a wide Gaussian, and how many of its standard deviations they cover"""
_NARROW, _FAR = 0.25, 15.0
"""A Gaussian is narrow where its deviation is below this share of the width, or this often below
the distance to the centre
"""
_WIDEST = 1e8
"""Beyond so many widths the deviation counts as so many"""


def peaked_rule(
    m: tf.Tensor, spread: tf.Tensor, centre: tf.Tensor, width: tf.Tensor, hermite: int = 20
) -> tuple[tf.Tensor, tf.Tensor]:
    """Nodes z and weights w [Q, ...] such that sum_q w_q g(m + spread z_q) is E g(y) under y ~ N(m,
    spread^2), to about 1e-9.

    For a g that is smooth over distances below `width` about `centre`, or in proportion to the
    distance from there: its nearest singularity in the complex plane should lie at about centre + i
    width. Nodes and weights are not differentiated, so that the derivatives of the sum in m and
    spread are the sums of the derivatives of g, which are as exact.

    :param m: means [...].
    :param spread: standard deviations [...], of any sign; a rule for -spread has the opposite
        nodes.
    :param centre: where g bends [...].
    :param width: the width of the bend [...], above 0.
    :param hermite: the number of Gauss-Hermite nodes where the Gaussian is narrow.

    The number of nodes is Q = 128, or `hermite` if that is more. Example::

        z, w = peaked_rule(m, spread, y, 0.02 * tf.ones_like(y))
        tf.reduce_sum(w * tf.math.log1p(tf.square((m + spread * z - y) / 0.02)), axis=0)
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

    # 3) for each Gaussian those that fit
    narrow = size < tf.maximum(_NARROW * width, tf.abs(m - centre) / _FAR)
    sign = tf.where(spread < 0.0, -tf.ones_like(spread), tf.ones_like(spread))
    z, w = tf.where(narrow, z_narrow, z_wide), tf.where(narrow, w_narrow, w_wide)
    return tf.stop_gradient(sign * z), tf.stop_gradient(w)
