"""The Gaussian mean of any function of one variable."""

# A trapezoidal rule in z = (f - mean) / deviation is compared with every second node of it, whose
# error is about the root of its own. It is sharper than as many Gauss-Hermite nodes: with g's
# nearest singularity d deviations from the real line, 61 are wrong by e^(-22 d), 61 of Gauss and
# Hermite by e^(-16 d). Where both differ, that row alone is integrated by panels, of which the
# worst are halved again and again. Nodes are constants, and so have no gradient.

from __future__ import annotations

__all__ = ["adaptive_mean"]

import math
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType
from numpy.polynomial.legendre import leggauss, legvander

from ..compilation import rarely, traced_for_xla
from .bends import column

_Z, _STEP = np.linspace(-8.4, 8.4, 61), 0.28
"""Nodes of the trapezoidal rule, and the distance between them."""
_SAME, _NOTHING = 1e-5, 1e-11
"""Differences from every second node, and shares of the outermost nodes, that are let pass; in
1 + |E g| and 1 + its slopes. Measured for eight likelihoods: errors are then below 2e-9."""
_EDGES = (0.0, 1.1, 2.25, 3.5, 5.0, 7.0, 9.0, 12.0, 16.0, 24.0, 28.0, 32.0, 38.0)
"""First ends of panels on either side; beyond, the normal density is zero in floats."""
_FAR = 9.0
"""Standard deviations, beyond which 1e-18 of the density lies."""
_HALVED, _HALVINGS, _NODES = 4, 14, 12
"""Panels halved at once, how often, and nodes of a panel."""
_LEFT = 1e-9
"""A panel is halved while its last two Legendre terms are above that share of the integral."""


def adaptive_mean(
    function: Callable[..., tf.Tensor],
    mean: TensorType,
    variance: TensorType,
    *rows: tf.Tensor,
    alike: bool = True,
) -> tf.Tensor:
    """Return E g(f) [N, P], f ~ N(mean, variance), to 1e-8 of 1 + |E g(f)|; gradients as well.

    Also where g bends over a small part of a deviation, at up to three places, or grows as e^f.
    A row's mean depends on its own numbers alone.

    Cost: 61 evaluations an entry; 1,500 to 3,000 more in a row where these do not agree with every
    second of them.

    :param function: (f [..., n, P], rows [n, ...] each) -> g [..., n, P], for any of the rows.
    :param mean: of f [N, P]; `variance` [N, P], at least 0.
    :param rows: arrays [N, ...] with the numbers of each row, such as its label.
    :param alike: False if g knows rows by their place, so that all are computed where one must.
    """
    mean = tf.convert_to_tensor(mean)
    mean, variance = mean + tf.zeros_like(variance), variance + tf.zeros_like(mean)
    # at the round-off of the mean, where the slope in the variance is still half the curvature
    least = np.finfo(mean.dtype.as_numpy_dtype).eps * (1.0 + tf.square(mean))
    deviation = tf.sqrt(variance + tf.stop_gradient(tf.maximum(least - variance, 0.0)))

    values = function(mean + deviation * column(_Z, mean), *rows)
    found = tf.reduce_sum(column(_weights(1), mean) * values, axis=0)
    same = tf.reduce_all(_agree(tf.stop_gradient(values)), axis=-1)

    def by_panels() -> tf.Tensor:
        if traced_for_xla() or not alike:  # shapes must not depend on numbers
            return tf.where(same[:, None], found, _mean_by_panels(function, mean, deviation, rows))
        # not `gather`, whose gradient has another type than that of the other branch
        side = tf.cast(same, tf.int32)
        split = (tf.dynamic_partition(part, side, 2) for part in (found, mean, deviation, *rows))
        (_, kept), *others = split
        place = tf.dynamic_partition(tf.range(tf.size(side)), side, 2)
        m, s, *parts = (part for part, _ in others)
        return tf.dynamic_stitch(place, [_mean_by_panels(function, m, s, parts), kept])

    return tf.cond(tf.reduce_all(same), lambda: found, rarely(by_panels))


def _weights(every: int) -> np.ndarray:
    """Of the normal density at `_Z`, zero but for one node of `every`."""
    weights = np.where(np.arange(len(_Z)) % every == 0, np.exp(-0.5 * np.square(_Z)), 0.0)
    return every * _STEP * weights / np.sqrt(2.0 * np.pi)


