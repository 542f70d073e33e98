"""An inverse-Wishart prior, which bounds Sigma_0."""

# Sigma_0 ~ IW(nu, Psi), nu = n_0 - K - 1 and Psi = n_0 M, has mode M and counts as n_0 documents.
# Bound and log prior depend on Sigma_0 by (T16)
#
#   -D/2 [log|Sigma_0| + tr(Sigma_0^-1 S)] - n_0/2 [log|Sigma_0| + tr(Sigma_0^-1 M)],
#   S = 1/D sum_d [V_d + (m_d - mu_0)(m_d - mu_0)^T]
#
# so the best Sigma_0 is (D S + n_0 M) / (D + n_0).

from __future__ import annotations

__all__ = ["CovariancePrior", "CovarianceMoments", "moved"]

from typing import NamedTuple

import numpy as np
from scipy.special import multigammaln


class CovariancePrior(NamedTuple):
    """The prior of Sigma_0, proper for n_0 > 2 K."""

    documents: float
    """n_0"""
    mode: np.ndarray
    """M [K, K]"""

    def best(self, scatter: np.ndarray, documents: float) -> np.ndarray:
        """The best Sigma_0 [K, K] for D = `documents` of scatter S [K, K]."""
        # (T16)
        return (documents * scatter + self.documents * self.mode) / (documents + self.documents)

    def log_density(self, Sigma: np.ndarray) -> float:
        """log p(Sigma_0) in nats, normalised, for Sigma_0 [K, K]."""
        K, nu = len(Sigma), self.documents - len(Sigma) - 1.0
        log_Psi = np.linalg.slogdet(self.mode)[1] + K * np.log(self.documents)
        constant = 0.5 * nu * (log_Psi - K * np.log(2.0)) - multigammaln(0.5 * nu, K)
        trace = np.trace(np.linalg.solve(Sigma, self.mode))
        # (T17)
        return float(constant - 0.5 * self.documents * (np.linalg.slogdet(Sigma)[1] + trace))


class CovarianceMoments(NamedTuple):
    """mu_0 and Sigma_0, and the scatter behind Sigma_0."""

    mu: np.ndarray
    """[K]"""
    Sigma: np.ndarray
    """[K, K]"""
    scatter: np.ndarray
    """S [K, K]; Sigma_0 without a prior."""


def moved(
    now: CovarianceMoments,
    mu: np.ndarray,
    second: np.ndarray,
    rate: float,
    prior: CovariancePrior | None,
    documents: float,
) -> CovarianceMoments:
    """Step by `rate` in the moments of the documents; return them with their best Sigma_0.

    The documents have mean mu [K] and second moment [K, K] about zero; a rate of 1 forgets `now`.
    """
    second = (1.0 - rate) * (now.scatter + np.outer(now.mu, now.mu)) + rate * second
    mu = (1.0 - rate) * now.mu + rate * mu
    scatter = second - np.outer(mu, mu)
    return CovarianceMoments(
        mu, scatter if prior is None else prior.best(scatter, documents), scatter
    )
