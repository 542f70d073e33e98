"""Laplace's approximation of a full GP: Rasmussen & Williams 2006, section 3.4.

`newton` is their Algorithm 3.1, for log-concave densities; `climb` finds the mode of any density by
a general optimizer. The prior mean is part of f, as in `conjugate`."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from .conjugate import Sites
from .expectation_propagation import Approximation
from .grams import Array
from .likelihoods import Likelihood

__all__ = ["at_mode", "climb", "newton"]


def newton(
    K: Array, prior_mean: Array, y: Array, likelihood: Likelihood, steps: int = 200
) -> Approximation:
    """Algorithm 3.1 from the prior mean, with its log evidence (3.32)."""
    N, u = len(y), np.zeros(len(y))
    for _ in range(steps):
        W = -likelihood.curvature(y, prior_mean + u)
        root = np.sqrt(W)
        chol = np.linalg.cholesky(np.eye(N) + root[:, None] * K * root)
        b = W * u + likelihood.score(y, prior_mean + u)
        a = b - root * np.linalg.solve(chol.T, np.linalg.solve(chol, root * (K @ b)))
        before, u = u, K @ a
        if np.max(np.abs(u - before)) < 1e-13:
            return at_mode(K, prior_mean, y, likelihood, a)
    raise ValueError(f"Newton's method has no fixed point after {steps} steps: damp it")


def climb(
    K: Array, prior_mean: Array, y: Array, likelihood: Likelihood, start: Array
) -> Approximation:
    """The mode near K start, by BFGS in a = K^-1 u, polished by plain Newton steps with the true
    second derivatives.
    """

    def loss(a: Array) -> float:
        u = K @ a
        return float(0.5 * a @ u - np.sum(likelihood.log_prob(y, prior_mean + u)))

    def slope(a: Array) -> Array:
        return K @ (a - likelihood.score(y, prior_mean + K @ a))

    a = minimize(loss, start, jac=slope, method="BFGS", options={"gtol": 1e-8, "maxiter": 5000}).x
    for _ in range(20):
        f = prior_mean + K @ a
        jacobian = np.eye(len(a)) - likelihood.curvature(y, f)[:, None] * K
        a = a - np.linalg.solve(jacobian, a - likelihood.score(y, f))
    return at_mode(K, prior_mean, y, likelihood, a)


def at_mode(
    K: Array, prior_mean: Array, y: Array, likelihood: Likelihood, a: Array
) -> Approximation:
    """Sites on f with the derivatives of the density at the mode f = m_0 + K a, and the log
    evidence (3.32).
    """
    f = prior_mean + K @ a
    W = -likelihood.curvature(y, f)  # (C55)
    peak = np.sum(likelihood.log_prob(y, f)) - 0.5 * a @ K @ a  # (C55)
    volume = np.linalg.slogdet(np.eye(len(a)) + K * W)[1]
    return Approximation(
        Sites(likelihood.score(y, f) + W * f, W), float(peak - 0.5 * volume)
    )  # (C56)
