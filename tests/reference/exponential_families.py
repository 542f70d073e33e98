"""Exponential families as flat vectors: log-partitions, expectation parameters, Fisher matrices
written out.

Every natural parameter is one vector [D] here, and a Fisher matrix is an array [D, D] to be solved
with. The matrix of a Gaussian is flattened by rows; what is done with it stays among the symmetric
ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import digamma, gammaln, polygamma

from .grams import Array

__all__ = ["FAMILIES", "Reference", "gaussian", "numerical_gradient", "weighted_moments"]


class Reference(NamedTuple):
    """One family; every function takes the usual parameters as one vector."""

    natural: Callable[[Array], Array]
    log_partition: Callable[[Array], float]
    expectation: Callable[[Array], Array]
    fisher: Callable[[Array], Array]


def numerical_gradient(function: Callable[[Array], float], x: Array, step: float = 1e-5) -> Array:
    """Central differences [D] of a function of x [D]."""
    return np.array(
        [(function(x + step * e) - function(x - step * e)) / (2 * step) for e in np.eye(len(x))]
    )


def _gamma_like(sign: int) -> Reference:
    """Gamma for sign 1, inverse-Gamma for -1: of (a, b)."""

    def fisher(p: Array) -> Array:
        a, b = p
        return np.array([[polygamma(1, a), sign / b], [sign / b, a / b**2]])

    return Reference(
        lambda p: np.array([sign * p[0] - 1.0, -p[1]]),
        lambda p: gammaln(p[0]) - p[0] * np.log(p[1]),
        lambda p: np.array([sign * (digamma(p[0]) - np.log(p[1])), p[0] / p[1]]),
        fisher,
    )


DIRICHLET = Reference(
    lambda c: c - 1.0,
    lambda c: float(np.sum(gammaln(c)) - gammaln(np.sum(c))),
    lambda c: digamma(c) - digamma(np.sum(c)),
    lambda c: np.diag(polygamma(1, c)) - polygamma(1, np.sum(c)),
)


def _categorical_fisher(logits: Array) -> Array:
    p = np.exp(logits) / np.sum(np.exp(logits))
    return np.diag(p) - np.outer(p, p)


CATEGORICAL = Reference(
    lambda logits: logits,
    lambda logits: float(np.log(np.sum(np.exp(logits)))),
    lambda logits: np.exp(logits) / np.sum(np.exp(logits)),
    _categorical_fisher,
)

FAMILIES = {
    "Gamma": _gamma_like(1),
    "InverseGamma": _gamma_like(-1),
    "Beta": DIRICHLET,
    "Dirichlet": DIRICHLET,
    "Categorical": CATEGORICAL,
}


def gaussian(mean: Array, cov: Array) -> tuple[Array, float, Array, Array]:
    """(lambda, A, mu, Fisher) of N(mean [M], cov [M, M]), flat; the Fisher matrix is the covariance
    of (z, z z^T).
    """
    M, P = len(mean), np.linalg.inv(cov)
    A = 0.5 * mean @ P @ mean + 0.5 * np.linalg.slogdet(cov)[1] + 0.5 * M * np.log(2 * np.pi)
    second = cov + np.outer(mean, mean)
    cross = np.einsum("ij,k->ijk", cov, mean) + np.einsum("ik,j->ijk", cov, mean)
    # Isserlis: cov(z_i z_j, z_k z_l) in the covariance and the mean
    fourth = np.einsum("ik,jl->ijkl", cov, cov) + np.einsum("il,jk->ijkl", cov, cov)
    for left, right in (("ik", "jl"), ("il", "jk"), ("jk", "il"), ("jl", "ik")):
        fourth += np.einsum(f"{left},{right}->ijkl", cov, np.outer(mean, mean))
    off = cross.reshape(M, M * M)
    fisher = np.block([[cov, off], [off.T, fourth.reshape(M * M, M * M)]])
    return (
        np.concatenate([P @ mean, -0.5 * P.ravel()]),
        float(A),
        np.concatenate([mean, second.ravel()]),
        fisher,
    )


def weighted_moments(
    statistics: Array, natural: Array, weights: Array
) -> tuple[float, Array, Array]:
    """(A, mu, Fisher) of a family with statistics [S, D] at S points, by sums: of all its points,
    or of quadrature nodes.
    """
    logs = statistics @ natural + np.log(weights)
    A = float(np.log(np.sum(np.exp(logs - logs.max()))) + logs.max())
    p = np.exp(logs - A)
    mu = p @ statistics
    return A, mu, (statistics - mu).T @ ((statistics - mu) * p[:, None])
