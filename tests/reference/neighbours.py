"""Neighbours, one row at a time: conditionals (N1), their likelihood (N2), predictions (N7),
cavities and log partition functions of Gaussian sites (N9), (N10).

`K` [N, N] is the covariance of the observations, noise included; y [N] is centred.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def nearest(x: Array, X: Array, count: int) -> list[int]:
    """The `count` rows of X [N, D] that are nearest to x [D], by distance."""
    order = np.argsort(np.linalg.norm(X - x, axis=1), kind="stable")
    return [int(row) for row in order[:count]]


def earlier(X: Array, order: Sequence[int], count: int) -> list[list[int]]:
    """For each row, its nearest rows before it in an ordering."""
    found: list[list[int]] = [[] for _ in order]
    for place, row in enumerate(order):
        before = np.array(order[:place], int)
        found[row] = [int(before[k]) for k in nearest(X[row], X[before], count)]
    return found


def conditional(K: Array, y: Array, row: int, given: Sequence[int]) -> tuple[float, float]:
    """b^T y_c and tau of one row given others, (N1)."""
    c = list(given)
    b = np.linalg.solve(K[np.ix_(c, c)], K[c, row])
    return float(b @ y[c]), float(K[row, row] - K[row, c] @ b)


def log_likelihood(K: Array, y: Array, neighbours: Sequence[Sequence[int]]) -> Array:
    """The terms [N] of (N2)."""
    terms = []
    for row, given in enumerate(neighbours):
        mean, tau = conditional(K, y, row, given)
        terms.append(-0.5 * (np.log(2 * np.pi * tau) + (y[row] - mean) ** 2 / tau))
    return np.array(terms)


def prediction(
    K: Array, y: Array, k_new: Array, k_itself: float, given: Sequence[int]
) -> tuple[float, float]:
    """Mean and variance of f at a new input from some rows, (N7); k_new [N] and k(x, x)."""
    c = list(given)
    weights = np.linalg.inv(K[np.ix_(c, c)]) @ k_new[c]
    return float(weights @ y[c]), float(k_itself - k_new[c] @ weights)


def leave_one_out(K: Array, y: Array) -> tuple[Array, Array]:
    """Means and variances [N] of each observation given all others, from the inverse of K."""
    inverse = np.linalg.inv(K)
    return y - inverse @ y / np.diag(inverse), 1.0 / np.diag(inverse)


def cavity(
    K: Array, sites: tuple[Array, Array], row: int, given: Sequence[int]
) -> tuple[float, float]:
    """Mean and variance of f at a row from the sites (nu, lambda) of others, (N9).

    Here K [N, N] is the covariance of f, without noise.
    """
    c = list(given)
    nu, root = sites[0][c], np.sqrt(sites[1][c])
    K_cc, k = K[np.ix_(c, c)], K[row, c]
    inner = root[:, None] * np.linalg.inv(np.eye(len(c)) + root[:, None] * K_cc * root) * root
    return float(k @ (nu - inner @ K_cc @ nu)), float(K[row, row] - k @ inner @ k)


def log_partition(
    K: Array, sites: tuple[Array, Array], neighbours: Sequence[Sequence[int]]
) -> Array:
    """The terms [N] of (N10), log int exp(nu f - lambda f^2 / 2) N(f; m_c, v_c) df."""
    terms = []
    for row, given in enumerate(neighbours):
        mean, variance = cavity(K, sites, row, given)
        nu, precision = sites[0][row], sites[1][row]
        peak = (nu + mean / variance) ** 2 / (1.0 / variance + precision)
        log_det = np.log1p(precision * variance)
        terms.append(-0.5 * log_det + 0.5 * (peak - mean**2 / variance))
    return np.array(terms)