def _agree(values: tf.Tensor) -> tf.Tensor:
    """True [N, P] where both rules, of values [61, N, P], have the same mean and slopes of it."""
    # slopes in mean and variance are E z g and E (z^2 - 1) g in units of the deviation
    terms = np.stack([np.ones_like(_Z), _Z, np.square(_Z) - 1.0])
    sums, differences = (
        tf.tensordot(tf.constant(terms * weights, values.dtype), values, axes=1)
        for weights in (_weights(1), _weights(1) - _weights(2))
    )
    round_off = 50.0 * float(np.finfo(values.dtype.as_numpy_dtype).eps)
    size = 1.0 + tf.abs(sums)
    same = tf.reduce_all(tf.abs(differences) <= _SAME * size + round_off * size[0], axis=0)
    ends = tf.abs(values[0]) + tf.abs(values[-1])
    return same & (float(_weights(1)[0]) * ends <= _NOTHING * size[0])


def _mean_by_panels(
    function: Callable[..., tf.Tensor], mean: tf.Tensor, deviation: tf.Tensor, rows: Sequence
) -> tf.Tensor:
    m, s = tf.stop_gradient(mean), tf.stop_gradient(deviation)
    x, weights = leggauss(_NODES)
    terms = legvander(x, _NODES - 1)[:, -2:] * (_NODES - 1.0)
    x, weights, terms = (tf.constant(part, m.dtype) for part in (x, weights, terms))

    def nodes(low: tf.Tensor, high: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """z and weights [K Q, n, P] of panels [n, P, K]."""
        half = 0.5 * (high - low)[..., None]
        z = 0.5 * (high + low)[..., None] + half * x
        mass = half * weights * tf.exp(-0.5 * tf.square(z)) / math.sqrt(2.0 * math.pi)
        shape = tf.concat([tf.shape(m), [-1]], axis=0)
        return tuple(tf.transpose(tf.reshape(part, shape), [2, 0, 1]) for part in (z, mass))

    def judged(low: tf.Tensor, high: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Last terms, integrals of |g|, and True for finite ones, of panels [n, P, K]."""
        z, mass = nodes(low, high)
        values = mass * function(m + s * z, *rows)
        shape = tf.concat([tf.shape(low), [_NODES]], axis=0)
        values = tf.reshape(tf.transpose(values, [1, 2, 0]), shape)
        finite = tf.math.is_finite(values)
        values = tf.where(finite, values, tf.zeros_like(values))
        last = tf.reduce_sum(tf.abs(tf.tensordot(values, terms, axes=1)), axis=-1)
        return last, tf.reduce_sum(tf.abs(values), axis=-1), tf.reduce_all(finite, axis=-1)

    edges = np.array([*(-one for one in _EDGES[:0:-1]), *_EDGES])
    zero = tf.zeros_like(m)[..., None]
    low, high = zero + tf.constant(edges[:-1], m.dtype), zero + tf.constant(edges[1:], m.dtype)
    last, sizes, finite = judged(low, high)
    # far out, where the logarithm of exp(f) or exp(f) itself is infinite, nothing counts
    high = tf.where(finite | (tf.abs(low + high) < 2.0 * _FAR), high, low)
    # panels without width wait at the end
    spare = [[0, 0], [0, 0], [0, _HALVED * _HALVINGS]]
    low, high = (tf.pad(part, spare) for part in (low, high))
    last = tf.pad(last, spare, constant_values=-1.0)
    least = max(_LEFT, 10.0 * float(np.finfo(m.dtype.as_numpy_dtype).eps))
    allowed = least * (1.0 + tf.reduce_sum(sizes, axis=-1, keepdims=True))

    def halve(
        low: tf.Tensor, high: tf.Tensor, last: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        last, order = tf.math.top_k(last, tf.shape(last)[-1])
        low, high = (tf.gather(part, order, batch_dims=2) for part in (low, high))
        first, end = low[..., :_HALVED], high[..., :_HALVED]
        # a panel that is done stays, with nothing to its right
        middle = tf.where(last[..., :_HALVED] > allowed, 0.5 * (first + end), end)
        found, *_ = judged(tf.concat([first, middle], -1), tf.concat([middle, end], -1))
        left, right = tf.split(found, 2, axis=-1)
        right = tf.where(middle < end, right, -tf.ones_like(right))
        rest = slice(_HALVED, -_HALVED)
        return (
            tf.concat([first, low[..., rest], middle], axis=-1),
            tf.concat([middle, high[..., rest], end], axis=-1),
            tf.concat([left, last[..., rest], right], axis=-1),
        )

    low, high, _ = tf.while_loop(
        lambda low, high, last: tf.reduce_any(last > allowed),
        halve, (low, high, last), maximum_iterations=_HALVINGS,
    )  # fmt: skip
    z, mass = nodes(low, high)
    # exp(f) may be infinite where the Gaussian is zero in floats
    z = tf.stop_gradient(tf.where(mass > 0.0, z, tf.zeros_like(z)))
    return tf.reduce_sum(tf.stop_gradient(mass) * function(mean + deviation * z, *rows), axis=0)
