"""Proximal-gradient steps of a Gaussian q(f) in mean and covariance (Khan et al. 2016), and the
score function's gradients.

The bound's likelihood term is replaced by its tangent in (mean, diagonal of the covariance), and
the divergence from the prior stays exact. The length of a step is its divergence from the present
q. Sites are on f itself, prior mean included, as in `conjugate`."""

from __future__ import annotations

import numpy as np

from .conjugate import Sites
from .decoupled import brute_force_kl
from .grams import Array

__all__ = ["dense_step", "objective", "published_step", "score_estimates", "site_step"]

Gaussian = tuple[Array, Array]
"""Mean [N] and covariance [N, N]."""


def objective(
    q: Gaussian,
    prior: Gaussian,
    old: Gaussian,
    g: Array,
    h: Array,
    rho: float,
    A: Array | None = None,
) -> float:
    """What a step maximises over q: the tangent with slopes g, h [N], less both divergences, beta =
    rho / (1 - rho).

    With columns A [M, N], q is over weights v [M], and f = A^T v.
    """
    A = np.eye(len(g)) if A is None else A
    tangent = g @ A.T @ q[0] + h @ np.diag(A.T @ q[1] @ A)
    return float(
        tangent - brute_force_kl(*q, *prior) - (1.0 - rho) / rho * brute_force_kl(*q, *old)
    )  # (C63)


def dense_step(
    prior: Gaussian, old: Gaussian, g: Array, h: Array, rho: float, columns: Array | None = None
) -> Gaussian:
    """Its maximiser, with explicit inverses."""
    B = np.eye(len(g)) if columns is None else columns
    K_inv, V_inv = np.linalg.inv(prior[1]), np.linalg.inv(old[1])
    cov = np.linalg.inv((1.0 - rho) * V_inv + rho * (K_inv - 2.0 * B * h @ B.T))  # (C64)
    A = (1.0 - rho) * V_inv + rho * K_inv
    return np.linalg.solve(
        A, (1.0 - rho) * V_inv @ old[0] + rho * (K_inv @ prior[0] + B @ g)
    ), cov  # (C64)


def site_step(prior: Gaussian, sites: Sites, g: Array, h: Array, rho: float) -> Sites:
    """The same step as an update of sites [N], with K multiplied out of the inverses."""
    prior_mean, K = prior
    nu, tau = (1.0 - rho) * sites.nu + rho * g, (1.0 - rho) * sites.tau
    ahead = prior_mean + np.linalg.inv(np.eye(len(K)) + K * tau) @ K @ (
        nu - tau * prior_mean
    )  # (C65)
    return Sites(nu - 2.0 * rho * h * ahead, tau - 2.0 * rho * h)  # (C65)


def published_step(
    prior: Gaussian, old: Gaussian, tau: Array, g: Array, h: Array, rho: float
) -> tuple[Gaussian, Array]:
    """The step with one factorisation: the new precisions serve the mean, too. Returns (mean,
    covariance) and tau [N].
    """
    prior_mean, K = prior
    tau = (1.0 - rho) * tau - 2.0 * rho * h
    cov = np.linalg.inv(np.linalg.inv(K) + np.diag(tau))
    return (old[0] + rho * cov @ (g - np.linalg.solve(K, old[0] - prior_mean)), cov), tau  # (C66)


def score_estimates(densities: Array, epsilon: Array, variance: Array) -> tuple[Array, Array]:
    """Estimates of g and h [N] from log densities [S, N] at mean + sqrt(variance) epsilon, each
    less the others' mean.
    """
    S = len(densities)
    g, h = np.zeros_like(variance), np.zeros_like(variance)
    for s in range(S):
        others = np.delete(densities, s, axis=0)
        less = densities[s] - (others.mean(axis=0) if S > 1 else 0.0)
        g += less * epsilon[s] / np.sqrt(variance) / S  # (C67)
        h += less * (epsilon[s] ** 2 - 1.0) / (2.0 * variance) / S  # (C67)
    return g, h
