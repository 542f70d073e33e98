"""Gaussian variables given neighbours: many small problems."""

# In a joint covariance matrix the variable comes last, so the last row of the Cholesky factor gives
# beta = (-b, 1) and (N1),
#
#   variance = beta^T K beta,      mean = b^T y
#
# For a change dK the derivatives are beta^T dK beta and beta^T dK a with a = (K_cc^-1 y, 0): one
# triangular solve more than the value, and no product of two matrices. The leading block of the
# factor is that of the first variables, so their y^T K^-1 y costs nothing.

from __future__ import annotations

__all__ = [
    "Conditional", "conditional", "inverse_factor_rows", "log_densities", "vacuous_noise",
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
    squares: tf.Tensor
    """[..., Q]: y^T K^-1 y of the `first` variables."""


def conditional(joint: tf.Tensor, values: tf.Tensor, first: int = 0) -> Conditional:
    """Mean and variance of a Gaussian variable given m others, (N1).

    :param joint: covariance matrices [..., m + 1, m + 1] of the neighbours' observations, noise
        included, and of the variable, which is last.
    :param values: the observations [..., m, Q], less their means; Q independent columns.
    :param first: the variables of `squares`, a number of at most m.
    :return: means [..., Q], variances [...], the status and squares [..., Q]; differentiable once.
        Cost: m^3 / 3 for each problem.
    """

    @tf.custom_gradient
    def run(joint: tf.Tensor, values: tf.Tensor) -> tuple:
        return _moments(joint, values, first)

    mean, variance, squares = run(joint, values)
    return Conditional(mean, variance, tf.reduce_all(tf.math.is_finite(variance)), squares)


def _moments(joint: tf.Tensor, values: tf.Tensor, first: int) -> tuple:
    chol, _ = cholesky(joint)
    weights = chol[..., -1, :-1, None]  # L_cc^-1 K_ci, [..., m, 1]
    scale = chol[..., -1, -1]
    # the last entry is never used: the row of the variable itself multiplies a zero
    below = tf.zeros_like(values[..., :1, :])
    whitened = tf.linalg.triangular_solve(chol, tf.concat([values, below], axis=-2))[..., :-1, :]
    mean = tf.reduce_sum(weights * whitened, axis=-2)
    squares = tf.reduce_sum(tf.square(whitened[..., :first, :]), axis=-2)

    def solved(columns: tf.Tensor) -> tf.Tensor:
        # L^-T of columns [..., n, Q] that are continued by zeros
        missing = tf.zeros_like(chol[..., int(columns.shape[-2]) :, :1] * columns[..., :1, :])
        return tf.linalg.triangular_solve(chol, tf.concat([columns, missing], -2), adjoint=True)

    def grad(to_mean: tf.Tensor, to_variance: tf.Tensor, to_squares: tf.Tensor) -> tuple:
        found = solved(tf.concat([weights, whitened], axis=-1))  # (b, a), both with a 0
        last = tf.ones_like(scale)[..., None, None]
        beta = tf.concat([-found[..., :-1, :1], last], axis=-2)
        share = to_variance[..., None, None] * beta
        share += tf.matmul(found[..., 1:], to_mean[..., None])
        pair = tf.concat([beta, share], axis=-1)
        to_joint = tf.matmul(0.5 * pair, tf.reverse(pair, axis=[-1]), transpose_b=True)
        to_values = found[..., :-1, :1] * to_mean[..., None, :]
        if first:
            of_first = solved(whitened[..., :first, :])
            share = of_first * to_squares[..., None, :]
            to_joint -= tf.matmul(share, of_first, transpose_b=True)
            to_values += 2.0 * share[..., :-1, :]
        return to_joint, to_values

    return (mean, tf.square(scale), squares), grad


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


def log_densities(values: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """Normal log densities [...] in nats, the terms of (N2); all arguments are [...]."""
    quadratic = tf.square(values - mean) / variance
    return -0.5 * (math.log(2.0 * math.pi) + tf.math.log(variance) + quadratic)


def vacuous_noise(dtype: tf.DType) -> tf.Tensor:
    """The noise variance [] of an observation without information, in prior variances."""
    # It fills rows of variables with fewer than m neighbours; moments change by machine epsilon
    # squared, and no mask is needed.
    return tf.constant(np.finfo(dtype.as_numpy_dtype).eps ** -2.0, dtype)
