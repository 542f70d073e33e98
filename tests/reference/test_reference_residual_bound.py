"""The reference of (N6a) against brute force: a bound for every v; none without concavity."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from tests.reference import residual_bound as rb

LIKELIHOODS = {
    "logit": lambda y: lambda f: -np.logaddexp(0.0, -np.sign(y)[:, None] * f),
    "counts": lambda y: lambda f: np.round(np.abs(3.0 * y))[:, None] * f - np.exp(f),
    "normal": lambda y: lambda f: -2.0 * (y[:, None] - f) ** 2,
}


def _problem(seed: int, points: int = 1, rows: int = 3) -> tuple[np.ndarray, ...]:
    """K of rows, and A, d of the points, from nearly independent to nearly equal rows."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.0, 1.0, points + rows) * rng.choice([0.1, 0.5, 2.0])
    full = 2.0 * np.exp(-np.abs(x[:, None] - x)) + 1e-9 * np.eye(len(x))
    L = np.linalg.cholesky(full[:points, :points])
    A = np.linalg.solve(L, full[:points, points:])
    K = full[points:, points:]
    return K, A, np.diag(K) - np.sum(A**2, axis=0), rng.normal(size=rows), rng


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_every_share_of_the_variances_gives_a_bound(name: str) -> None:
    gaps, gains = [], []
    for seed in range(8):
        K, A, d, y, rng = _problem(seed)
        log_density = LIKELIHOODS[name](y)

        def at(q: np.ndarray, v: np.ndarray, parts: Any = (log_density, A, d)) -> float:
            return rb.bound(*parts, q[:1], np.exp(q[1:])[None], v)

        exact, ones = rb.evidence(log_density, K), np.ones(3)
        q = minimize(lambda *q: -at(*q), np.zeros(2), (ones,), method="Nelder-Mead").x
        best = rb.best_shares(log_density, A, d, q[:1], np.exp(q[1:])[None])
        values = [at(q, v) for v in (best, ones, *rng.uniform(1e-3, 1.0, (5, 3)))]
        assert values[0] >= max(values) - 1e-9
        assert max(values) < exact + 1e-9
        gaps.append(exact - values[0])
        gains.append(values[0] - values[1])
    assert min(gaps) < 1.0 and max(gains) > 0.01


def test_the_best_share_of_gaussian_noise_is_known() -> None:
    K, A, d, y, rng = _problem(0)
    log_density = LIKELIHOODS["normal"](y)  # w = 4
    m, S = rng.normal(size=1), np.eye(1)
    best = rb.best_shares(log_density, A, d, m, S)
    np.testing.assert_allclose(best, 1.0 / (1.0 + 4.0 * d), rtol=1e-4)
    gain = rb.bound(log_density, A, d, m, S, best) - rb.bound(log_density, A, d, m, S, np.ones(3))
    np.testing.assert_allclose(gain, 0.5 * np.sum(4.0 * d - np.log1p(4.0 * d)), rtol=1e-8)


def test_without_concavity_it_is_no_bound() -> None:
    """Two equal values of f: one row knows f, the other is an outlier and gains by a wide q."""
    K = np.full([2, 2], 1.0)
    A, d, m, S = np.zeros([1, 2]), np.diag(K), np.zeros(1), np.eye(1)

    def student_t(f: np.ndarray) -> np.ndarray:
        scale, y = np.array([0.02, 0.1])[:, None], np.array([0.0, 4.0])[:, None]
        return -2.0 * np.log1p(((y - f) / scale) ** 2 / 3.0)

    f = np.linspace(-8.0, 8.0, 100_001)
    logs = np.sum(student_t(np.stack([f, f])), axis=0) - 0.5 * f**2 - 0.5 * np.log(2.0 * np.pi)
    exact = float(np.logaddexp.reduce(logs)) + np.log(f[1] - f[0])
    assert rb.bound(student_t, A, d, m, S, np.ones(2)) < exact
    assert rb.bound(student_t, A, d, m, S, np.array([1e-3, 1.0])) > exact + 0.05
