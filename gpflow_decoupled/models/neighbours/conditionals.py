"""Rows and new inputs given their neighbours."""

from __future__ import annotations

__all__ = [
    "Factors", "LocalSpread", "Moments", "Observations", "joint_given_rows", "local_spread",
    "mean_values", "new_given_neighbours", "observed_at", "residuals_of",
    "rows_given_neighbours", "scaled",
]  # fmt: skip

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import MeanAndVariance, TensorType
from gpflow.functions import MeanFunction, Zero
from gpflow.kernels import Kernel
from gpflow.likelihoods import Gaussian

from ...covariances.neighbourhoods import neighbourhood_grams
from ...covariances.stationary import covariance
from ...linalg.cholesky import cholesky
from ...linalg.neighbours import conditional, vacuous_noise
from .groups import Group, noise_of_group, noise_variances, relative_jitter

# ---
# Variances scaled by the errors nearby.


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


# ---


class Observations(NamedTuple):
    """Observed rows of one group of Q outputs."""

    X: tf.Tensor
    """[..., D]."""
    residuals: tf.Tensor
    """[..., Q]: the outputs less the mean function; zero where they are missing."""
    noise: tf.Tensor
    """[..., Q]: the variances of the noise, without jitter; or [..., 1], the same for all."""
    number: tf.Tensor | None = None
    """[..., 1]: the rows of the data that each of these is the mean of; None for one each."""
    within: tf.Tensor | None = None
    """[..., Q]: squared distances of those rows from the mean, in units of their noise."""

    def at(self, rows: tf.Tensor) -> Observations:
        """Some of the rows [N, ...], by number [B, n]; negative numbers give any row."""
        rows = tf.maximum(rows, 0)
        return Observations(*(None if part is None else tf.gather(part, rows) for part in self))


class Moments(NamedTuple):
    """Moments of f at new inputs, or of observations."""

    mean: tf.Tensor
    """[B, Q], less the mean function."""
    variance: tf.Tensor
    """[B, Q], times the spread."""
    spread: tf.Tensor
    """[B, Q]: the factor of this variance and of the noise; one without a local spread."""


def rows_given_neighbours(
    kernel: Kernel, joint: Observations, there: tf.Tensor, spread: LocalSpread | None = None
) -> Moments:
    """Moments of observations given their neighbours, (N1), less the mean function.

    :param joint: B neighbourhoods [B, m + 1, ...], nearest rows first and the row in question last.
    :param there: [B, m], bool: which neighbours exist.
    :param spread: scales the variances.
    :return: means and variances, noise included, NaN where a factorisation failed. Cost:
        B (m^3 / 3 + m^2 D), and B m^3 / 3 for each further output if noises differ.
    """
    K = neighbourhood_grams(kernel, joint.X)
    prior = tf.linalg.diag_part(K)
    noise = joint.noise + relative_jitter(K.dtype) * prior[..., None]
    values, exist = joint.residuals[:, :-1], tf.concat([there, tf.ones_like(there[:, :1])], axis=1)
    mean, variance, squares = _conditional(K, noise, exist, values, spread)
    scale = local_spread(spread, squares, there, joint.number, joint.within)
    return Moments(mean, variance * scale, scale)


def new_given_neighbours(
    kernel: Kernel,
    Xnew: tf.Tensor,
    near: Observations,
    there: tf.Tensor,
    spread: LocalSpread | None = None,
    fused: bool = False,
) -> Moments:
    """Moments of f at new inputs given the nearest observations, (N7), less the mean function.

    :param Xnew: [B, D].
    :param near: their neighbours [B, m, ...], nearest first.
    :param there: [B, m], bool: which of them exist.
    :param spread: scales the variances.
    :param fused: as of `neighbourhood_grams`.
    :return: means and variances, NaN where a factorisation failed. Cost as of
        `rows_given_neighbours`.
    """
    K = neighbourhood_grams(kernel, tf.concat([near.X, Xnew[:, None]], axis=1), fused)
    prior = tf.linalg.diag_part(K)
    jitter = relative_jitter(K.dtype)
    # f itself has no noise; what is added to its variance is subtracted again, so that round-off
    # cannot make the last pivot negative
    tiny = tf.constant(np.finfo(K.dtype.as_numpy_dtype).tiny, K.dtype)
    lift = jitter * tf.reduce_max(prior, axis=1) + tiny
    noise = near.noise + jitter * prior[:, :-1, None]
    own = tf.repeat(lift[:, None, None], noise.shape[-1], axis=2)
    exist = tf.concat([there, tf.fill(tf.shape(there[:, :1]), True)], axis=1)
    noise = tf.concat([noise, own], axis=1)
    mean, variance, squares = _conditional(K, noise, exist, near.residuals, spread)
    variance, scale = (
        tf.maximum(variance - lift[:, None], 0.0),
        local_spread(spread, squares, there, near.number, near.within),
    )
    return Moments(mean, variance * scale, scale)


