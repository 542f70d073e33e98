"""The collapsed bound, with a closed gradient."""

# Automatic differentiation of `optimum`'s takes 2.6 times as long. With K = K_bb = L L^T, A = L^-1
# K_bx, B = I + A A^T / s2, mean m = B^-1 A y / s2 and residual r = y - A^T m, for one latent,
# (D31):
#
#   F = -1/2 [N log(2 pi s2) + log|B| + |r|^2 / s2 + |m|^2 + (tr K_xx - |A|^2) / s2]
#   dF/dK_bx = L^-T ((I - B^-1) A + m r^T) / s2
#   dF/dK = -1/2 L^-T (B - 2 I + B^-1 + m m^T) L^-1
#   dF/dy = -r / s2,   dF/d(tr K_xx) = -1 / (2 s2)
#   dF/d(s2) = 1/2 [|r|^2 + tr K_xx - |A|^2] / s2^2 - 1/2 [N - M + tr B^-1] / s2
#
# m is optimal, so its change does not count. A function of the explained variances e_n = |A_n|^2
# with slopes c_n adds, with P = L^-T A diag(c),
#
#   2 P to dF/dK_bx,   -P A^T L^-1 to dF/dK

from __future__ import annotations

__all__ = ["coupled_bound", "coupled_bound_and_left"]

import math
from typing import NamedTuple

import tensorflow as tf
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel

from ...covariances.latents import gram_to_data, gram_to_factor, prior_variance
from ...linalg.cholesky import cholesky
from ...linalg.gaussians import apply_per_latent
from ...linalg.triangular import inverse, lower_root_gram, solve, symmetric_product
from .optimum import Regression, best_precision, solve_columns


class _Pieces(NamedTuple):
    chol: tf.Tensor
    """L [G, M, M]."""
    A: tf.Tensor
    """[G, M, N]."""
    B: tf.Tensor
    """[G, M, M]."""
    chol_B: tf.Tensor
    """The lower factor of B [G, M, M]."""
    mean: tf.Tensor
    """m [M, L]."""
    rest: tf.Tensor
    """r [N, L]."""


def coupled_bound(kernel: Kernel, beta: InducingVariables, data: Regression) -> tf.Tensor:
    """The bound (D31) at the best q(u), in nats, over all latents; 2 N M^2 + M^3, gradient 2 N
    M^2.
    """
    prior = prior_variance(kernel, data.X, full_cov=False)  # [G, N]
    return _bound(*_matrices(kernel, beta, data, prior))


def coupled_bound_and_left(
    kernel: Kernel, beta: InducingVariables, data: Regression
) -> tuple[tf.Tensor, tf.Tensor]:
    """`coupled_bound`, and the prior variances [N, G] that the points leave, not below zero.

    The gradient of the variances costs 2 N M^2 more.
    """
    prior = prior_variance(kernel, data.X, full_cov=False)
    bound, explained = _bound_and_explained(*_matrices(kernel, beta, data, prior))
    return bound, tf.transpose(tf.maximum(prior - explained, 0.0))


def _matrices(
    kernel: Kernel, beta: InducingVariables, data: Regression, prior: tf.Tensor
) -> tuple[tf.Tensor, ...]:
    # prior variances are per kernel, where K is per kernel and points
    trace = tf.reduce_sum(prior) * (data.y.shape[1] / prior.shape[0])
    K, cross = gram_to_factor(kernel, beta), gram_to_data(kernel, beta, data.X)
    return K, cross, trace, data.y, data.noise


@tf.custom_gradient
def _bound(*matrices: tf.Tensor) -> tuple:
    value, _, grad = _forward(*matrices)
    return value, grad


