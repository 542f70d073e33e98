"""The bounds of the evidence in the reference are in their order, on random problems."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from . import evidence_bounds as eb
from . import neighbours as nb
from .grams import build_grams, matern32


def _problem(seed: int) -> tuple:
    """K, Q, D, y, coefficients and neighbours."""
    rng = np.random.default_rng(seed)
    N, M, m, spread = (
        rng.integers(5, 16),
        rng.integers(1, 5),
        rng.integers(0, 6),
        10 ** rng.uniform(0, 1),
    )
    X = spread * rng.normal(size=(N, 2)) / 3.0
    beta = X[rng.permutation(N)[:M]] if seed % 2 else spread * rng.normal(size=(M, 2)) / 3.0
    k = build_grams(matern32, X, beta, X, 1e-9)
    D = 10 ** rng.uniform(-3, 0) * (rng.uniform(0.2, 5.0, N) if seed % 3 else np.ones(N))
    y = rng.multivariate_normal(np.zeros(N), k.K_x + np.diag(D))
    best = np.linalg.solve(k.K_x + np.diag(D), y)
    a = [best, 0.0 * best, best + rng.normal(size=N), best + 1e-2 * rng.normal(size=N)][seed % 4]
    return k.K_x, k.Q_x, D, y, a, nb.earlier(X, rng.permutation(N), int(m))


@pytest.mark.parametrize("first", [0, pytest.param(60, marks=pytest.mark.exhaustive)])
def test_every_bound_is_on_its_side_of_the_evidence(first: int) -> None:
    for seed in range(first, 60 if first == 0 else 560):
        K, Q, D, y, a, neighbours = _problem(seed)
        exact, slack = eb.evidence(K, D, y), 1e-7
        found = eb.lower_bounds(K, Q, D, y, a, neighbours)
        assert max(found.values()) <= exact + slack <= eb.upper_bound(K, Q, D, y, a) + 2 * slack
        assert found["elbo"] <= found["mean"] + slack <= found["diagonal"] + 2 * slack


@pytest.mark.parametrize("seed", range(4))
def test_conditioning_on_all_earlier_rows_is_exact(seed: int) -> None:
    K, Q, D, y, _, _ = _problem(seed)
    order = np.random.default_rng(seed).permutation(len(y))
    earlier: list[list[int]] = [[] for _ in y]
    for place, row in enumerate(order):
        earlier[row] = [int(other) for other in order[:place]]
    a = np.linalg.solve(K + np.diag(D), y)
    assert_allclose(eb.lower_bounds(K, Q, D, y, a, earlier)["neighbours"], eb.evidence(K, D, y))
    U = eb.inverse_factor(K + np.diag(D), earlier)
    assert_allclose(U.T @ U, np.linalg.inv(K + np.diag(D)), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("seed", range(4))
def test_the_inverse_factor_has_unit_variances_and_the_determinant_of_the_bound(seed: int) -> None:
    K, Q, D, _, _, neighbours = _problem(seed)
    U = eb.inverse_factor(K + np.diag(D), neighbours)
    assert_allclose(np.diag(U @ (K + np.diag(D)) @ U.T), 1.0, rtol=1e-9)
    expected = eb.log_determinants(K, Q, D, neighbours)["neighbours"]
    assert_allclose(-np.linalg.slogdet(U.T @ U)[1], expected, atol=1e-9)