def joint_given_rows(
    kernel: Kernel, Xnew: tf.Tensor, rows: Observations
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Joint moments of f at new inputs given some observations, less the mean function.

    :param Xnew: [B, D].
    :param rows: U observations, with the same noise for all outputs.
    :return: means [B, Q], covariances [B, B], and whether the factorisation succeeded []. Cost: U^3
        / 3 + U^2 B.
    """
    K = covariance(kernel, rows.X)
    prior = tf.linalg.diag_part(K)
    K = tf.linalg.set_diag(K, prior + rows.noise[:, 0] + relative_jitter(K.dtype) * prior)
    chol, ok = cholesky(K)
    A = tf.linalg.triangular_solve(chol, covariance(kernel, rows.X, Xnew))
    whitened = tf.linalg.triangular_solve(chol, rows.residuals)
    cov = covariance(kernel, Xnew) - tf.matmul(A, A, transpose_a=True)
    return tf.matmul(A, whitened, transpose_a=True), cov, ok


def _conditional(
    K: tf.Tensor,
    noise: tf.Tensor,
    there: tf.Tensor,
    values: tf.Tensor,
    spread: LocalSpread | None,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Moments [B, Q] of the last variable of K [B, n, n], and the squares of `local_spread`."""
    # noise: [B, n, Q], or [B, n, 1] for one factorisation for all Q columns.
    # there: [B, n], bool: absent rows carry no information.
    # values: [B, n - 1, Q].
    prior = tf.linalg.diag_part(K)[..., None]
    first = 0 if spread is None else spread.neighbours
    nothing = vacuous_noise(K.dtype) * tf.reduce_max(prior, axis=1, keepdims=True)
    diagonal = prior + tf.where(there[..., None], noise, noise + nothing)
    if noise.shape[-1] == 1:
        found = conditional(tf.linalg.set_diag(K, diagonal[..., 0]), values, first)
        return found.mean, found.variance[:, None] + tf.zeros_like(found.mean), found.squares
    each = tf.repeat(K[:, None], noise.shape[-1], axis=1)
    each = tf.linalg.set_diag(each, tf.linalg.matrix_transpose(diagonal))
    found = conditional(each, tf.linalg.matrix_transpose(values)[..., None], first)
    return found.mean[..., 0], found.variance, found.squares[..., 0]


# ---
# The observations of rows, less the mean function.


def mean_values(mean_function: MeanFunction, X: tf.Tensor, num_outputs: int) -> tf.Tensor:
    """The mean function [..., P] at inputs X [..., D], which it sees as a matrix."""
    shape = tf.concat([tf.shape(X)[:-1], [num_outputs]], axis=0)
    if isinstance(mean_function, Zero):
        return tf.zeros(shape, X.dtype)
    values = mean_function(tf.reshape(X, [-1, X.shape[-1]]))
    return tf.reshape(tf.broadcast_to(values, [tf.reduce_prod(shape[:-1]), num_outputs]), shape)


def residuals_of(mean_function: MeanFunction, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
    """Y less the mean function, [..., P]; zero where Y is NaN."""
    residuals = Y - mean_values(mean_function, X, int(Y.shape[-1]))
    return tf.where(tf.math.is_nan(Y), tf.zeros_like(Y), residuals)


def observed_at(
    group: Group,
    data: tuple[tf.Tensor, tf.Tensor],
    parts: tuple[MeanFunction, Gaussian],
    rows: tf.Tensor,
) -> Observations:
    """Observations of a group of outputs at rows of the data [...]; no pass over all rows.

    :param data: X [N, D] and Y [N, P], NaN where missing.
    :param parts: the mean function and the likelihood.
    """
    X, Y = (tf.gather(array, rows) for array in data)
    residuals = tf.gather(residuals_of(parts[0], X, Y), group.columns, axis=-1)
    return Observations(X, residuals, noise_of_group(noise_variances(parts[1], X, rows), group))


# ---
# Factors of the moments of f, by which predicted classes are as sure as left-out rows bear out.


Factors = tuple[TensorType, TensorType]
"""a and b: predictions have a times the mean of f, and b times its variance."""


def scaled(factors: Factors | None, mean: tf.Tensor, cov: tf.Tensor) -> MeanAndVariance:
    """A mean [..., N, L], and its variances or covariances, times their factors []."""
    return (mean, cov) if factors is None else (factors[0] * mean, factors[1] * cov)
