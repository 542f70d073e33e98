"""The Lagrangian of decoupled variational inference (Khan 2014), slowly: inverses, and
maximisations without derivatives.

One latent. `f` are the site functions of the observations, each of (h, sigma): see `lcl_sites`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from . import lcl_sites as sites
from .decoupled import brute_force_kl
from .grams import Array

__all__ = ["Linearised", "bound", "dual", "posterior", "posterior_of_weights", "predict", "primal"]


class Linearised(NamedTuple):
    """A subproblem: the point it is linearised at, and its proximal weights, [N] each."""

    h: Array
    sigma: Array
    rho: Array
    kappa: Array


def posterior(K: Array, prior_mean: Array, alpha: Array, lam: Array) -> tuple[Array, Array]:
    """Mean [N] and covariance [N, N] of q from K [N, N] and multipliers [N]."""
    V = np.linalg.inv(np.linalg.inv(K) + np.diag(lam))  # (V7)
    return prior_mean - K @ alpha, V  # (V7)


def posterior_of_weights(
    prior: Array, features: Array, alpha: Array, lam: Array
) -> tuple[Array, Array]:
    """Mean [p] and covariance [p, p] of the weights w of u = features w, w ~ N(0, prior), from
    multipliers [N].

    K = features prior features^T may be singular: this works in its range, where nothing is badly
    conditioned."""
    V_w = np.linalg.inv(np.linalg.inv(prior) + features.T @ np.diag(lam) @ features)  # (V8)
    return -prior @ features.T @ alpha, V_w


def predict(
    K: Array, K_sx: Array, K_s: Array, prior_mean_s: Array, alpha: Array, lam: Array
) -> tuple[Array, Array]:
    """Mean [T] and covariance [T, T] at other points, by conditioning the prior on q(u)."""
    _, V = posterior(K, np.zeros(len(K)), alpha, lam)
    P = K_sx @ np.linalg.inv(K)
    return prior_mean_s - K_sx @ alpha, K_s - P @ K_sx.T + P @ V @ P.T


def bound(
    K: Array, prior_mean: Array, m: Array, V: Array, f: Sequence[sites.SiteFunction]
) -> float:
    """F of any q = N(m, V): (V1)."""
    total = sum(f_n(*pair) for f_n, pair in zip(f, zip(m, np.sqrt(np.diag(V)))))
    return -total - brute_force_kl(m, V, prior_mean, K)


def primal(
    K: Array,
    prior_mean: Array,
    m: Array,
    V: Array,
    sub: Linearised,
    f: Sequence[sites.SiteFunction],
) -> float:
    """Q_k of any q = N(m, V): (V13)."""
    tangent = 0.5 * sub.sigma + np.diag(V) / (2.0 * sub.sigma)
    penalty = 0.5 * sub.rho * (tangent - sub.sigma) ** 2 + 0.5 * sub.kappa * (m - sub.h) ** 2
    total = sum(f_n(*pair) for f_n, pair in zip(f, zip(m, tangent)))
    return -total - float(np.sum(penalty)) - brute_force_kl(m, V, prior_mean, K)  # (V13)


def dual(
    K: Array,
    prior_mean: Array,
    alpha: Array,
    lam: Array,
    sub: Linearised,
    f: Sequence[sites.SiteFunction],
) -> tuple[float, Array]:
    """D_k and the maximisers [N, 2]: (V14)."""
    found = []
    for n in range(len(K)):
        start = (sub.h[n], sub.sigma[n])

        def penalised(h: float, sigma: float, n: int = n) -> float:
            return f[n](h, sigma) + 0.5 * sub.kappa[n] * (h - sub.h[n]) ** 2

        found.append(sites.maximise(penalised, start, alpha[n], lam[n], sub.sigma[n], sub.rho[n]))
    found = np.array(found)
    log_det = np.linalg.slogdet(np.eye(len(K)) + K * lam)[1]
    value = (
        -0.5 * log_det + 0.5 * alpha @ K @ alpha - prior_mean @ alpha + np.sum(found[:, 2])
    )  # (V14)
    return float(value), found[:, :2]
