"""A mean on all data: the linear system at sites, its certified gap, and the two lower bounds of
the evidence.

The sites have precisions w [N] and pseudo-observations y [N]; D = diag(1 / w). Gaussian noise has w
= 1 / noise and y the observations less the mean function. `K` [N, N] is the kernel matrix of the
inputs and `Q` its Nystrom matrix from beta. One latent function; the matrices are dense, and
everything is solved by `numpy.linalg`."""

from __future__ import annotations

import numpy as np

from .collapsed import (
    elbo_at_coefficients,
    exact_posterior,
    log_evidence,
    optimal_covariance,
    whitened_mean_given_gamma,
)
from .decoupled import Process, orthogonal
from .grams import Array, Grams

__all__ = [
    "at_data", "bound", "coefficients", "descent", "distance", "draw", "evidence_bound",
    "exact_posterior", "gap", "log_evidence", "posterior", "quadratic", "site_bound",
]  # fmt: skip


def at_data(k: Grams) -> Grams:
    """The Gram matrices with gamma = x, the training inputs."""
    return k._replace(K_g=k.K_x, K_gb=k.K_xb, K_xg=k.K_x)


def coefficients(K: Array, precisions: Array, y: Array) -> Array:
    """The best coefficients a [N]: (K + D) a = y."""
    return np.linalg.solve(K + np.diag(1.0 / precisions), y)  # (D34)


def quadratic(K: Array, Q: Array, precisions: Array, y: Array, a: Array) -> float:
    """Data fit plus mean divergence, times two, at any a with q(u) at its best."""
    D = np.diag(1.0 / precisions)
    r = y - (K + D) @ a
    return float(r @ np.linalg.solve(Q + D, r) + 2.0 * a @ y - a @ (K + D) @ a)  # (D32)


def gap(K: Array, Q: Array, precisions: Array, y: Array, a: Array) -> float:
    """What certifies a: nats that the bound at a is at most below its maximum over the mean."""
    D = np.diag(1.0 / precisions)
    r = y - (K + D) @ a
    return 0.5 * float(r @ np.linalg.solve(Q + D, r))  # (D32)


def distance(K: Array, Q: Array, precisions: Array, y: Array, a: Array) -> float:
    """Nats that the bound at a is below its maximum over the mean."""
    best = y @ np.linalg.solve(K + np.diag(1.0 / precisions), y)
    return 0.5 * (quadratic(K, Q, precisions, y, a) - float(best))


def bound(K: Array, Q: Array, y: Array, noise: float, a: Array) -> float:
    """The ELBO of Gaussian noise at any a, with q(u) at its best."""
    return elbo_at_coefficients(K, Q, y, noise, a)  # (D31)


def evidence_bound(K: Array, Q: Array, y: Array, noise: float, a: Array) -> float:
    """The bound of Artemev, Burt & van der Wilk 2021, equations (8) and (10), at any a."""
    N, trace = len(y), float(np.trace(K - Q)) / noise
    return bound(K, Q, y, noise, a) + 0.5 * (trace - N * float(np.log(1.0 + trace / N)))


def site_bound(K: Array, Q: Array, precisions: Array, y: Array, a: Array) -> float:
    """The same as `bound` for noise of another precision at each observation."""
    D = np.diag(1.0 / precisions)
    log_det = np.linalg.slogdet(2.0 * np.pi * (Q + D))[1]
    return -0.5 * (
        float(log_det) + float(precisions @ np.diag(K - Q)) + quadratic(K, Q, precisions, y, a)
    )


def descent(
    K: Array,
    precisions: Array,
    y: Array,
    start: Array,
    batches: Array,
    rate: float,
    momentum: float,
    keep: float,
) -> Array:
    """Stochastic dual descent on rows `batches` [T, B]: algorithm 1 of Lin et al. 2024 as it is
    printed, from any start.

    Its kernel matrix is W^1/2 K W^1/2, its noise variance 1, its targets W^1/2 y and its unknown
    alpha = W^-1/2 a."""
    root, N = np.sqrt(precisions), len(y)
    kernel, b = root[:, None] * K * root, root * y
    alpha = start / root
    velocity, average = np.zeros(N), alpha.copy()
    for batch in batches:
        at, g = alpha + momentum * velocity, np.zeros(N)
        for i in batch:
            e_i = np.eye(N)[i]
            g += N / len(batch) * ((kernel[i] + e_i) @ at - b[i]) * e_i
        velocity = momentum * velocity - rate * g
        alpha = alpha + velocity
        average = keep * alpha + (1.0 - keep) * average  # (D52)
    return root * average


def draw(
    K: Array,
    K_new: Array,
    precisions: Array,
    y: Array,
    prior: Array,
    prior_new: Array,
    noise: Array,
) -> Array:
    """A draw [T] of f at other inputs given the sites, by Matheron's rule.

    `prior` [N] and `prior_new` [T] are the values of one draw from the prior, `noise` [N] is one of
    N(0, D)."""
    return prior_new + K_new @ coefficients(K, precisions, y - prior - noise)  # (D53)


def posterior(k: Grams, y: Array, noise: float, a: Array) -> Process:
    """q(f) at x for mean coefficients a [M_g] and the best q(u), from the definition of the
    orthogonal family.
    """
    m = k.chol @ whitened_mean_given_gamma(k, y, noise, a)
    return orthogonal(k, a, m, optimal_covariance(k, noise))
