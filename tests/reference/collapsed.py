"""Gaussian noise: exact regression, and each family's optimum and collapsed bound at fixed
hyperparameters.

`k` holds the Gram matrices with x = the training inputs, `y` is [N] and `noise` the noise variance.
"""

from __future__ import annotations

import numpy as np

from .decoupled import Process, hybrid_to_orthogonal
from .grams import Array, Grams, coupled_union, mean_union, residual

# Nystrom matrices of overlapping point sets (beta inside X = gamma) need the pseudo-inverse.
RCOND = 1e-13


def log_normal(y: Array, cov: Array) -> float:
    """log N(y | 0, cov) for y [N], cov [N, N]."""
    return -0.5 * float(
        len(y) * np.log(2 * np.pi) + np.linalg.slogdet(cov)[1] + y @ np.linalg.solve(cov, y)
    )


def log_evidence(K_x: Array, y: Array, noise: float) -> float:
    """Exact log p(y) of regression with K_x [N, N]."""
    return log_normal(y, K_x + noise * np.eye(len(y)))


def exact_posterior(
    K_x: Array, K_sx: Array, K_s: Array, y: Array, noise: float
) -> tuple[Array, Array]:
    """Exact posterior mean [T], covariance [T, T] of f, from K_x [N, N], K_sx [T, N], K_s
    [T, T].
    """
    inverse = np.linalg.inv(K_x + noise * np.eye(len(y)))
    return K_sx @ inverse @ y, K_s - K_sx @ inverse @ K_sx.T


def nystrom(K_m: Array, K_xm: Array) -> Array:
    """K_xm K_m^-1 K_mx, [N, N], for K_m [M, M] and K_xm [N, M]."""
    return K_xm @ np.linalg.pinv(K_m, rcond=RCOND, hermitian=True) @ K_xm.T


def sgpr_bound(k: Grams, y: Array, noise: float) -> float:
    """Titsias' collapsed bound of beta; gamma is ignored."""
    Q = nystrom(k.K_b, k.K_xb)
    return log_normal(y, Q + noise * np.eye(len(y))) - 0.5 / noise * float(np.trace(k.K_x - Q))


def gaussian_elbo(q: Process, y: Array, noise: float, scale: float = 1.0) -> float:
    """scale * E_q log N(y | f, noise) - KL in closed form, for a process q at the training
    inputs.
    """
    error = (y - q.mean) ** 2 + np.diag(q.cov)
    return scale * float(-0.5 * np.sum(np.log(2 * np.pi * noise) + error / noise)) - q.kl


def optimal_covariance(k: Grams, noise: float) -> Array:
    """S [M_b, M_b] of families (1), (3), (4), (5)."""
    return k.K_b @ np.linalg.inv(k.K_b + k.K_xb.T @ k.K_xb / noise) @ k.K_b  # (D26)


def optimal_whitened_covariance(k: Grams, noise: float) -> Array:
    """S whitened by L_b, [M_b, M_b]."""
    return np.linalg.inv(np.eye(len(k.K_b)) + k.features @ k.features.T / noise)  # (D26)


def optimal_inverse(k: Grams, noise: float) -> Array:
    """B [M_b, M_b] of family (2)."""
    return k.projection @ k.projection.T / noise  # (D27)


def optimal_decoupled(k: Grams, y: Array, noise: float) -> tuple[Array, Array]:
    """a [M_a] on alpha = k's gamma and S [M_b, M_b] of family (3)."""
    precision = k.K_g + k.K_xg.T @ k.K_xg / noise
    a = np.linalg.pinv(precision, rcond=RCOND, hermitian=True) @ k.K_xg.T @ y / noise  # (D28)
    return a, optimal_covariance(k, noise)


def optimal_hybrid(k: Grams, y: Array, noise: float) -> tuple[Array, Array, Array]:
    """a_g [M_g], a_b [M_b], S [M_b, M_b] of family (4)."""
    a, S = optimal_decoupled(mean_union(k), y, noise)
    return a[: len(k.K_g)], a[len(k.K_g) :], S  # (D28)


def optimal_orthogonal(k: Grams, y: Array, noise: float) -> tuple[Array, Array, Array]:
    """a_g [M_g], m [M_b], S [M_b, M_b] of family (5), through the union Gram matrix."""
    a_g, a_b, S = optimal_hybrid(k, y, noise)
    return a_g, hybrid_to_orthogonal(k, a_g, a_b), S  # (D29)


