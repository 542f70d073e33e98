"""Natural and expectation parameters, and one step of each optimizer, for the orthogonally
decoupled family.

`k` holds the Gram matrices with x = the batch, g and h [N] are dE/dmean and dE/dvariance at the
TOTAL mean of each datum, and `scale` is the number of data over the batch size."""

from __future__ import annotations

import numpy as np

from .decoupled import orthogonal
from .grams import Array, Grams
from .likelihoods import Likelihood, expectation


def natural_parameters(a_g: Array, m: Array, S: Array) -> tuple[Array, Array, Array]:
    """(j_gamma [M_g], j_beta [M_b], Theta [M_b, M_b]) of the orthogonal basis."""
    S_inv = np.linalg.inv(S)
    return a_g, S_inv @ m, 0.5 * S_inv  # (D36)


def expectation_parameters(k: Grams, a_g: Array, m: Array, S: Array) -> tuple[Array, Array, Array]:
    """(m_gamma [M_g], m_beta [M_b], Lambda [M_b, M_b]) of the orthogonal basis."""
    return k.C_g @ a_g, m, -(S + np.outer(m, m))  # (D37)


def log_normaliser(k: Grams, j_gamma: Array, j_beta: Array, Theta: Array) -> float:
    """Convex function whose gradient is the expectation parameters."""
    quadratic = j_gamma @ k.C_g @ j_gamma + j_beta @ np.linalg.inv(2 * Theta) @ j_beta
    return 0.5 * float(quadratic - np.linalg.slogdet(2 * Theta)[1])


def hybrid_natural_parameters(
    k: Grams, a_g: Array, a_b: Array, S: Array
) -> tuple[Array, Array, Array]:
    """(j_gamma [M_g], j_beta [M_b], Theta [M_b, M_b]) of the hybrid basis."""
    S_inv, q = np.linalg.inv(S), k.K_gb.T @ a_g
    return a_g, S_inv @ (k.K_b @ a_b + q) - np.linalg.inv(k.K_b) @ q, 0.5 * S_inv  # (D38)


def hybrid_expectation_parameters(
    k: Grams, a_g: Array, a_b: Array, S: Array
) -> tuple[Array, Array, Array]:
    """(m_gamma [M_g], m_beta [M_b], Lambda [M_b, M_b]) of the hybrid basis."""
    m_beta = k.K_b @ a_b + k.K_gb.T @ a_g
    return k.K_g @ a_g + k.K_gb @ a_b, m_beta, -(S + np.outer(m_beta, m_beta))  # (D39)


def coupled_gradient(
    k: Grams, m: Array, S: Array, g: Array, h: Array, scale: float = 1.0
) -> tuple[Array, Array]:
    """Gradient of the ELBO in m [M_b] and in the full symmetric S [M_b, M_b]."""
    P, K_b_inv = k.projection, np.linalg.inv(k.K_b)
    grad_S = scale * (P * h) @ P.T + 0.5 * np.linalg.inv(S) - 0.5 * K_b_inv
    return scale * P @ g - K_b_inv @ m, grad_S


def natural_gradient_step(
    k: Grams, m: Array, S: Array, g: Array, h: Array, rho: float, scale: float = 1.0
) -> tuple[Array, Array]:
    """m [M_b], S [M_b, M_b] after a step of size rho, from the sites' targets."""
    P, S_inv = k.projection, np.linalg.inv(S)
    # P^T m is the beta part of the mean only; g and h already know the rest.
    target = scale * P @ (g - 2.0 * h * (P.T @ m))
    theta = (1 - rho) * S_inv @ m + rho * target  # (D44)
    precision = (1 - rho) * S_inv + rho * (
        np.linalg.inv(k.K_b) - 2.0 * scale * (P * h) @ P.T
    )  # (D44)
    return np.linalg.solve(precision, theta), np.linalg.inv(precision)


def natural_gradient_step_dual(
    k: Grams, m: Array, S: Array, g: Array, h: Array, rho: float, scale: float = 1.0
) -> tuple[Array, Array]:
    """The same step as natural parameters plus rho times the gradient in the expectation
    parameters.
    """
    grad_m, grad_S = coupled_gradient(k, m, S, g, h, scale)
    _, j_beta, Theta = natural_parameters(np.zeros(0), m, S)
    j_beta = j_beta + rho * (grad_m - 2.0 * grad_S @ m)  # (D40)
    Theta = Theta - rho * grad_S  # (D40)
    S = np.linalg.inv(2.0 * Theta)  # (D37)
    return S @ j_beta, S


def whitened_site_step(
    k: Grams, lambda1: Array, Lambda2: Array, g: Array, h: Array, rho: float, scale: float = 1.0
) -> tuple[Array, Array]:
    """Whitened sites lambda1 [M_b], Lambda2 [M_b, M_b] after a step of size rho."""
    A = k.features
    m_white, _ = whitened_sites_to_moments(lambda1, Lambda2)
    lambda1 = (1 - rho) * lambda1 + rho * scale * A @ (g - 2.0 * h * (A.T @ m_white))  # (D46)
    return lambda1, (1 - rho) * Lambda2 - 2.0 * rho * scale * (A * h) @ A.T  # (D46)


