"""Streams on inducing points: what old data said, held as a Gaussian factor over u = f(a), without
whitening.

Bui, Nguyen & Turner 2017. The prior covariances K_a, K_b include jitter, and K_ab has it where a
point of a is one of b."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .grams import Array

__all__ = [
    "Factor",
    "absorbed",
    "best",
    "bound",
    "collapsed",
    "evidence",
    "from_q",
    "nothing",
    "projected",
]


class Factor(NamedTuple):
    """log l(u) = c + theta^T u - u^T Lambda u / 2, (C42)."""

    theta: Array  # [M]
    Lambda: Array  # [M, M]
    c: float


def nothing(M: int) -> Factor:
    """The factor of no data."""
    return Factor(np.zeros(M), np.zeros((M, M)), 0.0)


def from_q(K: Array, m: Array, S: Array) -> Factor:
    """q(u) / p(u) for q = N(m, S) and p = N(0, K): (C47)."""
    P, Q = np.linalg.inv(S), np.linalg.inv(K)
    c = 0.5 * (np.linalg.slogdet(K)[1] - np.linalg.slogdet(S)[1] - m @ P @ m)
    return Factor(P @ m, P - Q, float(c))


def projected(K_a: Array, K_ab: Array, K_b: Array, old: Factor) -> Factor:
    """The expectation of log l(f(a)) given f(b), as a function of f(b): (C44)."""
    P = K_ab @ np.linalg.inv(K_b)
    lost = 0.5 * np.trace(old.Lambda @ (K_a - P @ K_ab.T))
    return Factor(P.T @ old.theta, P.T @ old.Lambda @ P, old.c - float(lost))  # (C44)


def absorbed(K_b: Array, K_bx: Array, kdiag: Array, y: Array, noise: float, old: Factor) -> Factor:
    """The old factor, at b already, times that of observations y [N] with Gaussian noise: (C46)."""
    P = np.linalg.inv(K_b) @ K_bx
    rest = kdiag - np.sum(K_bx * P, axis=0)
    c = -0.5 * np.sum(np.log(2 * np.pi * noise) + (y**2 + rest) / noise)
    return Factor(
        old.theta + P @ y / noise, old.Lambda + P @ P.T / noise, old.c + float(c)
    )  # (C46)


def best(K: Array, factor: Factor) -> tuple[Array, Array]:
    """m and S of the q(u) that is proportional to p(u) l(u): (C45)."""
    S = np.linalg.inv(np.linalg.inv(K) + factor.Lambda)
    return S @ factor.theta, S


def bound(K: Array, m: Array, S: Array, factor: Factor) -> float:
    """E_q log l - KL[q || p] of a q(u) = N(m, S), in nats: (C43), where the factor has the new data
    too.
    """
    inverse = np.linalg.inv(K)
    expected = (
        factor.c + factor.theta @ m - 0.5 * (m @ factor.Lambda @ m + np.trace(factor.Lambda @ S))
    )
    logs = np.linalg.slogdet(S)[1] - np.linalg.slogdet(K)[1]
    return float(expected - 0.5 * (m @ inverse @ m + np.trace(inverse @ S) - len(m) - logs))


def collapsed(
    K_b: Array, K_bx: Array, kdiag: Array, y: Array, noise: float, cross: tuple, old: Factor
) -> float:
    """The best bound by Bui et al.'s regression on y and on pseudo-observations D theta of f(a)
    with covariance D.

    :param cross: K_a [M_a, M_a] and K_ab [M_a, M_b].
    """
    K_a, K_ab = cross
    D = np.linalg.inv(old.Lambda)
    pseudo = D @ old.theta
    rows = np.concatenate([K_bx.T, K_ab])
    Q = rows @ np.linalg.inv(K_b) @ rows.T
    W, N = Q.copy(), len(y)
    W[:N, :N] += noise * np.eye(N)
    W[N:, N:] += D
    z = np.concatenate([y, pseudo])
    value = -0.5 * (
        len(z) * np.log(2 * np.pi) + np.linalg.slogdet(W)[1] + z @ np.linalg.solve(W, z)
    )
    value -= 0.5 * np.sum(kdiag - np.diag(Q)[:N]) / noise + 0.5 * np.trace(
        old.Lambda @ (K_a - Q[N:, N:])
    )
    scale = old.c + 0.5 * (
        len(pseudo) * np.log(2 * np.pi) + np.linalg.slogdet(D)[1] + pseudo @ old.Lambda @ pseudo
    )
    return float(value + scale)


def evidence(K: Array, M: int, y: Array, noise: float, old: Factor) -> float:
    """log int p(u, f) l(u) p(y | f), exactly: K [M + N, M + N] is the prior covariance of f(a) and
    f(x).
    """
    theta = np.concatenate([old.theta, y / noise])
    Lambda = np.diag(np.full(len(K), 1.0 / noise))
    Lambda[:M, :M] = old.Lambda
    c = old.c - 0.5 * np.sum(np.log(2 * np.pi * noise) + y**2 / noise)
    m, S = best(K, Factor(theta, Lambda, c))
    logs = np.linalg.slogdet(S)[1] - np.linalg.slogdet(K)[1]
    return float(c + 0.5 * theta @ m + 0.5 * logs)
