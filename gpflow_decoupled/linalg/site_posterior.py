"""A zero-mean Gaussian prior times Gaussian sites, without K^-1 or division by a site."""

# Site n is exp(nu_n f - tau_n f^2 / 2), W = diag(tau). Positive tau enter through the factor L_B of
# B = I + W^1/2 K W^1/2 (C10), negative ones I afterwards through C = I - n V_II n, n = |tau|^1/2,
# positive definite exactly if K^-1 + W is. K may be singular.

from __future__ import annotations

__all__ = ["SitePosterior", "site_posterior"]

from typing import NamedTuple

import tensorflow as tf

from ..compilation import traced_for_xla
from .cholesky import cholesky
from .triangular import inverse, solve

SMALL = 1e-3
"""Least tau v at which B^-1 gives the variance: three digits cancel there."""


class SitePosterior(NamedTuple):
    """The posterior N(u, V) of N(0, K) times the sites, as predictions and the KL need it."""

    chol: tf.Tensor
    """L_B [L, N, N]"""
    scale: tf.Tensor
    """W^1/2 of the positive sites [L, N]"""
    negative: tf.Tensor
    """F [L, m, N]: the negative sites add |F k_Xx|^2 to the variance at x."""
    alpha: tf.Tensor
    """K^-1 u [N, L]"""
    ok: tf.Tensor
    """[], bool: K^-1 + W is positive definite."""
    mean: tf.Tensor
    """u [N, L]"""
    variance: tf.Tensor
    """diag V [N, L]"""
    log_det: tf.Tensor
    """[], log det(I + K W), summed over latents."""
    inverse: tf.Tensor
    """L_B^-1 [L, N, N]"""


def site_posterior(K: tf.Tensor, nu: tf.Tensor, tau: tf.Tensor) -> SitePosterior:
    """Combine a prior K [G, N, N] with sites nu, tau [N, L]: (C10)-(C12).

    2/3 N^3 per latent, and N^2 for each site with negative tau or small tau v.
    """
    sites, weights = tf.transpose(nu), tf.transpose(tau)
    moments = _add_negative(K, weights, _of_positive(K, sites, weights))
    mean, alpha, variance = (
        tf.transpose(part) for part in (moments.mean, moments.alpha, moments.variance)
    )
    return moments._replace(mean=mean, alpha=alpha, variance=variance)


def _of_positive(K: tf.Tensor, nu: tf.Tensor, weights: tf.Tensor) -> SitePosterior:
    """Posterior of the positive sites alone, with moments [L, N]: (C10), (C11)."""
    scale = tf.sqrt(tf.maximum(weights, 0.0))
    B = scale[:, :, None] * K * scale[:, None, :]
    chol, ok = cholesky(tf.linalg.set_diag(B, tf.linalg.diag_part(B) + 1.0))  # (C10)
    alpha = _coefficients(K, chol, scale, nu)
    root = inverse(chol)
    mean, variance = tf.matmul(K, alpha)[..., 0], _variance(K, chol, root, scale)
    none = tf.zeros_like(chol[:, :0])
    return SitePosterior(
        chol, scale, none, alpha[..., 0], ok, mean, variance, 2.0 * _log_diagonal(chol), root
    )


def _variance(K: tf.Tensor, chol: tf.Tensor, root: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
    """Diagonal of V [L, N] of the positive sites, (1 - diag B^-1) / tau, at half (C11)'s cost."""
    # (C11) takes over where tau v is small and the difference cancels.
    share = 1.0 - tf.reduce_sum(tf.square(root), axis=-2)  # tau v
    fit = (share > SMALL) & (scale > 0.0)
    variance = tf.where(fit, share, 0.0) / tf.square(tf.where(fit, scale, tf.ones_like(scale)))
    others = _picked(~fit, K)
    T = solve(chol, scale[:, :, None] * tf.matmul(K, others, transpose_b=True))
    exact = tf.matmul(tf.linalg.diag_part(K), others, transpose_b=True) - tf.reduce_sum(
        tf.square(T), axis=-2
    )  # (C11)
    return tf.where(tf.reduce_sum(others, axis=0) > 0.0, tf.matmul(exact, others), variance)


def _add_negative(K: tf.Tensor, weights: tf.Tensor, positive: SitePosterior) -> SitePosterior:
    chol, scale = positive.chol, positive.scale[:, :, None]
    picked = _picked(weights < 0.0, K)
    rows = tf.matmul(weights, picked, transpose_b=True)
    below = rows < 0.0
    # without the infinite slope at 0
    n = tf.where(below, tf.sqrt(tf.where(below, -rows, 1.0)), 0.0)[:, :, None]
    back = scale * solve(
        chol, solve(chol, scale * tf.matmul(K, picked, transpose_b=True)), adjoint=True
    )
    # rows of (I + K W)^-1 [L, m, N], W of the positive sites
    rest = picked - tf.linalg.matrix_transpose(back)
    V_rows = tf.matmul(rest, K)
    C = -n * tf.matmul(V_rows, picked, transpose_b=True) * tf.linalg.matrix_transpose(n)
    chol_C, ok = cholesky(tf.linalg.set_diag(C, tf.linalg.diag_part(C) + 1.0))
    excess, negative = solve(chol_C, n * V_rows), solve(chol_C, n * rest)
    pull = solve(chol_C, n * tf.matmul(picked, positive.mean[..., None]))
    return positive._replace(
        negative=negative,
        alpha=positive.alpha + tf.matmul(negative, pull, transpose_a=True)[..., 0],
        ok=positive.ok & ok,
        mean=positive.mean + tf.matmul(excess, pull, transpose_a=True)[..., 0],
        variance=positive.variance + tf.reduce_sum(tf.square(excess), axis=-2),
        log_det=positive.log_det + 2.0 * _log_diagonal(chol_C),
    )


def _picked(chosen: tf.Tensor, K: tf.Tensor) -> tf.Tensor:
    """Rows [m, N] of the identity where any latent is chosen; for XLA all, with zeros."""
    if traced_for_xla():
        return tf.linalg.diag(tf.cast(tf.reduce_any(chosen, axis=0), K.dtype))
    return tf.one_hot(tf.where(tf.reduce_any(chosen, axis=0))[:, 0], tf.shape(K)[-1], dtype=K.dtype)


def _coefficients(K: tf.Tensor, chol: tf.Tensor, scale: tf.Tensor, nu: tf.Tensor) -> tf.Tensor:
    # nu - tau u cancels for large tau; there W^1/2 B^-1 W^-1/2 nu is used.
    large = tf.square(scale) * tf.linalg.diag_part(K) > 1.0
    pseudo = tf.where(large, nu / tf.where(large, scale, tf.ones_like(scale)), tf.zeros_like(nu))
    rest = tf.where(large, tf.zeros_like(nu), nu)[..., None]
    inner = pseudo[..., None] - scale[..., None] * tf.matmul(K, rest)
    return rest + scale[..., None] * solve(chol, solve(chol, inner), adjoint=True)  # (C10)


def _log_diagonal(chol: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.math.log(tf.linalg.diag_part(chol)))
