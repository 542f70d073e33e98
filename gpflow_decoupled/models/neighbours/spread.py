"""Variances scaled by the errors nearby."""

from __future__ import annotations

__all__ = ["LocalSpread", "local_spread"]

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

from ...linalg.neighbours import quadratic_forms, vacuous_noise


class LocalSpread(NamedTuple):
    """Variances that follow the errors nearby: one scale for each neighbourhood."""

    neighbours: int
    """k, the nearest observations that tell the spread."""
    factor: TensorType
    """c []: multiplies all spreads, so that they are right on average."""
    prior: TensorType
    """nu []: the observations that an expected spread of one counts for."""


def local_spread(
    spread: LocalSpread, K: tf.Tensor, noise: tf.Tensor, there: tf.Tensor, values: tf.Tensor
) -> tf.Tensor:
    """The mean squared error of the nearest observations in units of the model's variances, (N11).

    :param spread: c, nu and k; all m where m is less.
    :param K: prior covariances [B, m + 1, m + 1] of the neighbours and of the variable, last.
    :param noise: of the neighbours [B, m, Q], jitter included; or [B, m, 1] for all Q.
    :param there: [B, m], bool: which of them exist.
    :param values: the observations less their means [B, m, Q].
    :return: [B, Q]. Cost: k^3 / 3 for each, times Q if noises differ.
    """
    #     s = c (nu + y_c^T K^_cc^-1 y_c) / (nu + k)
    #
    # The posterior mean of a scale of kernel and noise with an inverse-gamma prior: a Student-t
    # process (Shah, Wilson & Ghahramani 2014, equation 6).
    prior = tf.linalg.diag_part(K)
    tiny = tf.constant(np.finfo(K.dtype.as_numpy_dtype).tiny, K.dtype)
    # the squared prior correlation, up to a factor, ranks as the distance does
    closeness = tf.square(K[:, -1, :-1]) / tf.maximum(prior[:, :-1], tiny)
    closeness = tf.where(there, closeness, -tf.ones_like(closeness))
    count = min(spread.neighbours, int(K.shape[-1]) - 1)
    near = tf.math.top_k(closeness, count).indices
    prior, noise, there, values = (
        tf.gather(part, near, axis=1, batch_dims=1) for part in (prior, noise, there, values)
    )
    K = tf.gather(tf.gather(K, near, axis=1, batch_dims=1), near, axis=2, batch_dims=1)
    nothing = vacuous_noise(K.dtype) * tf.reduce_max(prior, axis=1)[:, None, None]
    noise = tf.where(there[..., None], noise, noise + nothing)
    squares = [
        quadratic_forms(tf.linalg.set_diag(K, prior + noise[..., q]), part)
        for q, part in enumerate(tf.split(values, int(noise.shape[-1]), axis=-1))
    ]
    observed = tf.reduce_sum(tf.cast(there, K.dtype), axis=1)[:, None]
    total = tf.concat(squares, axis=-1)
    return spread.factor * (spread.prior + total) / (spread.prior + observed)
