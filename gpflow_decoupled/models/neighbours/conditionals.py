"""Rows and new inputs given their neighbours."""

from __future__ import annotations

__all__ = [
    "Moments", "Observations", "joint_given_rows", "new_given_neighbours",
    "rows_given_neighbours",
]  # fmt: skip

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel

from ...covariances.centring import covariance
from ...covariances.neighbours import neighbourhood_grams
from ...linalg.cholesky import cholesky
from ...linalg.neighbours import conditional, vacuous_noise
from .groups import relative_jitter
from .spread import LocalSpread, local_spread


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
