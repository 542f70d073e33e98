"""Conjugate-computation variational inference of generalised linear models, on the weights and on
the data.

eta = X w with X [N, D] and w ~ N(prior_mean [D], prior_precision^-1), prior_precision [D, D] of any
structure. A column of ones in X is an intercept."""

from __future__ import annotations

import numpy as np

from . import conjugate
from .conjugate import Expect, Sites
from .decoupled import brute_force_kl
from .grams import Array
from .sparse_conjugate import TiedSites, fixed_point

__all__ = [
    "bound",
    "dual_predict",
    "dual_prior",
    "dual_weights",
    "inducing_matrices",
    "log_evidence",
    "marginals",
    "posterior",
    "run",
    "step",
    "textbook_bound",
    "weight_step",
]


def posterior(prior_precision: Array, prior_mean: Array, sites: TiedSites) -> tuple[Array, Array]:
    """m [D] and V [D, D] of q(w) from lambda [D] and Lambda [D, D]."""
    V = np.linalg.inv(prior_precision + sites.Lambda2)  # (C29)
    return V @ (prior_precision @ prior_mean + sites.lambda1), V  # (C29)


def marginals(X: Array, m: Array, V: Array) -> tuple[Array, Array]:
    """Means [N] and variances [N] of eta at the rows of X [N, D]."""
    return X @ m, np.diag(X @ V @ X.T)  # (C29)


def weight_step(
    X: Array, sites: TiedSites, eta: Array, g: Array, h: Array, rho: float, scale: float = 1.0
) -> TiedSites:
    """A step of size rho from a batch X [B, D] with mean eta, g and h [B]; scale = N / B.

    Unlike in `sparse_conjugate`, eta has the prior mean in it: these sites are on w, not on w -
    prior_mean."""
    lambda1 = (1 - rho) * sites.lambda1 + rho * scale * X.T @ (g - 2.0 * h * eta)  # (C29)
    return TiedSites(
        lambda1, (1 - rho) * sites.Lambda2 - 2.0 * rho * scale * (X.T * h) @ X
    )  # (C29)


def step(
    prior_precision: Array,
    prior_mean: Array,
    X: Array,
    sites: TiedSites,
    expect: Expect,
    rho: float,
    scale: float = 1.0,
) -> TiedSites:
    """`weight_step` with X and `expect` of the batch."""
    eta, var = marginals(X, *posterior(prior_precision, prior_mean, sites))
    _, g, h = expect(eta, var)
    return weight_step(X, sites, eta, g, h, rho, scale)


def bound(
    prior_precision: Array,
    prior_mean: Array,
    X: Array,
    sites: TiedSites,
    expect: Expect,
    scale: float = 1.0,
) -> float:
    """ELBO of the sites' q(w), with X and `expect` of a batch and scale = N / B."""
    m, V = posterior(prior_precision, prior_mean, sites)
    gap = m - prior_mean
    trace = np.trace(prior_precision @ V) - len(m)
    log_dets = np.linalg.slogdet(prior_precision)[1] + np.linalg.slogdet(V)[1]
    kl = 0.5 * float(trace + gap @ prior_precision @ gap - log_dets)  # (C30)
    return scale * float(np.sum(expect(*marginals(X, m, V)).value)) - kl  # (C30)


def textbook_bound(
    prior_precision: Array, prior_mean: Array, X: Array, m: Array, V: Array, expect: Expect
) -> float:
    """ELBO of any q(w) = N(m [D], V [D, D])."""
    kl = brute_force_kl(m, V, prior_mean, np.linalg.inv(prior_precision))
    return float(np.sum(expect(*marginals(X, m, V)).value)) - kl


def run(
    prior_precision: Array, prior_mean: Array, X: Array, expect: Expect, rho: float = 0.5
) -> TiedSites:
    """Sites at the fixed point of full steps of size rho."""
    return fixed_point(
        lambda sites: step(prior_precision, prior_mean, X, sites, expect, rho), X.shape[1]
    )


def log_evidence(
    prior_precision: Array, prior_mean: Array, X: Array, y: Array, noise: float
) -> float:
    """Exact log p(y) of linear regression with Gaussian noise, y [N]."""
    K, mean = dual_prior(prior_precision, prior_mean, X)
    return conjugate.log_evidence(K, mean, y, noise)


def dual_prior(prior_precision: Array, prior_mean: Array, X: Array) -> tuple[Array, Array]:
    """K [N, N] and prior mean [N] of eta, for the functions of `conjugate`."""
    return X @ np.linalg.inv(prior_precision) @ X.T, X @ prior_mean  # (C31)


def dual_weights(
    prior_precision: Array, prior_mean: Array, X: Array, sites: Sites
) -> tuple[Array, Array]:
    """m [D] and V [D, D] of q(w) from the data's sites, nu and tau [N]."""
    K, mean = dual_prior(prior_precision, prior_mean, X)
    # The weights are "test points" whose prior covariance with eta is prior_cov X^T.
    prior_cov = np.linalg.inv(prior_precision)
    return conjugate.predict(K, prior_cov @ X.T, prior_cov, mean, prior_mean, sites)  # (C31)


def dual_predict(
    prior_precision: Array, prior_mean: Array, X: Array, X_s: Array, sites: Sites
) -> tuple[Array, Array]:
    """Means [T] and variances [T] of eta at the rows of X_s [T, D], from the data's sites."""
    K, mean = dual_prior(prior_precision, prior_mean, X)
    K_sx = X_s @ np.linalg.inv(prior_precision) @ X.T
    K_s, mean_s = dual_prior(prior_precision, prior_mean, X_s)
    mean_s, cov = conjugate.predict(K, K_sx, K_s, mean, mean_s, sites)  # (C31)
    return mean_s, np.diag(cov)


def inducing_matrices(prior_precision: Array, X: Array) -> tuple[Array, Array, Array]:
    """Kuu [D, D], Kuf [D, N] and kdiag [N] with the centred weights as u, for
    `sparse_conjugate`.
    """
    prior_cov = np.linalg.inv(prior_precision)
    return prior_cov, prior_cov @ X.T, np.diag(X @ prior_cov @ X.T)
