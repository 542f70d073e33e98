"""The route "lattice": masses, convolved by FFT (Challis & Barber 2012, corrected)."""

# 1. Masses of each alpha_d v_d in K cells are differences of its cdf, (A8).
# 2. Their convolution, by FFT on a ring of 2 K places, has the masses of y.
# 3. E g(y) is the sum of masses times g at the centres of the cells, averaged over the cell at
#    kinks (A9).
#
# Rounding to cells adds width^2 / 12 of variance per term, so values are rescaled.

from __future__ import annotations

__all__ = ["cell_masses", "convolve", "lattice_expectation"]

import math
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from ..special.normal import normal_cdf
from .axis_products import map_blocks, other_factors
from .decay import where_decayed
from .projections import Projections, Reach, Site, check_projections, rows_of, tiny
from .spectral import check_points

Cdf = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
"""Cdfs at finite v [n, D, K - 1], for theta [D, 1, P], differentiable in both."""
_FAR = 1e8
"""Replaces an infinite argument of a cdf."""


def cell_masses(cdf: Cdf, alpha: tf.Tensor, theta: tf.Tensor, step: tf.Tensor, K: int) -> tf.Tensor:
    """Masses [n, D, K] of alpha_d v_d in cells at (k - K/2) step, (A8); outer cells are open.

    `cdf` takes v [n, D, K - 1], for theta [D, 1, P]; alpha is [n, D], theta [D, P], step [n].
    """
    small = tf.sqrt(tf.constant(tiny(alpha), alpha.dtype))
    sign = tf.where(alpha < 0.0, -tf.ones_like(alpha), tf.ones_like(alpha))
    safe = tf.where(tf.abs(alpha) < small, sign * small, alpha)[:, :, None]
    edges = tf.constant(np.arange(1, K) - 0.5 * K - 0.5, alpha.dtype) * step[:, None, None]
    v = tf.clip_by_value(edges / safe, -_FAR, _FAR)
    below = cdf(v, theta[:, None, :])
    first, last = below[..., :1], below[..., -1:]
    upward = sign[:, :, None]
    ends = tf.where(upward > 0.0, first, 1.0 - first), tf.where(upward > 0.0, 1.0 - last, last)
    # (A8)
    return tf.concat([ends[0], upward * (below[..., 1:] - below[..., :-1]), ends[1]], axis=-1)


def convolve(masses: tf.Tensor) -> tf.Tensor:
    """Convolve the masses [n, D, K] of D terms to [n, 2 K], for values from -K to K - 1 steps."""
    # Mass beyond the ring wraps around. The gradient (A15) takes one FFT per term.
    K = masses.shape[2]

    @tf.custom_gradient
    def summed(masses: tf.Tensor) -> tuple:
        spectra = tf.signal.rfft(_on_ring(masses, K))
        total = tf.roll(
            tf.signal.irfft(tf.reduce_prod(spectra, axis=1), fft_length=[2 * K]), K, axis=1
        )

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            waves = tf.signal.rfft(tf.roll(upstream, K, axis=1))
            rings = tf.signal.irfft(
                waves[:, None] * tf.math.conj(other_factors(spectra)), fft_length=[2 * K]
            )  # (A15)
            return tf.concat([rings[..., -K // 2 :], rings[..., : K // 2]], axis=-1)

        return total, gradient

    return summed(masses)


def _on_ring(masses: tf.Tensor, K: int) -> tf.Tensor:
    gap = tf.zeros_like(masses)
    return tf.concat([masses[..., K // 2 :], gap, masses[..., : K // 2]], axis=-1)


def _summed(
    cdf: Cdf,
    alpha: tf.Tensor,
    noise: tf.Tensor,
    scale: tf.Tensor,
    theta: tf.Tensor,
    R: Reach,
    K: int,
    noisy: bool,
) -> tuple[tf.Tensor, tf.Tensor]:
    step = 2.0 * tf.cast(R, alpha.dtype) * scale / K
    masses = cell_masses(cdf, alpha, theta, step, K)
    if noisy:
        root = tf.sqrt(tf.maximum(noise, tiny(alpha)))[:, None]
        masses = tf.concat(
            [masses, cell_masses(lambda v, _: normal_cdf(v), root, theta, step, K)], axis=1
        )
    return step[:, None] * tf.range(-K, K, dtype=alpha.dtype), convolve(masses)


def lattice_expectation(
    cdf: Cdf,
    y: Projections,
    site: Site,
    R: Reach,
    K: int = 1024,
    memory: float = 2.0**29,
    work: int = 12,
    matched: bool = True,
) -> tf.Tensor:
    """Return E g_n(y_n) [N], differentiable in y's arrays and the site's parameters.

    The error falls at least 16-fold when K grows fourfold. Minus infinity where the lattice ends
    before g times the density has decayed.

    :param cdf: at v [n, D, K - 1], for theta [D, 1, P].
    :param memory: bytes that `work` complex tensors [n, D, K + 1] may take.
    """
    check_points(K)
    check_projections(y, site)
    noisy = y.noise is not None

    def block(
        alpha: tf.Tensor, beta: tf.Tensor, noise: tf.Tensor, scale: tf.Tensor, *rest: tf.Tensor
    ) -> tf.Tensor:
        *parameters, theta = rest
        u, rho = _summed(cdf, alpha, noise, scale, theta, R, K, noisy)
        width = tf.stop_gradient(u[:, 1:2] - u[:, :1])
        if matched:
            variance = tf.reduce_sum(tf.square(alpha), axis=1, keepdims=True) + noise[:, None]
            u, width = _matched(u, rho, variance, width, averaged=site.kink is not None)
        columns = [part[:, None] for part in parameters]
        values = beta[:, None] + u
        g = site.smooth(values, *columns)
        if site.kink is not None:
            place, slope = site.kink(*columns)
            g += slope * _cell_average(values - place, width)
        return where_decayed(tf.reduce_sum(rho * g, axis=1), rho * g, -math.inf)

    rows = rows_of(memory, y.alpha.shape[1] + noisy, K + 1, work, y.alpha.dtype)
    return map_blocks(block, [*y.per_site, *site.parameters], [y.theta], rows)


def _matched(
    u: tf.Tensor, rho: tf.Tensor, variance: tf.Tensor, width: tf.Tensor, averaged: bool
) -> tuple[tf.Tensor, tf.Tensor]:
    mean = tf.reduce_sum(rho * u, axis=1, keepdims=True)
    on_lattice = tf.reduce_sum(rho * tf.square(u - mean), axis=1, keepdims=True)
    if averaged:
        on_lattice += tf.square(width) / 12.0
    ratio = tf.sqrt(variance / on_lattice)
    return (u - mean) * ratio, width * ratio


def _cell_average(u: tf.Tensor, width: tf.Tensor) -> tf.Tensor:
    inside = 0.25 * width + tf.square(u) / width
    return tf.where(tf.abs(u) >= 0.5 * width, tf.abs(u), inside)  # (A9)
