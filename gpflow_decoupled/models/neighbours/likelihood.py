"""Rows of the data given others: log likelihood and leave-one-out predictions."""

from __future__ import annotations

__all__ = ["LeaveOneOut", "RowMoments", "left_out", "moments_of_rows"]

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.functions import MeanFunction
from gpflow.likelihoods import Gaussian

from ...linalg.blocks import map_rows
from ...linalg.neighbours import log_densities
from .conditionals import Observations, rows_given_neighbours
from .copies import inputs_at, own_density
from .groups import Group
from .observed import mean_values, observed_at
from .spread import LocalSpread

_ENTRIES = 8_000_000
"""Most entries of the covariance matrices of a block of rows, 64 MB in double precision."""


class RowMoments(NamedTuple):
    """Moments of observed outputs given their neighbours, and the outputs themselves."""

    residual: tf.Tensor
    """[B, P]: outputs less the mean function; NaN where they are missing."""
    mean: tf.Tensor
    """[B, P]: less the mean function too."""
    variance: tf.Tensor
    """[B, P]: of the observations, noise included."""
    spread: tf.Tensor
    """[B, P]: a factor of the variance."""
    count: tf.Tensor
    """[B, P]: rows that share an input, and so these moments, which are of their mean."""
    own: tf.Tensor
    """[B, P]: log density of a row given the mean of its input's, in nats."""


class LeaveOneOut(NamedTuple):
    """Predictions of observed rows, each from its nearest other rows.

    Example::

        score = float(np.mean(model.leave_one_out(rows).log_density))
    """

    mean: np.ndarray
    """[B, P]: of the observation."""
    variance: np.ndarray
    """[B, P]: of the observation, noise included."""
    log_density: np.ndarray
    """[B]: in nats, summed over the observed outputs."""
    spread: np.ndarray
    """[B, P]: the factor of the variance by the errors nearby; ones without that."""


def moments_of_rows(
    groups: list[Group],
    data: tuple[tf.Tensor, tf.Tensor],
    parts: tuple[MeanFunction, Gaussian],
    rows: tf.Tensor,
    neighbours: tf.Tensor,
    spread: LocalSpread | None = None,
    leave_out: bool = False,
) -> RowMoments:
    """Moments of rows given their neighbours, (N1), by blocks of rows.

    :param groups: G groups of outputs.
    :param data: X [N, D] and Y [N, P], NaN where missing.
    :param parts: the mean function and the likelihood.
    :param rows: row numbers [B].
    :param neighbours: row numbers [G, B, m], -1 for none.
    :param spread: scales the variances.
    :param leave_out: rows are predicted each alone, also from others with its input.
    :return: [B, P] each.
    """
    width = int(neighbours.shape[-1]) + 1
    size = max(1, _ENTRIES // (width * width * max(1, int(data[0].shape[1]) // 8)))

    def of_block(rows: tf.Tensor, neighbours: tf.Tensor) -> RowMoments:
        near = tf.unstack(neighbours, num=len(groups), axis=1)
        found = [
            _of_group(group, data, parts, rows, near[g], spread, leave_out)
            for g, group in enumerate(groups)
        ]
        return RowMoments(*(tf.concat(part, axis=1) for part in zip(*found)))

    near = tf.transpose(neighbours, [1, 0, 2])
    if rows.shape[0] is not None and rows.shape[0] > size:
        pairs = zip(_split(rows, size), _split(near, size))
        found = [_recomputed(of_block, *pair) for pair in pairs]
        return RowMoments(*(tf.concat(part, axis=0) for part in zip(*found)))
    kind = data[1].dtype
    return RowMoments(*map_rows(of_block, (rows, near), size, RowMoments(*[kind] * 6)))


def left_out(
    groups: list[Group],
    data: tuple[tf.Tensor, tf.Tensor],
    parts: tuple[MeanFunction, Gaussian],
    rows: np.ndarray,
    neighbours: tf.Tensor,
    spread: LocalSpread | None = None,
) -> LeaveOneOut:
    """Predict observed rows [B] from their neighbours [G, B, m], with the mean function.

    Parameters and cost as in `moments_of_rows`.
    """
    numbers = tf.constant(rows, tf.int32)
    found = moments_of_rows(groups, data, parts, numbers, neighbours, spread, leave_out=True)
    prior_mean = mean_values(parts[0], tf.gather(data[0], rows), int(data[1].shape[1]))
    terms, there = log_densities(*found[:3]).numpy(), ~np.isnan(found.residual)
    mean = (prior_mean + found.mean).numpy()
    scores = np.sum(np.where(there, terms, 0.0), axis=1)  # NaN where a factorisation failed
    return LeaveOneOut(mean, found.variance.numpy(), scores, found.spread.numpy())


def _split(array: tf.Tensor, size: int) -> list[tf.Tensor]:
    return [array[first : first + size] for first in range(0, int(array.shape[0]), size)]


def _recomputed(
    of_block: Callable[..., RowMoments], rows: tf.Tensor, neighbours: tf.Tensor
) -> RowMoments:
    """A block whose matrices the gradient computes again instead of keeping."""
    # TensorFlow cannot do this inside of a loop, so blocks are unrolled.
    # whole numbers have no gradient; as an argument they would be watched in vain
    run = tf.recompute_grad(lambda _: tuple(of_block(rows, neighbours)))
    return RowMoments(*run(tf.zeros([], tf.float32)))


def _of_group(
    group: Group,
    data: tuple[tf.Tensor, tf.Tensor],
    parts: tuple[MeanFunction, Gaussian],
    rows: tf.Tensor,
    neighbours: tf.Tensor,
    spread: LocalSpread | None,
    leave_out: bool,
) -> RowMoments:
    there = neighbours >= 0
    numbers = tf.maximum(tf.concat([neighbours, rows[:, None]], axis=1), 0)
    joint = observed_at(group, data, parts, numbers)
    row = Observations(*(part[:, -1:] for part in joint[:3]))
    count, own = tf.ones_like(row.residuals), tf.zeros_like(row.residuals)
    if group.copies is not None and leave_out:
        near = inputs_at(group, data, parts, neighbours, rows)
        alone = row._replace(number=count[..., :1], within=own)
        joint = Observations(*(tf.concat(pair, axis=1) for pair in zip(near, alone)))
    elif group.copies is not None:
        joint = inputs_at(group, data, parts, numbers)
        mean = Observations(*(part[:, -1:] for part in joint if part is not None))
        count, own = count * mean.number, own_density(group.kernel, mean, row)
    found = rows_given_neighbours(group.kernel, joint, there, spread)
    observed = tf.gather(tf.gather(data[1], rows), group.columns, axis=-1)
    residual = tf.where(tf.math.is_nan(observed), observed, joint.residuals[:, -1])
    return RowMoments(residual, *found, count[:, 0], own[:, 0])