@tf.custom_gradient
def _bound_and_explained(*matrices: tf.Tensor) -> tuple:
    value, pieces, grad = _forward(*matrices)

    def both(upstream: tf.Tensor, slopes: tf.Tensor) -> tuple:
        to_K, to_cross, *others = grad(upstream)
        sloped = solve(pieces.chol, pieces.A * slopes[:, None, :], adjoint=True)  # P
        inner = symmetric_product(pieces.A, slopes)
        half = solve(pieces.chol, inner, adjoint=True)
        to_K -= solve(pieces.chol, tf.linalg.matrix_transpose(half), adjoint=True)
        return to_K, to_cross + 2.0 * sloped, *others

    return (value, tf.reduce_sum(tf.square(pieces.A), axis=1)), both


def _forward(
    K: tf.Tensor, cross: tf.Tensor, trace: tf.Tensor, y: tf.Tensor, noise: tf.Tensor
) -> tuple:
    pieces = _pieces(K, cross, y, noise)
    shared = y.shape[1] / K.shape[0]  # how many latents each group stands for
    count, log_det = tf.cast(tf.size(y), y.dtype), tf.math.log(tf.linalg.diag_part(pieces.chol_B))
    unexplained = (
        tf.reduce_sum(tf.square(pieces.rest)) + trace - shared * tf.reduce_sum(tf.square(pieces.A))
    )
    quadratic = unexplained / noise + tf.reduce_sum(tf.square(pieces.mean))
    value = -0.5 * (
        count * tf.math.log(2.0 * math.pi * noise)
        + 2.0 * shared * tf.reduce_sum(log_det)
        + quadratic
    )

    def grad(upstream: tf.Tensor) -> tuple:
        B_inv = lower_root_gram(inverse(pieces.chol_B))
        to_K, to_cross = _to_gram(pieces, B_inv, shared), _to_cross(pieces, B_inv, shared, noise)
        free = count - shared * tf.reduce_sum(
            1.0 - tf.linalg.diag_part(B_inv)
        )  # N - M + tr B^-1, of all latents
        to_noise = 0.5 * (unexplained / noise - free) / noise
        gradients = to_K, to_cross, -0.5 / noise, -pieces.rest / noise, to_noise
        return tuple(upstream * gradient for gradient in gradients)

    return value, pieces, grad


def _pieces(K: tf.Tensor, cross: tf.Tensor, y: tf.Tensor, noise: tf.Tensor) -> _Pieces:
    chol = cholesky(K).chol
    A = solve(chol, cross)
    B = best_precision(A, noise)  # (D26)
    chol_B = cholesky(B).chol
    mean = solve_columns(chol_B, apply_per_latent(A, y / noise))  # (D30)
    return _Pieces(chol, A, B, chol_B, mean, y - apply_per_latent(A, mean, adjoint=True))


def _to_cross(pieces: _Pieces, B_inv: tf.Tensor, shared: float, noise: tf.Tensor) -> tf.Tensor:
    mean, rest = (_per_group(vectors, B_inv) for vectors in (pieces.mean, pieces.rest))
    of_A = tf.linalg.set_diag(-shared * B_inv, shared * (1.0 - tf.linalg.diag_part(B_inv)))
    # L^-T times the [M, M] factor, so that the solve does not grow with N
    left, right = (solve(pieces.chol, factor / noise, adjoint=True) for factor in (of_A, mean))
    return tf.matmul(left, pieces.A) + tf.matmul(right, rest, transpose_b=True)


def _to_gram(pieces: _Pieces, B_inv: tf.Tensor, shared: float) -> tf.Tensor:
    mean = _per_group(pieces.mean, B_inv)
    inner = shared * (pieces.B + B_inv) + tf.matmul(mean, mean, transpose_b=True)
    inner = tf.linalg.set_diag(inner, tf.linalg.diag_part(inner) - 2.0 * shared)
    half = solve(pieces.chol, -0.5 * inner, adjoint=True)
    return solve(pieces.chol, tf.linalg.matrix_transpose(half), adjoint=True)


def _per_group(vectors: tf.Tensor, matrices: tf.Tensor) -> tf.Tensor:
    """Columns per latent [M, L] as columns per group [G, M, L / G], one each in `matrices`."""
    return vectors[None] if matrices.shape[0] == 1 else tf.transpose(vectors)[..., None]
