"""E softmax(f) for independent Gaussian f_k, by one-dimensional sums.

softmax_c(f) is the probability that f_c + e_c is the largest of all f_k + e_k, for independent
Gumbel e_k with cdf G(z) = exp(-e^-z). With f_k ~ N(m_k, v_k) and F_k the cdf of f_k + e_k, (V34):

    E softmax_c(f) = int F_c'(t) prod_{k != c} F_k(t) dt,    F_k(t) = int N(x; m_k, v_k) G(t - x) dx

Both integrals are trapezoid sums on one lattice of step h, with errors of order exp(-pi^2 / h). All
F_k are one matrix product, of Gaussian densities and G at all differences. A Gaussian narrower than
h gets Gauss-Hermite nodes.
"""

from __future__ import annotations

__all__ = ["expected_softmax"]

import math
from functools import partial

import numpy as np
import tensorflow as tf

_STEP = 0.4
"""h, while the points reach. A Gaussian with a deviation below h is narrow."""
_SIZES = (96, 48), (128, 96), (192, 128), (320, 192), (480, 256), (720, 384), (1024, 384)
"""Points of t, and of x below the first t: the first pair that reaches is taken. XLA refuses sizes
that depend on values.
"""
_WIDTH = 8.0
"""Standard deviations of a Gaussian that the lattice covers on either side."""
_LEFT, _RIGHT = 3.5, 25.0
"""Margins for the Gumbel distribution: G(-3.5) and 1 - G(25) are below 2e-11."""
_LARGEST, _FARTHEST = 7.0, 300.0
"""exp(-e^7) is zero, and e^300 squared is finite."""
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(6)
_AT_ONCE = 2**13
"""Latent functions times rows in memory at once, with a few hundred numbers each."""
_NO_VARIANCE = 1e-12
"""Below, the expectation is softmax(m) to all digits."""


def expected_softmax(mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """Return E softmax(f) [N, C] in float64, for independent f_k ~ N(m_k, v_k).

    Exact to 1e-8 for variances up to 300, to 1e-3 beyond. Probabilities below 1e-40 may be zero.
    Cost: N C T J for T points of t and J of x (`_SIZES`): 192 and 320 at a variance of 1, 320 and
    512 at 10, 720 and 1104 at 100.

    :param mean: m [N, C].
    :param variance: v [N, C], non-negative.
    """
    mean, variance = tf.cast(mean, tf.float64), tf.cast(variance, tf.float64)
    rows, classes = tf.shape(mean)[0], mean.shape[-1]
    blocks = tf.maximum((rows * classes + _AT_ONCE - 1) // _AT_ONCE, 1)
    size = tf.maximum((rows + blocks - 1) // blocks, 1)
    padding = [[0, blocks * size - rows], [0, 0]]
    parts = [
        tf.reshape(tf.pad(part, padding), [blocks, size, classes]) for part in (mean, variance)
    ]
    found = tf.map_fn(_of_rows, parts, fn_output_signature=tf.float64)
    found = tf.reshape(found, [blocks * size, classes])[:rows]
    certain = tf.reduce_max(variance, axis=-1, keepdims=True) < _NO_VARIANCE
    return tf.where(certain, tf.nn.softmax(mean, axis=-1), found)


@tf.autograph.experimental.do_not_convert
def _of_rows(moments: list[tf.Tensor]) -> tf.Tensor:
    """(V34) for means and variances [B, C] of some rows, on one lattice."""
    mean, variance = moments
    mean -= tf.reduce_max(mean, axis=-1, keepdims=True)
    deviation = tf.sqrt(tf.maximum(variance, np.finfo(float).tiny))
    low, high = (
        tf.stop_gradient(mean - _WIDTH * deviation),
        tf.stop_gradient(mean + _WIDTH * deviation),
    )
    start = tf.reduce_min(tf.reduce_max(low, axis=-1)) - _LEFT
    span, below = tf.reduce_max(high) + _RIGHT - start, start - tf.reduce_min(low)
    short = [(span > _STEP * (above - 1)) | (below > _STEP * under) for above, under in _SIZES[:-1]]
    index = tf.reduce_sum(tf.cast(tf.stack(short), tf.int32))
    return tf.switch_case(
        index, [partial(_on_lattice, mean, deviation, start, span, size) for size in _SIZES]
    )


def _on_lattice(
    mean: tf.Tensor, deviation: tf.Tensor, start: tf.Tensor, span: tf.Tensor, size: tuple[int, int]
) -> tf.Tensor:
    """Evaluate (V34) for m and sqrt v [B, C] on a grid of t in [start, start + span]."""
    above, under = size
    h = tf.maximum(tf.constant(_STEP, tf.float64), span / (above - 1))
    x = start + h * np.arange(-under, above, dtype=float)
    t, narrow = x[under:], deviation < h
    zeros = tf.zeros(tf.concat([tf.shape(mean), [above]], axis=0), tf.float64)
    few = tf.cond(
        tf.reduce_any(narrow),
        lambda: _by_nodes(mean, tf.minimum(deviation, h), t),
        lambda: (zeros, zeros),
    )
    many = tf.cond(
        tf.reduce_all(narrow),
        lambda: (zeros, zeros),
        lambda: _by_lattice(mean, tf.maximum(deviation, h), x, t, h),
    )
    F, slope = (tf.where(narrow[..., None], left, right) for left, right in zip(few, many))
    F = tf.maximum(F, np.finfo(float).tiny)
    product = tf.exp(tf.reduce_sum(tf.math.log(F), axis=1, keepdims=True))
    p = tf.reduce_sum(slope / F * product, axis=-1)  # (V34)
    return p / tf.reduce_sum(
        p, axis=-1, keepdims=True
    )  # the sum is 1 / h up to the errors of the sums


def _by_lattice(
    mean: tf.Tensor, deviation: tf.Tensor, x: tf.Tensor, t: tf.Tensor, h: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """F and F' [B, C, T] for m and sqrt v [B, C], on x [J] of step h."""
    rise = tf.exp(tf.minimum(x[:, None] - t, _LARGEST))
    G = tf.exp(-rise)
    z, step = (x - mean[..., None]) / deviation[..., None], h / deviation[..., None]
    weights = step / math.sqrt(2.0 * math.pi) * tf.exp(-0.5 * tf.square(z))
    rest = 0.5 * tf.math.erfc(
        (0.5 * step - z[..., :1]) / math.sqrt(2.0)
    )  # what is below the lattice, where G is one
    return rest + tf.tensordot(weights, G, 1), tf.tensordot(weights, rise * G, 1)


def _by_nodes(mean: tf.Tensor, deviation: tf.Tensor, t: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """`_by_lattice` by Gauss-Hermite quadrature, for narrow Gaussians."""
    F, slope = tf.zeros([], tf.float64), tf.zeros([], tf.float64)
    fall = tf.exp(tf.minimum(-t, _FARTHEST))
    for node, weight in zip(_NODES, _WEIGHTS / _WEIGHTS.sum()):
        f = tf.clip_by_value(mean + deviation * node, -_FARTHEST, _FARTHEST)
        rise = tf.exp(f)[..., None] * fall
        part = weight * tf.exp(-rise)
        F, slope = F + part, slope + rise * part
    return F, slope
