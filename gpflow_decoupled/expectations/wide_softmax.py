"""E softmax(f) for very wide Gaussians."""

# (V34) of `softmax` for one row at a time; the integrand is zero below t_0, the largest of
# m_k - 8 sigma_k, less 3.5, and its scale grows with the distance above t_0. So t = t_0 +
# A sinh(u / A) with equal steps of u: 512 points reach standard deviations of 1e5. F_k is a
# trapezoid sum over the Gumbel variable, or Gauss-Hermite quadrature over f_k.

from __future__ import annotations

__all__ = ["wide_softmax"]

import math
from collections.abc import Callable

import numpy as np
import tensorflow as tf

_POINTS = 512
"""Points of t. The step of u is 0.25 up to standard deviations of 1e5, and 0.5 at 1e10."""
_SCALE = 10.0
"""A: below it steps are equal, beyond it they grow in proportion to t - t_0."""
_WIDTH, _LEFT, _RIGHT = 8.0, 3.5, 25.0
"""Standard deviations on either side, and the margins for the Gumbel variable."""
_STEP = 0.45
"""Of the Gumbel variable: its sum is accurate to 1e-9. A Gaussian below it is called narrow."""
_GUMBEL = np.arange(-_LEFT, _RIGHT, _STEP)
_WEIGHTS = np.exp(-_GUMBEL - np.exp(-_GUMBEL)) / np.sum(np.exp(-_GUMBEL - np.exp(-_GUMBEL)))
_NODES, _SHARES = np.polynomial.hermite_e.hermegauss(6)
_LARGEST = 7.0
"""exp(-e^7) is zero."""
_AT_ONCE = 2**6
"""Latent functions times rows in memory together, with some 30,000 numbers each."""


def wide_softmax(mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """E softmax(f) [N, C] in float64, for independent f_k ~ N(m_k, v_k), v_k > 0.

    Accurate to 1e-8 for variances v [N, C] up to 1e20; m is [N, C]. Cost: about 1 ms per entry.
    """

    @tf.custom_gradient
    def run(mean: tf.Tensor, variance: tf.Tensor) -> tuple:
        def grad(upstream: tf.Tensor) -> list[tf.Tensor]:
            return _by_blocks(_gradients, mean, variance, upstream)

        return _by_blocks(_of_rows, mean, variance)[0], grad

    return run(mean, variance)


def _by_blocks(function: Callable[..., list[tf.Tensor]], *arrays: tf.Tensor) -> list[tf.Tensor]:
    rows, classes = tf.shape(arrays[0])[0], arrays[0].shape[-1]
    size = max(_AT_ONCE // classes, 1)
    blocks = (rows + size - 1) // size
    padding = [[0, blocks * size - rows], [0, 0]]
    parts = [
        tf.reshape(tf.pad(part, padding, constant_values=1.0), [blocks, size, classes])
        for part in arrays
    ]
    count = 1 if function is _of_rows else 2
    visit = tf.autograph.experimental.do_not_convert(lambda part: function(*part))
    found = tf.map_fn(visit, parts, fn_output_signature=[tf.float64] * count)
    return [tf.reshape(one, [blocks * size, classes])[:rows] for one in found]


def _gradients(mean: tf.Tensor, variance: tf.Tensor, upstream: tf.Tensor) -> list[tf.Tensor]:
    """Gradients of sum upstream * E softmax(f) in m and v, recomputed to save memory."""
    with tf.GradientTape() as tape:
        tape.watch([mean, variance])
        (p,) = _of_rows(mean, variance)
    return tape.gradient(p, [mean, variance], output_gradients=upstream)


def _of_rows(mean: tf.Tensor, variance: tf.Tensor) -> list[tf.Tensor]:
    deviation = tf.sqrt(variance)
    low = tf.stop_gradient(mean - _WIDTH * deviation)
    high = tf.stop_gradient(mean + _WIDTH * deviation)
    start = tf.reduce_max(low, axis=-1, keepdims=True) - _LEFT
    span = tf.reduce_max(high, axis=-1, keepdims=True) + _RIGHT - start
    u = tf.asinh(span / _SCALE) * np.linspace(0.0, 1.0, _POINTS)  # [B, T], in units of A
    t = (start + _SCALE * tf.sinh(u))[:, None, :]
    F, slope = _distribution(mean[..., None], deviation[..., None], t)
    F = tf.maximum(F, np.finfo(float).tiny)
    log_product = tf.reduce_sum(tf.math.log(F), axis=1, keepdims=True)
    p = tf.reduce_sum(slope / F * tf.exp(log_product) * tf.cosh(u)[:, None, :], axis=-1)  # (V34)
    return [p / tf.reduce_sum(p, axis=-1, keepdims=True)]


def _distribution(
    mean: tf.Tensor, deviation: tf.Tensor, t: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    narrow, sigma = deviation < _STEP, tf.maximum(deviation, _STEP)
    z = ((t - mean)[..., None] - _GUMBEL) / sigma[..., None]
    # not `matvec`: products of rank 4 are unsound in float32, see `tests/test_traced_products.py`
    many = tf.tensordot(0.5 * tf.math.erfc(-z / math.sqrt(2.0)), _WEIGHTS, axes=1)
    density = tf.exp(-0.5 * tf.square(z)) / math.sqrt(2.0 * math.pi)
    many_slope = tf.tensordot(density, _WEIGHTS, axes=1) / sigma
    few, few_slope = tf.zeros_like(many), tf.zeros_like(many)
    for node, share in zip(_NODES, _SHARES / _SHARES.sum()):
        # The minimum is of the width too: the branch that is not taken must have finite gradients.
        f = mean + node * tf.minimum(deviation, _STEP)
        rise = tf.exp(tf.minimum(f - t, _LARGEST))
        few, few_slope = few + share * tf.exp(-rise), few_slope + share * rise * tf.exp(-rise)
    return tf.where(narrow, few, many), tf.where(narrow, few_slope, many_slope)
