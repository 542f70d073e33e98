"""Class labels with a softmax: Laplace's approximation and EP of a full GP, with dense matrices.

Rasmussen & Williams 2006, section 3.5, without its elimination: all N C latents in one vector,
class by class. `propagate` matches the moments of each latent (a site for each class), by
quadrature over all classes at once. Priors are zero-mean with covariances [C, N, N]; labels are [N]
whole numbers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import block_diag
from scipy.special import logsumexp, softmax

from .grams import Array

__all__ = ["ClassMode", "ClassSites", "mode", "propagate", "tilted"]


class ClassMode(NamedTuple):
    """Laplace's approximation: the mode [N, C], its covariance [C N, C N] and the log evidence."""

    f: Array
    covariance: Array
    evidence: float


def mode(grams: Array, labels: Array) -> ClassMode:
    """By Newton's method on all latents."""
    C, N = grams.shape[:2]
    K, e = block_diag(*grams), np.eye(C)[labels]
    f = np.zeros((N, C))
    for _ in range(100):
        p = softmax(f, axis=1)
        W = np.diag(p.T.ravel())
        for n in range(N):
            rows = np.arange(C) * N + n
            W[np.ix_(rows, rows)] -= np.outer(p[n], p[n])
        covariance = np.linalg.inv(np.linalg.inv(K) + W)
        f = (covariance @ (W @ f.T.ravel() + (e - p).T.ravel())).reshape(C, N).T
    flat = f.T.ravel()
    peak = np.sum(e * f) - np.sum(logsumexp(f, axis=1)) - 0.5 * flat @ np.linalg.solve(K, flat)
    return ClassMode(f, covariance, peak - 0.5 * np.linalg.slogdet(np.eye(N * C) + K @ W)[1])


class ClassSites(NamedTuple):
    """Moments [N, C] of q(f) at a fixed point of EP, and its estimate of the log evidence."""

    mean: Array
    variance: Array
    evidence: float


def propagate(grams: Array, labels: Array, passes: int = 60) -> ClassSites:
    """One observation after the other, the classes of each at once."""
    C, N = grams.shape[:2]
    nu, tau = np.zeros((N, C)), np.full((N, C), 1e-10)

    def posterior() -> tuple[Array, Array]:
        V = [np.linalg.inv(np.linalg.inv(K) + np.diag(tau[:, c])) for c, K in enumerate(grams)]
        mean = np.stack([V[c] @ nu[:, c] for c in range(C)], axis=1)
        return mean, np.stack([np.diag(one) for one in V], axis=1)

    def cavity(m: Array, v: Array) -> tuple[Array, Array]:
        precision = 1.0 / v - tau  # (C50)
        return (m / v - nu) / precision, 1.0 / precision

    for _ in range(passes):
        for n in range(N):
            m_c, v_c = (part[n] for part in cavity(*posterior()))
            _, mean, variance = tilted(labels[n], m_c, v_c)
            tau[n] = 1.0 / variance - 1.0 / v_c  # (C52)
            nu[n] = mean / variance - m_c / v_c  # (C52)
    m, v = posterior()
    m_c, v_c = cavity(m, v)
    total = sum(tilted(labels[n], m_c[n], v_c[n])[0] for n in range(N))
    total -= 0.5 * np.sum(m**2 / v - m_c**2 / v_c + np.log(v / v_c))  # (C53)
    for c, K in enumerate(grams):
        volume = np.linalg.slogdet(np.eye(N) + K * tau[:, c])[1]
        total += 0.5 * (nu[:, c] @ m[:, c] - volume)
    return ClassSites(m, v, float(total))


def tilted(label: int, m: Array, v: Array, nodes: int = 24) -> tuple[float, Array, Array]:
    """log mass, means and variances [C] of N(m, diag v) times the softmax of the label."""
    z, w = np.polynomial.hermite_e.hermegauss(nodes)
    grid = np.stack(np.meshgrid(*[z] * len(m), indexing="ij"), axis=-1).reshape(-1, len(m))
    weights = np.prod(np.stack(np.meshgrid(*[w] * len(m), indexing="ij"), axis=-1), axis=-1).ravel()
    f = m + np.sqrt(v) * grid
    weights = weights * softmax(f, axis=1)[:, label]
    mass = weights.sum()
    mean = weights @ f / mass
    return (
        float(np.log(mass / (2.0 * np.pi) ** (0.5 * len(m)))),
        mean,
        weights @ (f - mean) ** 2 / mass,
    )
