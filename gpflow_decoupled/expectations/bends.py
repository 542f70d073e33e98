"""Where a function bends, how narrowly, and nodes dense about that."""

from __future__ import annotations

__all__ = ["column", "find_bend", "panels"]

from collections.abc import Callable

import numpy as np
import tensorflow as tf
from numpy.polynomial.legendre import leggauss

_GRID, _FINER, _ZOOMS = 65, 17, 7
"""Points of the first grid and of the others; each of these is 5 times finer."""
_UNEVEN = 2.0
"""A grid resolves a bend where the greatest difference is at most that many times the mean."""
_NOISE = 1000.0
"""Epsilons of the largest value, below which differences are round-off."""
_PANELS, _CUTS, _NODES = 6, 9, 12
"""Equal panels, further cuts on each side of a bend, and nodes of a panel."""


def find_bend(
    weighted: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]],
    low: tf.Tensor,
    high: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Place and width [...] of the greatest bend between `low` and `high` [...].

    The width is at most the bend's, and a tenth of it or more.

    :param weighted: z [Q, ...] to values and weights [Q, ...].
    """
    centre, width = 0.5 * (low + high), high - low
    for zoom in range(_ZOOMS):
        count = _GRID if zoom == 0 else _FINER
        z = low + column(np.linspace(0.0, 1.0, count), low) * (high - low)
        values, weights = weighted(z)
        values = tf.where(tf.math.is_finite(values), values, tf.zeros_like(values))
        noise = _NOISE * np.finfo(low.dtype.as_numpy_dtype).eps
        noise *= tf.reduce_max(weights, axis=0) * tf.reduce_max(tf.abs(values), axis=0)
        # fourth differences, which vanish sooner than second ones where a function is smooth
        for _ in range(2):
            values = values[2:] - 2.0 * values[1:-1] + values[:-2]
        bends = weights[2:-2] * tf.abs(values)
        greatest, step = tf.reduce_max(bends, axis=0), (high - low) / (count - 1)
        at = low + step * tf.cast(tf.argmax(bends, axis=0) + 2, low.dtype)
        uneven = (greatest > _UNEVEN * tf.reduce_mean(bends, axis=0)) & (greatest > noise)
        centre = tf.where(greatest > noise, at, centre)
        width = tf.where(uneven, step, width)
        low, high = centre - 1.6 * step, centre + 1.6 * step
    return tuple(tf.stop_gradient(part) for part in (centre, width))


def panels(
    low: tf.Tensor, high: tf.Tensor, bends: list[tuple[tf.Tensor, tf.Tensor]]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Nodes and logarithms of weights [Q, ...] from `low` to `high` [...].

    :param bends: places and widths, about which panels are cut more finely.
    """
    cuts = [low + column(np.linspace(0.0, 1.0, _PANELS + 1), low) * (high - low)]
    for centre, width in bends:
        # from the width to all of the range, by equal factors
        ratio = tf.maximum((high - low) / width, 1.0) ** (1.0 / (_CUTS - 1))
        away = width * ratio ** column(np.arange(float(_CUTS)), low)
        cuts += [centre[None], centre + away, centre - away]
    ends = tf.clip_by_value(tf.concat(cuts, axis=0), low, high)
    last = list(range(1, len(ends.shape))) + [0]
    first = [len(ends.shape) - 1, *range(len(ends.shape) - 1)]
    ends = tf.transpose(tf.sort(tf.transpose(ends, last), axis=-1), first)
    half, middle = 0.5 * (ends[1:] - ends[:-1]), 0.5 * (ends[1:] + ends[:-1])
    nodes, weights = (column(part, low)[:, None] for part in leggauss(_NODES))
    z = middle + half * nodes  # [nodes, panels, ...]
    log_weights = tf.math.log(weights) + tf.math.log(half)
    shape = tf.concat([[-1], tf.shape(low)], axis=0)
    return tf.reshape(z, shape), tf.reshape(log_weights, shape)


def column(numbers: np.ndarray, like: tf.Tensor) -> tf.Tensor:
    """Numbers [Q] as [Q, 1, ...] for a tensor [...]."""
    return tf.constant(numbers.reshape([-1] + [1] * len(like.shape)), like.dtype)
