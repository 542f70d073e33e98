"""A zero-mean Gaussian prior times Gaussian sites, without K^-1 or division by a site."""

from __future__ import annotations

__all__ = [
    "DenseSites", "NormalDensity", "SitePosterior", "dense_sites", "normal_density",
    "normal_log_density", "site_posterior",
]  # fmt: skip

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from scipy.linalg import get_lapack_funcs, solve_triangular

from ..compilation import traced_for_xla
from .cholesky import cholesky
from .triangular import inverse, solve

# Site n is exp(nu_n f - tau_n f^2 / 2), W = diag(tau). Positive tau enter through the factor L_B of
# B = I + W^1/2 K W^1/2 (C10), negative ones I afterwards through C = I - n V_II n, n = |tau|^1/2,
# positive definite exactly if K^-1 + W is. K may be singular.


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


# ---
# `site_posterior` by LAPACK, without a graph.


class DenseSites(NamedTuple):
    """The posterior N(u, V) of N(0, K) times sites exp(nu_n f - tau_n f^2 / 2)."""

    mean: np.ndarray
    """u [N]"""
    variance: np.ndarray
    """diag V [N]"""
    alpha: np.ndarray
    """K^-1 u [N]"""
    log_det: float
    """log det(I + K W), W = diag(tau)."""
    root: np.ndarray
    """R [N, N], lower, with R^T R = B^-1, B = I + W^1/2 K W^1/2 of the positive tau."""
    scale: np.ndarray
    """W^1/2 of the positive tau [N]."""
    negative: np.ndarray
    """F [m, N]: (K + W^-1)^-1 = W^1/2 B^-1 W^1/2 - F^T F."""

    def divergence(self, tau: np.ndarray) -> float:
        """KL from the prior in nats, for the tau [N] of the sites."""
        quadratic = self.alpha @ self.mean - tau @ self.variance
        return 0.5 * float(self.log_det + quadratic)  # (C14)

    def of_covariance(self) -> np.ndarray:
        """The gradient of -KL by K at fixed u and V, [N, N]; N^3 / 3."""
        # 1/2 (alpha alpha^T - (K + W^-1)^-1), as for log N(nu / tau; 0, K + W^-1).
        (multiply,) = get_lapack_funcs(("lauum",), (self.root,))
        inverse = np.tril(multiply(self.root, lower=1)[0])
        inverse += np.tril(inverse, -1).T
        inverse *= self.scale[:, None]
        inverse *= self.scale
        inverse -= self.negative.T @ self.negative
        return 0.5 * (np.outer(self.alpha, self.alpha) - inverse)


def dense_sites(K: np.ndarray, nu: np.ndarray, tau: np.ndarray) -> DenseSites | None:
    """Combine a prior K [N, N] with sites nu, tau [N]; None where the posterior does not exist.

    A third of the processor time of `sites.site_posterior`. Cost: 2/3 N^3, and N^2 for each site
    with negative tau or small tau v.
    """
    scale = np.sqrt(np.maximum(tau, 0.0))
    B = scale[:, None] * K * scale
    B[np.diag_indices_from(B)] += 1.0
    factorise, invert = get_lapack_funcs(("potrf", "trtri"), (B,))
    chol, failed = factorise(B, lower=1, clean=1, overwrite_a=1)
    if failed:
        return None
    log_det = 2.0 * float(np.sum(np.log(np.diag(chol))))
    root = invert(chol, lower=1, overwrite_c=1)[0]
    alpha = _dense_sites_coefficients(K, root, scale, nu)
    share = 1.0 - np.sum(np.square(root), axis=0)  # tau v
    fit = (share > SMALL) & (scale > 0.0)
    variance = np.where(fit, share, 0.0) / np.square(np.where(fit, scale, 1.0))
    others = ~fit
    if np.any(others):
        half = root @ (scale[:, None] * K[:, others])
        variance[others] = np.diag(K)[others] - np.sum(np.square(half), axis=0)  # (C11)
    none = np.zeros((0, len(K)))
    found = DenseSites(K @ alpha, variance, alpha, log_det, root, scale, none)
    return found if np.all(tau >= 0.0) else _with_negative(K, tau, found)


