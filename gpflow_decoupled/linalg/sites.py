"""A zero-mean Gaussian prior times one Gaussian site an observation, without K^-1 and without division by a site.

Site n is exp(nu_n f - tau_n f^2 / 2). Positive tau are whitened by L_B, B = I + W^1/2 K W^1/2 (C10); the m rows with a
negative tau are added to that posterior afterwards, through C = I - n V_II n, n = |tau|^1/2, which is positive definite
exactly if K^-1 + W is. K may be singular.
"""

from __future__ import annotations

__all__ = ["SitePosterior", "site_posterior"]

from typing import NamedTuple

import tensorflow as tf

from .cholesky import cholesky
from .triangular import solve


class SitePosterior(NamedTuple):
    """N(u, V) = N(0, K) times the sites, by what predictions and the divergence need."""

    chol: tf.Tensor
    """L_B [L, N, N]"""
    scale: tf.Tensor
    """W^1/2 of the positive sites [L, N]"""
    negative: tf.Tensor
    """F [L, m, N], with F k_Xx what negative sites add to the standard deviations at x; m = 0 where there are none."""
    alpha: tf.Tensor
    """K^-1 u [N, L]"""
    ok: tf.Tensor
    """[], bool: whether K^-1 + W is positive definite."""
    mean: tf.Tensor
    """u [N, L]"""
    variance: tf.Tensor
    """diag V [N, L]"""
    log_det: tf.Tensor
    """[], log det(I + K W), summed over latents."""


def site_posterior(K: tf.Tensor, nu: tf.Tensor, tau: tf.Tensor) -> SitePosterior:
    """(C10), (C11) for K [G, N, N] and sites nu, tau [N, L]; 4/3 N^3 a latent, and N^2 m for m negative sites."""
    weights = tf.transpose(tau)
    rows = tf.where(tf.reduce_any(weights < 0, axis=0))[:, 0]
    scale = tf.sqrt(tf.maximum(weights, 0.0))
    B = scale[:, :, None] * K * scale[:, None, :]
    chol, ok = cholesky(tf.linalg.set_diag(B, tf.linalg.diag_part(B) + 1.0))  # (C10)
    T = solve(chol, scale[:, :, None] * K)  # (C11)
    alpha = _coefficients(K, chol, scale, tf.transpose(nu))
    u = tf.matmul(K, alpha)
    variance = tf.linalg.diag_part(K) - tf.reduce_sum(tf.square(T), axis=-2)  # (C11)

    picked = tf.one_hot(rows, tf.shape(K)[-1], dtype=K.dtype)  # products with it, as gathers of no rows have no gradient
    n = tf.sqrt(tf.maximum(-tf.matmul(weights, picked, transpose_b=True), 0.0))[:, :, None]
    T_rows = tf.matmul(T, picked, transpose_b=True)
    V_rows = tf.matmul(picked, K) - tf.matmul(T_rows, T, transpose_a=True)  # [L, m, N]
    C = -n * tf.matmul(V_rows, picked, transpose_b=True) * tf.linalg.matrix_transpose(n)
    chol_C, ok_C = cholesky(tf.linalg.set_diag(C, tf.linalg.diag_part(C) + 1.0))
    excess = solve(chol_C, n * V_rows)  # [L, m, N]
    pull = solve(chol_C, n * tf.matmul(picked, u))
    u += tf.matmul(excess, pull, transpose_a=True)
    variance += tf.reduce_sum(tf.square(excess), axis=-2)
    back = solve(chol, T_rows, adjoint=True) * scale[:, :, None]  # W^1/2 B^-1 W^1/2 K_:I
    negative = solve(chol_C, n * (picked - tf.linalg.matrix_transpose(back)))
    alpha += tf.matmul(negative, pull, transpose_a=True)

    mean, alpha = (tf.transpose(vector[..., 0]) for vector in (u, alpha))
    log_det = 2.0 * (_log_diagonal(chol) + _log_diagonal(chol_C))
    return SitePosterior(chol, scale, negative, alpha, ok & ok_C, mean, tf.transpose(variance), log_det)


def _coefficients(K: tf.Tensor, chol: tf.Tensor, scale: tf.Tensor, nu: tf.Tensor) -> tf.Tensor:
    """K^-1 u [L, N, 1] of the positive sites, (C10), from nu [L, N].

    The difference nu - tau u loses all digits where tau is large; there it is W^1/2 B^-1 W^-1/2 nu, which is the same.
    """
    large = tf.square(scale) * tf.linalg.diag_part(K) > 1.0
    pseudo = tf.where(large, nu / tf.where(large, scale, tf.ones_like(scale)), tf.zeros_like(nu))
    rest = tf.where(large, tf.zeros_like(nu), nu)[..., None]
    inner = pseudo[..., None] - scale[..., None] * tf.matmul(K, rest)
    return rest + scale[..., None] * solve(chol, solve(chol, inner), adjoint=True)  # (C10)


def _log_diagonal(chol: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.math.log(tf.linalg.diag_part(chol)))
