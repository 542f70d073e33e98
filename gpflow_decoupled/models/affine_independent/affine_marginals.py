"""Non-Gaussian marginals of q(f), by (A10)."""

# Probabilities below 1e-12 of the peak are rounding errors.

from __future__ import annotations

__all__ = [
    "density_at", "density_of_labels", "expected", "label_moments", "marginal_densities",
    "moments_of_labels", "quantiles",
]  # fmt: skip

import math
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf
from gpflow.likelihoods import Likelihood
from scipy.interpolate import CubicHermiteSpline

from ...distributions import Base
from ...expectations.decay import where_decayed
from ...expectations.projections import Projections, Site, rows_of
from ...expectations.site_integrals import reach_of
from ...expectations.spectral import spectral_density, transform_of

_OfF = Callable[[tf.Tensor], tf.Tensor]


def _blocks(base: Base, y: Projections, points: int, memory: float) -> Iterator[Projections]:
    rows = rows_of(memory, y.alpha.shape[1], points, base.work, y.alpha.dtype)
    if y.alpha.shape[0] is None:
        yield y
        return
    for start in range(0, y.alpha.shape[0], rows):
        noise = None if y.noise is None else y.noise[start : start + rows]
        yield Projections(
            y.alpha[start : start + rows], y.beta[start : start + rows], y.theta, noise
        )


def marginal_densities(
    base: Base, y: Projections, points: int, memory: float
) -> tuple[tf.Tensor, tf.Tensor]:
    """Grids around each mean, as wide as the base's tails, and densities: [N, points] each."""
    R = reach_of(base, y.theta)
    parts = [
        spectral_density(base.characteristic, part, R, points)
        for part in _blocks(base, y, points // 2 + 1, memory)
    ]
    values, q = (tf.concat(column, axis=0) for column in zip(*parts))
    return values, tf.maximum(q, 0.0)


def expected(
    base: Base,
    y: Projections,
    function: _OfF,
    points: int,
    memory: float,
) -> tf.Tensor:
    """E function(y_n) [..., N] for a function [N, K] -> [..., N, K]; perhaps infinite."""
    values, q = marginal_densities(base, y, points, memory)
    terms = q * (values[:, 1:2] - values[:, :1]) * function(values)
    return where_decayed(tf.reduce_sum(terms, axis=-1), terms, math.inf)


def density_at(
    base: Base, y: Projections, grid: tf.Tensor, points: int, memory: float
) -> tf.Tensor:
    """Densities [N, G] at values [N, G], by the frequency sum; 0 beyond the base's tails."""
    # Unlike an FFT it needs no interpolation; blocks take at most `memory` bytes.
    R, scale, start, rows = reach_of(base, y.theta), y.spread, 0, []
    dims, frequencies = int(y.alpha.shape[1]), points // 2 + 1
    values = int(
        max(
            1, min(int(grid.shape[1]), memory // (2 * y.alpha.dtype.size * base.work * frequencies))
        )
    )
    for part in _blocks(base, y, max(frequencies, values * frequencies // dims), memory):
        count = part.alpha.shape[0]
        width = R * scale[start : start + count, None]
        alpha, _, noise, _ = part.per_site
        omega = math.pi / width * tf.range(points // 2, dtype=width.dtype)
        phi = transform_of(base.characteristic, alpha, noise, omega, y.theta)
        u = grid[start : start + count] - part.beta[:, None]
        columns = [
            _density_of(phi, omega, u[:, first : first + values], width)
            for first in range(0, grid.shape[1], values)
        ]
        rows.append(tf.concat(columns, axis=1))
        start += count
    return tf.concat(rows, axis=0)


def _density_of(phi: tf.Tensor, omega: tf.Tensor, u: tf.Tensor, width: tf.Tensor) -> tf.Tensor:
    """Density [n, G] at distances u [n, G] from the mean, from phi at omega, [n, T] each."""
    angle = omega[:, :, None] * u[:, None, :]
    waves = tf.math.real(phi)[:, :, None] * tf.cos(angle)
    if phi.dtype.is_complex:
        waves += tf.math.imag(phi)[:, :, None] * tf.sin(angle)
    weights = tf.constant([0.5] + [1.0] * (int(phi.shape[1]) - 1), width.dtype)[:, None]
    q = tf.reduce_sum(weights * waves, axis=1) / width  # (A10)
    return tf.where(tf.abs(u) < width, tf.maximum(q, 0.0), 0.0)


def quantiles(
    base: Base, y: Projections, probabilities: np.ndarray, points: int, memory: float
) -> np.ndarray:
    """Quantiles [N, Q] for probabilities [Q], by Newton's method on an interpolated cdf."""
    R, rows = reach_of(base, y.theta), []
    for part in _blocks(base, y, points // 2 + 1, memory):
        values, q = (
            array.numpy() for array in spectral_density(base.characteristic, part, R, points)
        )
        averaged = spectral_density(base.characteristic, part, R, points, averaged=True)[1].numpy()
        for row in zip(values, q, averaged):
            rows.append(_quantiles_of(*row, probabilities))
    return np.stack(rows)


def _quantiles_of(
    values: np.ndarray, q: np.ndarray, averaged: np.ndarray, probabilities: np.ndarray
) -> np.ndarray:
    """Quantiles [Q] of a density q [K] at values [K]."""
    # The sum of cell averages `averaged` [K] is the cdf at edges.
    step = values[1] - values[0]
    cdf = np.maximum.accumulate(np.cumsum(averaged) * step)
    edges = values + 0.5 * step
    density = np.maximum(0.5 * (q[:-1] + q[1:]), 0.0)
    spline = CubicHermiteSpline(edges[:-1], cdf[:-1], density)
    slope = spline.derivative()
    keep = np.concatenate([[True], np.diff(cdf[:-1]) > 1e-14])
    x = np.interp(probabilities, cdf[:-1][keep], edges[:-1][keep])
    low, high = x - step, x + step
    for _ in range(5):
        x = np.clip(x - (spline(x) - probabilities) / np.maximum(slope(x), 1e-300), low, high)
    return x


def label_moments(likelihood: Likelihood, f: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean and variance of a label given f [N, Q], of the shape of f."""
    flat, X = tf.reshape(f, [-1, 1]), tf.zeros([tf.size(f), 1], f.dtype)
    mean, variance = likelihood.conditional_mean(X, flat), likelihood.conditional_variance(X, flat)
    return tf.reshape(mean, tf.shape(f)), tf.reshape(variance, tf.shape(f))


def moments_of_labels(
    likelihood: Likelihood, expectation: Callable[[_OfF], tf.Tensor]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean and variance of labels under q, [N, 1] each.

    :param expectation: of a function of f [N, K] under q, [N].
    """
    mean = expectation(lambda f: label_moments(likelihood, f)[0])[:, None]
    is_finite = tf.math.is_finite(mean)
    centre = tf.where(is_finite, mean, 0.0)

    def squares(f: tf.Tensor) -> tf.Tensor:
        given, variance = label_moments(likelihood, f)
        return variance + tf.square(given - centre)

    variance = expectation(squares)[:, None]
    return mean, tf.where(is_finite, variance, mean)  # beyond the range of floats


def density_of_labels(site: Site, f: tf.Tensor) -> tf.Tensor:
    """p(y_n | f) at f [N, K], for a site of N labels."""
    columns = [part[:, None] for part in site.parameters]
    log_p = site.smooth(f, *columns)
    if site.kink is not None:
        place, slope = site.kink(*columns)
        log_p += slope * tf.abs(f - place)
    return tf.exp(log_p)
