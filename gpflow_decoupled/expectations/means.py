"""The Gaussian mean of any function of one variable."""

from __future__ import annotations

__all__ = ["adaptive_mean"]

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

from ..compilation import counted_alone, traced_for_xla
from .bends import column

_LEVELS = ((8.4, 121), (16.8, 961), (33.6, 7681))
"""Last node and number of nodes of the rules, of which the next serves rows that differ: errors
were below 2e-10 for seven likelihoods at variances up to 400, and slopes' below 2e-9."""
_SAME, _NOTHING = 2e-6, 1e-11
"""Differences from every second node, and shares of the outermost nodes, that are let pass, in
1 + |E g| and 1 + its slopes."""


def adaptive_mean(
    function: Callable[..., tf.Tensor],
    mean: TensorType,
    variance: TensorType,
    *rows: tf.Tensor,
    alike: bool = True,
) -> tf.Tensor:
    """Return E g(f) [N, P], f ~ N(mean, variance), to 1e-8 of 1 + |E g(f)|; gradients as well.

    Also where g bends over a thirtieth of a deviation, or grows as e^f. A row's mean depends on its
    own numbers alone.

    A trapezoidal rule in z = (f - mean) / deviation is compared with every second node of it, whose
    error is about the root of its own: with g's nearest singularity d deviations from the real
    line, errors are e^(-45 d) and e^(-22 d). Where both differ, that row alone gets a finer rule.

    Cost: 121 evaluations an entry; 961 or 8,642 more in a row where these do not agree with every
    second of them. First derivatives only.

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
    found, same = _by_rule(function, mean, deviation, rows, 0)

    def finer(mean: tf.Tensor, deviation: tf.Tensor, *rows: tf.Tensor) -> tf.Tensor:
        def by_rules() -> tf.Tensor:
            once = _traced_once(function, mean, rows)
            if not traced_for_xla() and alike:
                nothing = tf.zeros_like(mean)
                return _stitched(once, nothing, same, [mean, deviation, *rows], 1)
            means, right = tf.stop_gradient(found), same
            for level in range(1, len(_LEVELS)):  # shapes must not depend on numbers
                values, agree = _by_rule(once, mean, deviation, rows, level)
                means, right = tf.where(right[:, None], means, values), right | agree
            return means

        return tf.cond(tf.reduce_all(same), lambda: tf.zeros_like(mean), by_rules)

    # a branch is traced once more for each order of derivatives that tapes around it may ask for,
    # which took ten seconds; recomputed, it is seen by its own tape alone
    return tf.where(same[:, None], found, tf.recompute_grad(finer)(mean, deviation, *rows))


def _traced_once(
    function: Callable[..., tf.Tensor], mean: tf.Tensor, rows: Sequence[tf.Tensor]
) -> Callable[..., tf.Tensor]:
    """The same function; in a graph one call of it for all rules, since tracing takes seconds."""
    if tf.executing_eagerly() or traced_for_xla():
        return function
    kinds = [tf.TensorSpec([None, None, *mean.shape[1:]], mean.dtype)]
    kinds += [tf.TensorSpec([None, *part.shape[1:]], part.dtype) for part in rows]
    return tf.function(counted_alone(function), autograph=False, input_signature=kinds)


def _stitched(
    function: Callable[..., tf.Tensor],
    found: tf.Tensor,
    same: tf.Tensor,
    parts: Sequence[tf.Tensor],
    level: int,
) -> tf.Tensor:
    """Means `found`, but by the rule of a level, or one after it, where `same` [N] is False."""
    side = tf.cast(same, tf.int32)
    (_, kept), *split = (tf.dynamic_partition(part, side, 2) for part in (found, *parts))
    mean, deviation, *rows = others = [part for part, _ in split]
    place = tf.dynamic_partition(tf.range(tf.size(side)), side, 2)
    values, agree = _by_rule(function, mean, deviation, rows, level)
    if level + 1 < len(_LEVELS):
        values = _stitched(function, values, agree, others, level + 1)
    return tf.dynamic_stitch(place, [values, kept])


def _by_rule(
    function: Callable[..., tf.Tensor],
    mean: tf.Tensor,
    deviation: tf.Tensor,
    rows: Sequence[tf.Tensor],
    level: int,
) -> tuple[tf.Tensor, tf.Tensor]:
    z, weights = _rule(*_LEVELS[level], mean.dtype)
    values = function(mean + deviation * column(z, mean), *rows)
    found = tf.reduce_sum(column(weights, mean) * values, axis=0)
    return found, tf.reduce_all(_agree(tf.stop_gradient(values), z, weights), axis=-1)


def _rule(end: float, count: int, dtype: tf.DType) -> tuple[np.ndarray, np.ndarray]:
    """Nodes of the trapezoidal rule, and weights of the normal density."""
    z = np.linspace(-end, end, count)
    weights = np.exp(-0.5 * np.square(z)) * (z[1] - z[0]) / np.sqrt(2.0 * np.pi)
    # g may be infinite where the density is zero in floats
    return np.where(weights.astype(dtype.as_numpy_dtype) > 0.0, z, 0.0), weights


def _agree(values: tf.Tensor, z: np.ndarray, weights: np.ndarray) -> tf.Tensor:
    """True [N, P] where a rule, of values [Q, N, P], and half of it have the same mean and slopes
    of it.
    """
    # slopes in mean and variance are E z g and E (z^2 - 1) g in units of the deviation
    terms = weights * np.stack([np.ones_like(z), z, np.square(z) - 1.0])
    signs = np.where(np.arange(len(z)) % 2 == 0, -1.0, 1.0)  # of the rule less its even nodes twice
    sums, differences = (
        tf.tensordot(tf.constant(part, values.dtype), values, axes=1)
        for part in (terms, terms * signs)
    )
    round_off = 50.0 * float(np.finfo(values.dtype.as_numpy_dtype).eps)
    size = 1.0 + tf.abs(sums)
    same = tf.reduce_all(tf.abs(differences) <= _SAME * size + round_off * size[0], axis=0)
    ends = tf.abs(values[0]) + tf.abs(values[-1])
    return same & (float(weights[0]) * ends <= _NOTHING * size[0])
