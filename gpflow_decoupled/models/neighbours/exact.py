"""The exact log density of a few rows, without neighbours."""

from __future__ import annotations

__all__ = ["exact_log_density"]

import numpy as np
import tensorflow as tf
from gpflow.functions import MeanFunction
from gpflow.likelihoods import Gaussian

from ...linalg.cholesky import cholesky
from .groups import Group, noise_variances, relative_jitter
from .observed import residuals_of


def exact_log_density(
    groups: list[Group],
    data: tuple[tf.Tensor, tf.Tensor],
    parts: tuple[MeanFunction, Gaussian],
    rows: np.ndarray,
) -> tf.Tensor:
    """Joint log density of the observed outputs of some rows, without the others.

    :param groups: G groups of outputs.
    :param data: X [N, D] and Y [N, P], NaN where missing.
    :param parts: the mean function and the likelihood.
    :param rows: row numbers [B].
    :return: nats, a scalar. Cost: B^3 / 3 per group.
    """
    mean_function, likelihood = parts
    total = tf.zeros([], data[1].dtype)
    for group in groups:
        usable = rows if group.rows is None else rows[np.isin(rows, group.rows)]
        if len(usable) == 0:
            continue
        X, Y = (tf.gather(array, usable) for array in data)
        residuals = tf.gather(residuals_of(mean_function, X, Y), group.columns, axis=-1)
        noise = noise_variances(likelihood, X, tf.constant(usable, tf.int32))
        noise = noise[..., group.columns[0] if noise.shape[-1] > 1 else 0]
        K = group.kernel(X)
        prior = tf.linalg.diag_part(K)
        K = tf.linalg.set_diag(K, prior + noise + relative_jitter(K.dtype) * prior)
        chol = cholesky(K).chol
        whitened = tf.linalg.triangular_solve(chol, residuals)
        log_det = 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(chol)))
        constant = tf.cast(len(usable) * np.log(2.0 * np.pi), K.dtype)
        columns = tf.cast(len(group.columns), K.dtype)
        total -= 0.5 * (columns * (constant + log_det) + tf.reduce_sum(tf.square(whitened)))
    return total
