"""The six variational families from their definitions, with explicit inverses, and the brute-force
KL.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import NamedTuple

import numpy as np

from .grams import Array, Grams, joint

# Beyond this condition number of the prior, rounding alone is larger than the tolerances the KL is
# tested to.
MAX_CONDITION = 1e9


class Process(NamedTuple):
    """Mean [N] and covariance [N, N] of q(f(x)), and KL[q || p] of the whole process."""

    mean: Array
    cov: Array
    kl: float


def covariance_kl(K_b: Array, S: Array) -> float:
    """The covariance part of the KL divergence, for S and K_b [M_b, M_b]."""
    log_ratio = np.linalg.slogdet(K_b)[1] - np.linalg.slogdet(S)[1]
    return 0.5 * float(np.trace(np.linalg.inv(K_b) @ S) - len(K_b) + log_ratio)  # (D2)


def coupled_covariance(k: Grams, S: Array) -> Array:
    """Covariance [N, N] that q(u) = N(., S) implies at x; shared by all families but (2) and
    (6).
    """
    K_b_inv = np.linalg.inv(k.K_b)
    return k.K_x - k.K_xb @ K_b_inv @ (k.K_b - S) @ K_b_inv @ k.K_xb.T  # (D3)


def coupled(k: Grams, m: Array, S: Array) -> Process:
    """Family (1), SVGP: m [M_b], S [M_b, M_b] of q(u). Gamma is ignored."""
    K_b_inv = np.linalg.inv(k.K_b)
    mean = k.K_xb @ K_b_inv @ m  # (D3)
    kl = 0.5 * float(m @ K_b_inv @ m) + covariance_kl(k.K_b, S)  # (D4)
    return Process(mean, coupled_covariance(k, S), kl)


def decoupled_inverse(k: Grams, a: Array, B: Array) -> Process:
    """Family (2): a [M_a] on alpha = k's gamma, B [M_b, M_b] positive definite."""
    inverse = np.linalg.inv(np.linalg.inv(B) + k.K_b)
    mean = k.K_xg @ a  # (D5)
    cov = k.K_x - k.K_xb @ inverse @ k.K_xb.T  # (D5)
    log_det = np.linalg.slogdet(np.eye(len(B)) + k.K_b @ B)[1]
    kl = 0.5 * float(a @ k.K_g @ a + log_det - np.trace(k.K_b @ inverse))  # (D6)
    return Process(mean, cov, kl)


def decoupled_inverse_factor(k: Grams, a: Array, C: Array) -> Process:
    """Family (2) from a factor B = C C^T, C [M_b, R], which may be singular or zero."""
    R = C.shape[1]
    H = np.eye(R) + C.T @ k.K_b @ C
    H_inv = np.linalg.inv(H)
    cov = k.K_x - k.K_xb @ C @ H_inv @ C.T @ k.K_xb.T  # (D7)
    kl = 0.5 * float(a @ k.K_g @ a + np.linalg.slogdet(H)[1] - R + np.trace(H_inv))  # (D7)
    return Process(k.K_xg @ a, cov, kl)


def decoupled_coupled(k: Grams, a: Array, S: Array) -> Process:
    """Family (3): a [M_a] on alpha = k's gamma, covariance S [M_b, M_b] of the coupled family."""
    kl = 0.5 * float(a @ k.K_g @ a) + covariance_kl(k.K_b, S)  # (D9)
    return Process(k.K_xg @ a, coupled_covariance(k, S), kl)  # (D9)


def hybrid(k: Grams, a_g: Array, a_b: Array, S: Array) -> Process:
    """Family (4): a_g [M_g], a_b [M_b], S [M_b, M_b]."""
    mean = k.K_xg @ a_g + k.K_xb @ a_b  # (D10)
    quadratic = a_g @ k.K_g @ a_g + 2.0 * a_g @ k.K_gb @ a_b + a_b @ k.K_b @ a_b
    return Process(
        mean, coupled_covariance(k, S), 0.5 * float(quadratic) + covariance_kl(k.K_b, S)
    )  # (D11)


def orthogonal(k: Grams, a_g: Array, m: Array, S: Array) -> Process:
    """Family (5): a_g [M_g], and m [M_b], S [M_b, M_b] of q(u)."""
    K_b_inv = np.linalg.inv(k.K_b)
    mean = k.K_xb @ K_b_inv @ m + k.C_xg @ a_g  # (D13)
    kl = 0.5 * float(a_g @ k.C_g @ a_g + m @ K_b_inv @ m) + covariance_kl(k.K_b, S)  # (D14)
    return Process(mean, coupled_covariance(k, S), kl)


def solve(k: Grams, m: Array, S: Array, m_v: Array, S_v: Array) -> Process:
    """Family (6), SOLVE-GP: m [M_b], S [M_b, M_b] of q(u) and m_v [M_g], S_v [M_g, M_g] of
    q(v_perp).
    """
    K_b_inv, C_g_inv = np.linalg.inv(k.K_b), np.linalg.inv(k.C_g)
    mean = k.K_xb @ K_b_inv @ m + k.C_xg @ C_g_inv @ m_v  # (D16)
    cov = coupled_covariance(k, S) - k.C_xg @ C_g_inv @ (k.C_g - S_v) @ C_g_inv @ k.C_xg.T  # (D17)
    kl = 0.5 * float(m @ K_b_inv @ m + m_v @ C_g_inv @ m_v)
    return Process(mean, cov, kl + covariance_kl(k.K_b, S) + covariance_kl(k.C_g, S_v))  # (D18)


