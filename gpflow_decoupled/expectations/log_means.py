"""The logarithm of a density's Gaussian mean."""

# A predictive density is the integral of a product of two peaks, of the likelihood and of the
# Gaussian, either of which may be much the narrower, and which may lie far apart. So the place of
# the product is found first, on grids that zoom in; then it is integrated there by panels, which
# are cut where the likelihood bends as well.

from __future__ import annotations

__all__ = ["log_mean_exp"]

import math
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType
from numpy.polynomial.hermite import hermgauss
from numpy.polynomial.legendre import leggauss

from .bends import column, find_bend, panels

_REACH = 9.0
"""Standard deviations of the Gaussian that are searched; less than 1e-18 lies beyond."""
_FARTHEST, _FIRST = 2e4, 61
"""Standard deviations that a first grid covers without a centre, and its points."""
_GRID, _ZOOMS = 32, 4
"""Points of a grid, and grids; each cuts the range to a fifteenth of it or to what counts."""
_COUNTS = 45.0
"""Nats below the maximum at which an integrand counts for nothing: e^-45 is 3e-20."""
_COMPARED, _SAME = (20, 41), 1e-7
"""Two numbers of Gauss-Hermite nodes, and the nats by which they may differ: 41 are then within
5e-10 of 81 for Student-t, Beta, Bernoulli, Poisson and negative binomial densities."""
_PANELS, _NODES = 6, 16
"""Equal panels, and nodes of each; more nodes change no digit."""
_CUTS = np.array([-40.0, -20.0, -10.0, -5.0, -2.0, 0.0, 2.0, 5.0, 10.0, 20.0, 40.0])
"""Further ends of panels, in widths of the bend about its centre."""


def log_mean_exp(
    log_density: Callable[[tf.Tensor], tf.Tensor],
    mean: TensorType,
    variance: TensorType,
    centre: TensorType | None = None,
    width: TensorType | None = None,
) -> tf.Tensor:
    """Return log E exp(l(f)), f ~ N(mean, variance), to 1e-8 nats, also where one is narrow.

    l is unimodal or monotone, and bends or peaks at about `centre` over `width`, which are found
    if they are not given.

    Nodes have no gradient. Cost: 384 evaluations of l an entry; 1,000 without a centre, but 102
    where all Gaussians are so narrow beside l that two rules of Gauss and Hermite agree.

    :param log_density: l, f [Q, ...] -> nats [Q, ...].
    :param mean: of f [...]; `variance` [...], at least 0.
    :param centre: [...]; `width` [...], above 0.
    """
    mean = tf.convert_to_tensor(mean)
    if centre is None or width is None:
        return _searched(log_density, mean, tf.convert_to_tensor(variance, mean.dtype))
    variance, centre, width = (
        tf.convert_to_tensor(part, mean.dtype) for part in (variance, centre, width)
    )
    deviation = _deviation(mean, variance)

    def integrand(f: tf.Tensor) -> tf.Tensor:
        z = (f - mean) / deviation
        return log_density(f) - 0.5 * tf.square(z) - tf.math.log(deviation)

    parts = (tf.stop_gradient(part) for part in (mean, deviation, centre, width))
    f, log_weights = _panels(*_place(integrand, *parts))
    found = tf.reduce_logsumexp(integrand(f) + log_weights, axis=0)
    return found - 0.5 * math.log(2.0 * math.pi)


def _searched(
    log_density: Callable[[tf.Tensor], tf.Tensor], mean: tf.Tensor, variance: tf.Tensor
) -> tf.Tensor:
    deviation = _deviation(mean, variance)
    mean += tf.zeros_like(deviation)
    m, s = tf.stop_gradient(mean), tf.stop_gradient(deviation)

    def integrand(z: tf.Tensor) -> tf.Tensor:
        value = log_density(m + s * z) - 0.5 * tf.square(z)
        return tf.where(tf.math.is_nan(value), tf.constant(-np.inf, value.dtype), value)

    def total(z: tf.Tensor, log_w: tf.Tensor) -> tf.Tensor:
        return tf.reduce_logsumexp(log_density(mean + deviation * z) + log_w, axis=0)

    def by_panels() -> tf.Tensor:
        z, log_w = (tf.stop_gradient(part) for part in panels(*_places(integrand, m)))
        return total(z, log_w - 0.5 * (tf.square(z) + math.log(2.0 * math.pi)))

    coarse, fine = ((z, tf.math.log(w)) for z, w in (_hermite(n, m) for n in _COMPARED))
    sums = [
        tf.reduce_logsumexp(log_density(m + s * z) + log_w, axis=0) for z, log_w in (coarse, fine)
    ]
    least = max(_SAME, 50.0 * float(np.finfo(mean.dtype.as_numpy_dtype).eps))
    same = tf.abs(sums[0] - sums[1]) <= least * (1.0 + tf.abs(sums[1]))
    return tf.cond(
        tf.reduce_all(same),
        lambda: total(*fine),
        # row by row, so that none depends on the others
        lambda: tf.where(same, total(*fine), by_panels()),
    )


