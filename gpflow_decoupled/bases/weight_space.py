"""Linear kernels in weight space: k(x, x') = phi(x)^T phi(x') with p whitened features, and the posterior of their weights.

With the prior covariance R R^T of the weights, phi(x) = R^T x and A = X R [N, p]; C = I + A^T Lambda A is p x p, for lambda
of any sign as long as it is positive definite: (V8).
"""

from __future__ import annotations

__all__ = ["WeightPosterior", "prior_root", "weight_features", "weight_posterior"]

from typing import NamedTuple

import tensorflow as tf
from gpflow.kernels import Constant, Kernel

from ..covariances.latents import gram, gram_to_data
from ..inducing.linear_kernel import LinearWeights
from ..inducing.weights import Weights, weight_parts
from ..linalg.cholesky import cholesky
from ..linalg.triangular import solve


class WeightPosterior(NamedTuple):
    """The moments at N observations, from matrices of p weights."""

    chol: tf.Tensor
    """L_C [L, p, p]"""
    pulled: tf.Tensor
    """A^T alpha [p, L]"""
    ok: tf.Tensor
    mean: tf.Tensor
    """u [N, L]"""
    variance: tf.Tensor
    """v [N, L]"""
    log_det: tf.Tensor
    """[], log|C|, summed over latents."""


def prior_root(kernel: Kernel, X: tf.Tensor) -> tf.Tensor:
    """R [1, p, p], lower, of the weights of a linear kernel on inputs X [N, D]; p^3 / 3.

    Raises `NotImplementedError` for other kernels.
    """
    return cholesky(gram(kernel, _weights(kernel, X))).chol


def weight_features(kernel: Kernel, X: tf.Tensor, root: tf.Tensor) -> tf.Tensor:
    """phi(X) = R^T X^T [1, p, N] for X [N, D] and R [1, p, p]; N p^2."""
    return solve(root, gram_to_data(kernel, _weights(kernel, X), X))


def weight_posterior(A: tf.Tensor, alpha: tf.Tensor, lam: tf.Tensor) -> WeightPosterior:
    """(V8) for A [N, p] and alpha, lam [N, L]; N p^2 + p^3 / 3 a latent, and p N L memory."""
    C = tf.matmul(A, tf.transpose(lam)[:, :, None] * A, transpose_a=True)
    chol, ok = cholesky(tf.linalg.set_diag(C, tf.linalg.diag_part(C) + 1.0))  # (V7)
    pulled = tf.matmul(A, alpha, transpose_a=True)
    T = solve(chol, tf.broadcast_to(tf.transpose(A), [tf.shape(lam)[1], *tf.unstack(tf.shape(A)[::-1])]))
    variance = tf.transpose(tf.reduce_sum(tf.square(T), axis=-2))  # (V8)
    log_det = 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(chol)))
    return WeightPosterior(chol, pulled, ok, -tf.matmul(A, pulled), variance, log_det)


def _weights(kernel: Kernel, X: tf.Tensor) -> Weights:
    counts = []
    for part in weight_parts(kernel):
        if isinstance(part, Constant):
            counts.append(1)
        else:
            counts.append(part.num_weights if isinstance(part, LinearWeights) else part.slice(X)[0].shape[-1])
    return Weights(sum(counts))