def whitened_sites_to_moments(lambda1: Array, Lambda2: Array) -> tuple[Array, Array]:
    """Whitened m [M_b], S [M_b, M_b] of whitened sites; unwhiten with L_b m and L_b S L_b^T."""
    S_white = np.linalg.inv(np.eye(len(lambda1)) + Lambda2)
    return S_white @ lambda1, S_white


def moments_to_whitened_sites(k: Grams, m: Array, S: Array) -> tuple[Array, Array]:
    """Whitened sites lambda1 [M_b], Lambda2 [M_b, M_b] of q(u) = N(m, S)."""
    L, S_inv = k.chol, np.linalg.inv(S)
    return L.T @ S_inv @ m, L.T @ S_inv @ L - np.eye(len(m))  # (D45)


def gamma_gradient(k: Grams, a_g: Array, g: Array, scale: float = 1.0) -> Array:
    """Gradient of the ELBO in a_g, [M_g]."""
    return scale * k.C_xg.T @ g - k.C_g @ a_g  # (D41)


def gamma_step_exact(
    k: Grams, a_g: Array, g: Array, eta: float, scale: float = 1.0, epsilon: float = 0.0
) -> Array:
    """a_g [M_g] after a natural-gradient step; epsilon is the jitter in the metric C_g + epsilon I
    only.
    """
    metric = k.C_g + epsilon * np.eye(len(a_g))
    return a_g + eta * np.linalg.solve(metric, gamma_gradient(k, a_g, g, scale))  # (D41)


def gamma_step_diagonal(
    k: Grams, a_g: Array, g: Array, eta: float, scale: float = 1.0, epsilon: float = 0.0
) -> Array:
    """a_g [M_g] after a step preconditioned by diag(C_g) + epsilon."""
    return a_g + eta * gamma_gradient(k, a_g, g, scale) / (np.diag(k.C_g) + epsilon)  # (D42)


def gamma_step_limit(k: Grams, h: Array, scale: float = 1.0) -> tuple[float, float]:
    """The largest stable eta of `gamma_step_exact` at fixed m, and a cheap lower bound on it."""
    w = -2.0 * scale * h
    similar = np.sqrt(w)[:, None] * (k.C_xg @ np.linalg.solve(k.C_g, k.C_xg.T)) * np.sqrt(w)
    largest = np.linalg.eigvalsh(similar)[-1]
    return 2.0 / (1.0 + largest), 2.0 / (1.0 + float(w @ np.diag(k.C_x)))  # (D43)


def newton_hessian(k: Grams, h: Array, scale: float = 1.0) -> Array:
    """Minus the Hessian of the ELBO over (a_g, whitened m), [M_g + M_b, M_g + M_b]."""
    w, A, C_xg = -2.0 * scale * h, k.features, k.C_xg
    cross = (A * w) @ C_xg
    top = np.hstack([k.C_g + (C_xg.T * w) @ C_xg, cross.T])
    return np.vstack([top, np.hstack([cross, np.eye(len(A)) + (A * w) @ A.T])])  # (D49)


def newton_step(
    k: Grams,
    a_g: Array,
    m_white: Array,
    g: Array,
    h: Array,
    scale: float = 1.0,
    damping: float = 1.0,
) -> tuple[Array, Array]:
    """a_g [M_g] and whitened m [M_b] after a Newton step, by a direct solve."""
    gradient = np.concatenate([gamma_gradient(k, a_g, g, scale), scale * k.features @ g - m_white])
    step = damping * np.linalg.solve(newton_hessian(k, h, scale), gradient)  # (D49)
    return a_g + step[: len(a_g)], m_white + step[len(a_g) :]


def optimum(
    k: Grams,
    y: Array,
    likelihood: Likelihood,
    steps: int = 60,
    prior_mean: Array | float = 0.0,
    order: int = 100,
) -> tuple[Array, Array, Array]:
    """Full-batch optimum (a_g, m, S) of the orthogonal family for a log-concave likelihood, from
    the prior.

    Alternates the Newton step (D49) in the mean with the S part of the natural-gradient step (D44).
    """
    a_g, m, S = np.zeros(len(k.K_g)), np.zeros(len(k.K_b)), k.K_b
    for step in range(steps):
        q = orthogonal(k, a_g, m, S)
        _, g, h = expectation(likelihood, y, q.mean + prior_mean, np.diag(q.cov), order)
        damping = min(1.0, 0.2 * (step + 1))
        a_g, m_white = newton_step(k, a_g, np.linalg.solve(k.chol, m), g, h, damping=damping)
        _, S = natural_gradient_step(k, m, S, g, h, rho=1.0 if step else 0.5)
        m = k.chol @ m_white
    return a_g, m, S


def stationarity(
    k: Grams, a_g: Array, m: Array, S: Array, g: Array, h: Array
) -> tuple[Array, Array, Array]:
    """Residuals [M_g], [M_b], [M_b, M_b] that vanish at the full-batch optimum of the orthogonal
    family.
    """
    P = k.projection
    precision = np.linalg.inv(k.K_b) - 2.0 * (P * h) @ P.T
    return k.C_xg.T @ g - k.C_g @ a_g, m - k.K_xb.T @ g, np.linalg.inv(S) - precision  # (D34)