def optimal_orthogonal_residual(k: Grams, y: Array, noise: float) -> tuple[Array, Array]:
    """a_g [M_g] and whitened m [M_b] of family (5), through the residual kernel."""
    W_inv = np.linalg.inv(k.Q_x + noise * np.eye(len(y)))
    a_g = np.linalg.inv(k.C_g + k.C_xg.T @ W_inv @ k.C_xg) @ k.C_xg.T @ W_inv @ y  # (D30)
    return a_g, whitened_mean_given_gamma(k, y, noise, a_g)


def whitened_mean_given_gamma(k: Grams, y: Array, noise: float, a_g: Array) -> Array:
    """The best whitened m [M_b] for a fixed a_g [M_g]."""
    A = k.features
    precision = noise * np.eye(len(A)) + A @ A.T
    return np.linalg.solve(precision, A @ (y - k.C_xg @ a_g))  # (D30)


def collapsed_bound(Q_alpha: Array, Q_beta: Array, K_x: Array, y: Array, noise: float) -> float:
    """Optimal ELBO from the Nystrom matrices [N, N] of the mean basis, Q_alpha, and the covariance
    basis.
    """
    eye = noise * np.eye(len(y))
    log_det = np.linalg.slogdet(Q_beta + eye)[1]
    fit = float(y @ np.linalg.solve(Q_alpha + eye, y))
    trace = float(np.trace(K_x - Q_beta)) / noise
    return -0.5 * (len(y) * np.log(2 * np.pi) + log_det + fit + trace)  # (D31)


def collapsed_decoupled(k: Grams, y: Array, noise: float) -> float:
    """Optimal ELBO of families (2) and (3): mean on alpha = k's gamma only."""
    return collapsed_bound(nystrom(k.K_g, k.K_xg), nystrom(k.K_b, k.K_xb), k.K_x, y, noise)  # (D31)


def collapsed_orthogonal(k: Grams, y: Array, noise: float) -> float:
    """Optimal ELBO of families (4) and (5): mean on gamma and beta."""
    return collapsed_decoupled(mean_union(k), y, noise)  # (D31)


def cglb_quadratic(K_x: Array, Q_beta: Array, y: Array, noise: float, v: Array) -> float:
    """CGLB's upper bound on y^T (K_x + noise I)^-1 y from any v [N]."""
    K_v = K_x @ v + noise * v
    r = y - K_v
    return float(
        r @ np.linalg.solve(Q_beta + noise * np.eye(len(y)), r) + 2 * v @ y - v @ K_v
    )  # (D32)


def elbo_at_coefficients(K_x: Array, Q_beta: Array, y: Array, noise: float, v: Array) -> float:
    """The optimal ELBO of family (5) with gamma = X and a_g = v fixed; CGLB's bound has a smaller
    trace term.
    """
    fit = cglb_quadratic(K_x, Q_beta, y, noise, v)
    log_det = np.linalg.slogdet(Q_beta + noise * np.eye(len(y)))[1]
    trace = float(np.trace(K_x - Q_beta)) / noise
    return -0.5 * (len(y) * np.log(2 * np.pi) + log_det + fit + trace)  # (D31)


def orthogonal_quadratic(k: Grams, y: Array, noise: float, a_g: Array) -> float:
    """Data fit plus mean KL, times two, of family (5) at a_g [M_g] with the best m; at gamma = X
    the quadratic of CGLB.
    """
    m_white = whitened_mean_given_gamma(k, y, noise, a_g)
    mean = k.features.T @ m_white + k.C_xg @ a_g
    return float(np.sum((y - mean) ** 2) / noise + m_white @ m_white + a_g @ k.C_g @ a_g)  # (D32)


def optimal_solve(k: Grams, y: Array, noise: float) -> tuple[Array, Array, Array, Array]:
    """m [M_b], S [M_b, M_b], m_v [M_g], S_v [M_g, M_g] of family (6); the means are those of family
    (5).
    """
    a_g, m, S = optimal_orthogonal(k, y, noise)
    return m, S, k.C_g @ a_g, optimal_covariance(residual(k), noise)


def collapsed_solve(k: Grams, y: Array, noise: float) -> float:
    """Optimal ELBO of family (6): SGPR of all the points less the mean-field gap."""
    return sgpr_bound(coupled_union(k), y, noise) - mean_field_gap(k, noise)  # (D33)


def mean_field_gap(k: Grams, noise: float) -> float:
    """What q(u) q(v_perp) loses against the joint q, never negative."""
    A, A_perp = k.features, residual(k).features

    def log_det(F: Array) -> float:
        return float(np.linalg.slogdet(np.eye(len(F)) + F @ F.T / noise)[1])

    return 0.5 * (log_det(A) + log_det(A_perp) - log_det(np.vstack([A, A_perp])))  # (D33)
