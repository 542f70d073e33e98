"""Gaussian variables given neighbours: many small problems."""

# In a joint covariance matrix the variable comes last, so the last row of the Cholesky factor gives
# beta = (-b, 1) and (N1),
#
#   variance = beta^T K beta,      mean = b^T y
#
# For a change dK the derivatives are beta^T dK beta and beta^T dK a with a = (K_cc^-1 y, 0): one
# triangular solve more than the value, and no product of two matrices.

from __future__ import annotations

__all__ = [
    "Conditional", "conditional", "inverse_factor_rows", "log_densities", "quadratic_forms",
    "vacuous_noise",
]  # fmt: skip

import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from .cholesky import cholesky


class Conditional(NamedTuple):
    """Moments of variables given their neighbours, and whether the factorisations succeeded."""

    mean: tf.Tensor
    """[..., Q]: one for each column of the neighbours' values."""
    variance: tf.Tensor
    """[...]: the same for all columns."""
    ok: tf.Tensor
    """[], bool: false if any joint covariance was not positive definite."""


def conditional(joint: tf.Tensor, values: tf.Tensor) -> Conditional:
    """Mean and variance of a Gaussian variable given m others, (N1).

    :param joint: covariance matrices [..., m + 1, m + 1] of the neighbours' observations, noise
        included, and of the variable, which is last.
    :param values: the observations [..., m, Q], less their means; Q independent columns.
    :return: means [..., Q], variances [...] and the status; differentiable once. Cost: m^3 / 3 for
        each problem.
    """
    mean, variance = _conditional(joint, values)
    return Conditional(mean, variance, tf.reduce_all(tf.math.is_finite(variance)))


@tf.custom_gradient
def _conditional(joint: tf.Tensor, values: tf.Tensor) -> tuple:
    chol, _ = cholesky(joint)
    weights = chol[..., -1, :-1, None]  # L_cc^-1 K_ci, [..., m, 1]
    scale = chol[..., -1, -1]
    # the last entry is never used: the row of the variable itself multiplies a zero
    below = tf.zeros_like(values[..., :1, :])
    whitened = tf.linalg.triangular_solve(chol, tf.concat([values, below], axis=-2))[..., :-1, :]
    mean = tf.reduce_sum(weights * whitened, axis=-2)

    def grad(to_mean: tf.Tensor, to_variance: tf.Tensor) -> tuple:
        columns = tf.concat([weights, whitened], axis=-1)
        columns = tf.concat([columns, tf.zeros_like(columns[..., :1, :])], axis=-2)
        solved = tf.linalg.triangular_solve(chol, columns, adjoint=True)  # (b, a), both with a 0
        last = tf.ones_like(scale)[..., None, None]
        beta = tf.concat([-solved[..., :-1, :1], last], axis=-2)
        share = to_variance[..., None, None] * beta
        share += tf.matmul(solved[..., 1:], to_mean[..., None])
        pair = tf.concat([beta, share], axis=-1)
        to_joint = tf.matmul(0.5 * pair, tf.reverse(pair, axis=[-1]), transpose_b=True)
        return to_joint, solved[..., :-1, :1] * to_mean[..., None, :]

    return (mean, tf.square(scale)), grad


def inverse_factor_rows(joint: tf.Tensor) -> tf.Tensor:
    """(-b, 1) / tau^1/2, the rows of a factor of the inverse covariance, (N8).

    :param joint: as in `conditional`.
    :return: [..., m + 1], the variable itself last. Cost: m^3 / 3 for each problem.
    """
    chol = cholesky(joint).chol
    # L^T x = (0, 1): the last row of L^-1
    last = tf.one_hot([int(joint.shape[-1]) - 1], int(joint.shape[-1]), dtype=joint.dtype)
    last = tf.broadcast_to(last[0][:, None], tf.concat([tf.shape(joint)[:-1], [1]], axis=0))
    return tf.linalg.triangular_solve(chol, last, adjoint=True)[..., 0]


def quadratic_forms(covariance: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """y^T K^-1 y [..., Q] for covariances [..., m, m] and values [..., m, Q]: cost m^3 / 3 each."""
    whitened = tf.linalg.triangular_solve(cholesky(covariance).chol, values)
    return tf.reduce_sum(tf.square(whitened), axis=-2)


def log_densities(values: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """Normal log densities [...] in nats, the terms of (N2); all arguments are [...]."""
    quadratic = tf.square(values - mean) / variance
    return -0.5 * (math.log(2.0 * math.pi) + tf.math.log(variance) + quadratic)


def vacuous_noise(dtype: tf.DType) -> tf.Tensor:
    """The noise variance [] of an observation without information, in prior variances."""
    # It fills rows of variables with fewer than m neighbours; moments change by machine epsilon
    # squared, and no mask is needed.
    return tf.constant(np.finfo(dtype.as_numpy_dtype).eps ** -2.0, dtype)