def _with_negative(K: np.ndarray, tau: np.ndarray, found: DenseSites) -> DenseSites | None:
    rows = np.flatnonzero(tau < 0.0)
    n = np.sqrt(-tau[rows])
    half = found.root @ (found.scale[:, None] * K[:, rows])
    rest = np.zeros((len(rows), len(K)))  # rows of (I + K W)^-1, W of the positive sites
    rest[np.arange(len(rows)), rows] = 1.0
    rest -= (found.scale[:, None] * (found.root.T @ half)).T
    V_rows = rest @ K
    C = np.eye(len(rows)) - n[:, None] * V_rows[:, rows] * n
    try:
        chol = np.linalg.cholesky(C)
    except np.linalg.LinAlgError:
        return None
    solve = lambda right: solve_triangular(chol, right, lower=True)  # noqa: E731
    negative, excess = solve(n[:, None] * rest), solve(n[:, None] * V_rows)
    pull = solve(n * found.mean[rows])
    return found._replace(
        mean=found.mean + excess.T @ pull,
        variance=found.variance + np.sum(np.square(excess), axis=0),
        alpha=found.alpha + negative.T @ pull,
        log_det=found.log_det + 2.0 * float(np.sum(np.log(np.diag(chol)))),
        negative=negative,
    )


def _dense_sites_coefficients(
    K: np.ndarray, root: np.ndarray, scale: np.ndarray, nu: np.ndarray
) -> np.ndarray:
    large = np.square(scale) * np.diag(K) > 1.0
    pseudo = np.where(large, nu / np.where(large, scale, 1.0), 0.0)
    rest = np.where(large, 0.0, nu)
    return rest + scale * (root.T @ (root @ (pseudo - scale * (K @ rest))))  # (C10)


# ---
# Log densities of centred normal vectors, by LAPACK: K^-1 by `potri` takes a fifth of a gradient
# through the factor.


class NormalDensity(NamedTuple):
    """log N(r; 0, K) in nats, summed over columns of r, and gradients; NaN for an unusable K."""

    value: float
    of_covariance: np.ndarray
    """1/2 (A A^T - P K^-1) with A = K^-1 r, [N, N]"""
    of_columns: np.ndarray
    """-A [N, P]"""


def normal_density(K: np.ndarray, r: np.ndarray) -> NormalDensity:
    """The log density of the P columns of r [N, P] under a covariance K [N, N], on arrays."""
    value, chol, A = _factorised(K, r)
    return NormalDensity(float(value), _of_covariance(chol, A), -A)


def normal_log_density(K: tf.Tensor, r: tf.Tensor) -> tf.Tensor:
    """The same log density in nats, a scalar, in a graph too; differentiable once.

    NaN where K is not positive definite. XLA refuses it.
    """
    return _density(tf.convert_to_tensor(K), tf.convert_to_tensor(r))


@tf.custom_gradient
def _density(
    K: tf.Tensor, r: tf.Tensor
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
    value, chol, A = tf.numpy_function(_factorised, [K, r], [K.dtype] * 3, stateful=False)
    value.set_shape([])
    chol.set_shape(K.shape)
    A.set_shape(r.shape)

    def pulled_back(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        of_K = tf.numpy_function(_of_covariance, [chol, A], K.dtype, stateful=False)
        of_K.set_shape(K.shape)
        return upstream * of_K, -upstream * A

    return value, pulled_back


@np.errstate(all="ignore")  # overflow is a density that is not finite, and no warning
def _factorised(K: np.ndarray, r: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    factorise, solve = get_lapack_funcs(("potrf", "potrs"), (K,))
    chol, failed = factorise(K, lower=1, clean=1)
    if failed:
        return np.asarray(math.nan, K.dtype), np.full_like(K, math.nan), np.full_like(r, math.nan)
    A = np.ascontiguousarray(solve(chol, r, lower=1)[0])
    N, P = r.shape
    log_det = 2.0 * np.sum(np.log(np.diag(chol)))
    value = -0.5 * (np.sum(r * A) + P * (log_det + N * math.log(2.0 * math.pi)))
    return np.asarray(value, K.dtype), np.ascontiguousarray(chol), A


@np.errstate(all="ignore")
def _of_covariance(chol: np.ndarray, A: np.ndarray) -> np.ndarray:
    (invert,) = get_lapack_funcs(("potri",), (chol,))
    inverse = np.tril(invert(chol, lower=1)[0])
    inverse += np.tril(inverse, -1).T
    return 0.5 * (A @ A.T - A.dtype.type(A.shape[1]) * inverse)
