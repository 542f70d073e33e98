"""Variances scaled by the errors nearby."""

from __future__ import annotations

__all__ = ["LocalSpread", "local_spread"]

from typing import NamedTuple

import tensorflow as tf
from gpflow.base import TensorType


class LocalSpread(NamedTuple):
    """Variances that follow the errors nearby: one scale for each neighbourhood."""

    neighbours: int
    """k, the nearest observations that tell the spread."""
    factor: TensorType
    """c []: multiplies all spreads, so that they are right on average."""
    prior: TensorType
    """nu []: the observations that an expected spread of one counts for."""


def local_spread(
    spread: LocalSpread | None,
    squares: tf.Tensor,
    there: tf.Tensor,
    count: tf.Tensor | None = None,
    within: tf.Tensor | None = None,
) -> tf.Tensor:
    """The mean squared error of the nearest observations in units of the model's variances, (N11).

    :param spread: c, nu and k; ones if not given.
    :param squares: y_c^T K^_cc^-1 y_c [B, Q] for the k nearest c, or all m where m is less.
    :param there: [B, m], bool: which neighbours exist, nearest first.
    :param count: [B, m or more, 1]: the rows whose mean each neighbour is; None for one each.
    :param within: [B, m or more, Q]: their squared distances from it, in units of their noise.
    :return: [B, Q].
    """
    #     s = c (nu + y_c^T K^_cc^-1 y_c) / (nu + k)
    #
    # The posterior mean of a scale of kernel and noise with an inverse-gamma prior: a Student-t
    # process (Shah, Wilson & Ghahramani 2014, equation 6).
    if spread is None:
        return tf.ones_like(squares)
    nearest = tf.cast(there[:, : spread.neighbours], squares.dtype)
    observed = tf.reduce_sum(nearest, axis=1, keepdims=True)
    if count is not None and within is not None:  # a mean square counts for k observations still
        some, width = nearest[..., None], int(nearest.shape[1])
        rows = tf.reduce_sum(some * count[:, :width], axis=1)
        squares = squares + tf.reduce_sum(some * within[:, :width], axis=1)
        squares = tf.math.divide_no_nan(squares * observed, rows)
    return spread.factor * (spread.prior + squares) / (spread.prior + observed)
