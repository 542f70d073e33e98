"""`site_posterior` by LAPACK, without a graph."""

from __future__ import annotations

__all__ = ["DenseSites", "dense_sites"]

from typing import NamedTuple

import numpy as np
from scipy.linalg import get_lapack_funcs, solve_triangular

_SMALL = 1e-3
"""Least tau v at which B^-1 gives the variance: three digits cancel there."""


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
    alpha = _coefficients(K, root, scale, nu)
    share = 1.0 - np.sum(np.square(root), axis=0)  # tau v
    fit = (share > _SMALL) & (scale > 0.0)
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


def _coefficients(K: np.ndarray, root: np.ndarray, scale: np.ndarray, nu: np.ndarray) -> np.ndarray:
    large = np.square(scale) * np.diag(K) > 1.0
    pseudo = np.where(large, nu / np.where(large, scale, 1.0), 0.0)
    rest = np.where(large, 0.0, nu)
    return rest + scale * (root.T @ (root @ (pseudo - scale * (K @ rest))))  # (C10)
