"""Rows and new inputs given their neighbours, for one group of outputs."""

from __future__ import annotations

__all__ = ["Observations", "joint_given_rows", "new_given_neighbours", "rows_given_neighbours"]

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel

from ...covariances.neighbours import neighbourhood_grams
from ...linalg.cholesky import cholesky
from ...linalg.neighbours import Conditional, conditional, vacuous_noise
from .groups import relative_jitter


class Observations(NamedTuple):
    """Observed rows of one group of Q outputs."""

    X: tf.Tensor
    """[..., D]."""
    residuals: tf.Tensor
    """[..., Q]: the outputs less the mean function; zero where they are missing."""
    noise: tf.Tensor
    """[...]: the variances of the noise, without jitter."""

    def at(self, rows: tf.Tensor) -> Observations:
        """Some of the rows [N, ...], by number [B, n]; negative numbers give any row."""
        rows = tf.maximum(rows, 0)
        return Observations(*(tf.gather(part, rows) for part in self))


def rows_given_neighbours(kernel: Kernel, joint: Observations, there: tf.Tensor) -> Conditional:
    """Moments of observations given their neighbours, (N1), less the mean function.

    :param kernel: of one latent function.
    :param joint: B neighbourhoods [B, m + 1, ...], with the row in question last.
    :param there: [B, m], bool: which neighbours exist.
    :return: means [B, Q] and variances [B], noise included. Cost: B (m^3 / 3 + m^2 D).
    """
    K = neighbourhood_grams(kernel, joint.X)
    prior = tf.linalg.diag_part(K)
    noise = joint.noise + relative_jitter(K.dtype) * prior
    there = tf.concat([there, tf.ones_like(there[:, :1])], axis=1)
    return conditional(_with_noise(K, prior, noise, there), joint.residuals[:, :-1])


def new_given_neighbours(
    kernel: Kernel, Xnew: tf.Tensor, near: Observations, there: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Moments of f at new inputs given the nearest observations, (N7), less the mean function.

    :param kernel: of one latent function.
    :param Xnew: [B, D].
    :param near: their neighbours [B, m, ...].
    :param there: [B, m], bool: which of them exist.
    :return: means [B, Q], variances [B], and whether the factorisations succeeded [].
    """
    K = neighbourhood_grams(kernel, tf.concat([near.X, Xnew[:, None]], axis=1))
    prior = tf.linalg.diag_part(K)
    jitter = relative_jitter(K.dtype)
    # f itself has no noise; what is added to its variance is subtracted again, so that round-off
    # cannot make the last pivot negative
    tiny = tf.constant(np.finfo(K.dtype.as_numpy_dtype).tiny, K.dtype)
    lift = jitter * tf.reduce_max(prior, axis=1) + tiny
    noise = tf.concat([near.noise + jitter * prior[:, :-1], lift[:, None]], axis=1)
    there = tf.concat([there, tf.fill(tf.shape(there[:, :1]), True)], axis=1)
    mean, variance, ok = conditional(_with_noise(K, prior, noise, there), near.residuals)
    return mean, tf.maximum(variance - lift, 0.0), ok


def joint_given_rows(
    kernel: Kernel, Xnew: tf.Tensor, rows: Observations
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Joint moments of f at new inputs given some observations, less the mean function.

    :param kernel: of one latent function.
    :param Xnew: [B, D].
    :param rows: U observations, the same for all inputs.
    :return: means [B, Q], covariances [B, B], and whether the factorisation succeeded []. Cost: U^3
        / 3 + U^2 B.
    """
    K = kernel(rows.X)
    prior = tf.linalg.diag_part(K)
    K = tf.linalg.set_diag(K, prior + rows.noise + relative_jitter(K.dtype) * prior)
    chol, ok = cholesky(K)
    A = tf.linalg.triangular_solve(chol, kernel(rows.X, Xnew))
    whitened = tf.linalg.triangular_solve(chol, rows.residuals)
    covariance = kernel(Xnew) - tf.matmul(A, A, transpose_a=True)
    return tf.matmul(A, whitened, transpose_a=True), covariance, ok


def _with_noise(K: tf.Tensor, prior: tf.Tensor, noise: tf.Tensor, there: tf.Tensor) -> tf.Tensor:
    """Add noise [B, n] to the diagonal of K [B, n, n]; absent rows carry no information."""
    nothing = vacuous_noise(K.dtype) * tf.reduce_max(prior, axis=1, keepdims=True)
    return tf.linalg.set_diag(K, prior + tf.where(there, noise, noise + nothing))