def _deviation(mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """The root of the variance, at least the round-off of the mean, so that nodes differ."""
    least = math.sqrt(float(np.finfo(mean.dtype.as_numpy_dtype).eps)) * (1.0 + tf.abs(mean))
    return tf.sqrt(tf.maximum(variance, tf.stop_gradient(tf.square(least)))) + tf.zeros_like(mean)


def _place(
    integrand: Callable[[tf.Tensor], tf.Tensor],
    mean: tf.Tensor,
    deviation: tf.Tensor,
    centre: tf.Tensor,
    width: tf.Tensor,
) -> tuple[tf.Tensor, ...]:
    centre, width = centre + tf.zeros_like(mean), width + tf.zeros_like(mean)
    low = tf.minimum(mean, centre) - _REACH * deviation
    high = tf.maximum(mean, centre) + _REACH * deviation
    shares = column(np.linspace(0.0, 1.0, _GRID), mean)
    for _ in range(_ZOOMS):
        grid = low + shares * (high - low)
        values = integrand(tf.stop_gradient(grid))
        values = tf.where(tf.math.is_nan(values), tf.constant(-np.inf, values.dtype), values)
        counts = values >= tf.reduce_max(values, axis=0) - _COUNTS
        step = (high - low) / (_GRID - 1)
        infinite = tf.constant(np.inf, grid.dtype)
        first = tf.reduce_min(tf.where(counts, grid, infinite), axis=0) - step
        last = tf.reduce_max(tf.where(counts, grid, -infinite), axis=0) + step
        low, high = tf.maximum(low, first), tf.minimum(high, last)
    return tuple(tf.stop_gradient(part) for part in (low, high, centre, width))


def _panels(
    low: tf.Tensor, high: tf.Tensor, centre: tf.Tensor, width: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    equal = low + column(np.linspace(0.0, 1.0, _PANELS + 1), low) * (high - low)
    bend = tf.clip_by_value(centre + column(_CUTS, low) * width, low, high)
    cuts = tf.concat([equal, bend], axis=0)
    last = list(range(1, len(cuts.shape))) + [0]
    first = [len(cuts.shape) - 1, *range(len(cuts.shape) - 1)]
    cuts = tf.transpose(tf.sort(tf.transpose(cuts, last), axis=-1), first)
    half, middle = 0.5 * (cuts[1:] - cuts[:-1]), 0.5 * (cuts[1:] + cuts[:-1])
    nodes, weights = (column(part, low)[:, None] for part in leggauss(_NODES))
    f = middle + half * nodes  # [nodes, panels, ...]
    log_weights = tf.math.log(weights) + tf.math.log(half)
    shape = tf.concat([[-1], tf.shape(low)], axis=0)
    return tf.reshape(f, shape), tf.reshape(log_weights, shape)


def _hermite(count: int, like: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    z, weights = hermgauss(count)
    return column(np.sqrt(2.0) * z, like), column(weights / np.sqrt(np.pi), like)


def _places(
    integrand: Callable[[tf.Tensor], tf.Tensor], like: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, list[tuple[tf.Tensor, tf.Tensor]]]:
    """Least and greatest z that count, and places and widths of bends."""
    # 1) the bend of the density, where it may have a peak that no grid meets
    reach = tf.constant(_REACH, like.dtype) + tf.zeros_like(like)

    def of_density(z: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        half_square = 0.5 * tf.square(z)
        return integrand(z) + half_square, tf.exp(-half_square)

    centre, width = find_bend(of_density, -reach, reach)
    # 2) what counts, on grids that zoom in
    most = np.arcsinh(_FARTHEST)
    grid = column(np.sinh(np.linspace(-most, most, _FIRST)), like) + tf.zeros_like(like)
    step = 2.0 * most / (_FIRST - 1) * (1.0 + tf.abs(grid))
    low, high = grid[0], grid[-1]
    shares = column(np.linspace(0.0, 1.0, _GRID), like)
    for _ in range(1 + _ZOOMS):
        grid = tf.concat([grid, tf.clip_by_value(centre, low, high)[None]], axis=0)
        step = tf.concat([step, tf.reduce_min(step, axis=0, keepdims=True)], axis=0)
        values = integrand(grid)
        counts = values >= tf.reduce_max(values, axis=0) - _COUNTS
        infinite = tf.constant(np.inf, grid.dtype)
        first = tf.reduce_min(tf.where(counts, grid - step, infinite), axis=0)
        last = tf.reduce_max(tf.where(counts, grid + step, -infinite), axis=0)
        low, high = tf.maximum(low, first), tf.minimum(high, last)
        grid = low + shares * (high - low)
        step = (high - low)[None] / (_GRID - 1) + tf.zeros_like(grid)
    # 3) the bend of the product
    top = tf.reduce_max(integrand(grid), axis=0)
    product = find_bend(lambda z: (tf.exp(integrand(z) - top), tf.ones_like(z)), low, high)
    return low, high, [(centre, width), product]