def joint_posterior(
    family: Callable[..., Process], k: Grams, *parameters: Array
) -> tuple[Array, Array]:
    """Mean and covariance of q over (u, f(gamma), f(x)), [M_b + M_g + N]; exact with jitter in
    k.K_b.
    """
    return family(joint(k), *parameters)[:2]


def brute_force_kl(mean_q: Array, cov_q: Array, mean_p: Array, cov_p: Array) -> float:
    """KL[N(mean_q, cov_q) || N(mean_p, cov_p)] for means [F], covariances [F, F].

    Raises: ValueError: cov_p is too ill conditioned (use a rougher kernel or points further apart),
        or a
            covariance is not positive definite.
    """
    condition = np.linalg.cond(cov_p)
    if not condition < MAX_CONDITION:
        raise ValueError(f"cov_p has condition number {condition:.1e}: move the grid points apart")
    log_det_p, log_det_q = np.linalg.slogdet(cov_p)[1], np.linalg.slogdet(cov_q)[1]
    if min(np.linalg.eigvalsh(cov_p)[0], np.linalg.eigvalsh(cov_q)[0]) <= 0:
        raise ValueError(
            "a covariance is not positive definite, its KL divergence is infinite or undefined"
        )
    gap = mean_q - mean_p
    # tr(cov_p^-1 cov_q) - F as the trace of a difference: the F unit terms never enter the sum.
    trace = np.trace(np.linalg.solve(cov_p, cov_q - cov_p))
    return 0.5 * float(trace + gap @ np.linalg.solve(cov_p, gap) + log_det_p - log_det_q)


def brute_force_process_kl(family: Callable[..., Process], k: Grams, *parameters: Array) -> float:
    """KL of the joint (u, f(gamma), f(x)): `family(k, *parameters).kl` for every jitter and every
    x.
    """
    prior = joint(k).K_x
    return brute_force_kl(*joint_posterior(family, k, *parameters), np.zeros(len(prior)), prior)


def inverse_to_covariance(K_b: Array, B: Array) -> Array:
    """S of the coupled family with the covariance of family (2), B [M_b, M_b]."""
    return np.linalg.inv(np.linalg.inv(K_b) + B)  # (D8)


def covariance_to_inverse(K_b: Array, S: Array) -> Array:
    """B of family (2) with the covariance S [M_b, M_b]; not positive semi-definite unless S <=
    K_b.
    """
    return np.linalg.inv(S) - np.linalg.inv(K_b)  # (D8)


def orthogonal_to_hybrid(k: Grams, a_g: Array, m: Array) -> Array:
    """a_b [M_b] of the hybrid process with the same a_g."""
    return np.linalg.inv(k.K_b) @ (m - k.K_gb.T @ a_g)  # (D15)


def hybrid_to_orthogonal(k: Grams, a_g: Array, a_b: Array) -> Array:
    """m [M_b] of the orthogonal process with the same a_g."""
    return k.K_b @ a_b + k.K_gb.T @ a_g  # (D15)


def orthogonal_to_solve(k: Grams, a_g: Array) -> tuple[Array, Array]:
    """m_v [M_g], S_v [M_g, M_g] of the SOLVE process with the same a_g."""
    return k.C_g @ a_g, k.C_g


def solve_as_coupled(k: Grams, m: Array, S: Array, m_v: Array, S_v: Array) -> tuple[Array, Array]:
    """Mean [M_g + M_b] and covariance of (f(gamma), u) under SOLVE, for
    `coupled(coupled_union(k), ...)`.
    """
    W = k.K_gb @ np.linalg.inv(k.K_b)
    return np.concatenate([W @ m + m_v, m]), np.block([[S_v + W @ S @ W.T, W @ S], [S @ W.T, S]])


def r1(k: Grams, a_g: Array, indices: tuple[int, ...]) -> float:
    """Estimator R1 of a_g^T C_g a_g from G row indices of gamma."""
    M_g, i = len(a_g), list(indices)
    q = k.K_gb.T @ a_g
    sampled = M_g / len(i) * float(a_g[i] @ (k.K_g[i] @ a_g))
    return sampled - float(q @ np.linalg.inv(k.K_b) @ q)  # (D24)


def r2(k: Grams, a_g: Array, indices: tuple[int, ...]) -> float:
    """Estimator R2 of a_g^T C_g a_g from G row indices of gamma."""
    M_g, i = len(a_g), list(indices)
    return M_g / len(i) * float(a_g[i] @ (k.C_g[i] @ a_g))  # (D25)


def enumerate_estimator(estimator: Callable[..., float], k: Grams, a_g: Array, G: int) -> Array:
    """`estimator` (r1 or r2) at all subsets of G indices, [M_g choose G], ordered as
    combinations.
    """
    return np.array([estimator(k, a_g, indices) for indices in combinations(range(len(a_g)), G)])
