"""Pivoted Cholesky against the textbook version, one column at a time."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from gpflow_decoupled.errors import NumericalError
from gpflow_decoupled.linalg import conjugate_gradients as pivoted
from gpflow_decoupled.linalg.conjugate_gradients import (
    pivoted_cholesky,
    woodbury_factor,
    woodbury_solve,
)


def _matern(X: np.ndarray, lengthscale: float = 1.0) -> np.ndarray:
    r = np.sqrt(3 * np.sum((X[:, None] - X) ** 2, axis=-1)) / lengthscale
    return (1 + r) * np.exp(-r)


def _entries(K: np.ndarray):
    return lambda rows, columns: K[rows][:, columns]


def _textbook(K: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    residual, factor, pivots = np.diag(K).copy(), np.zeros((len(K), rank)), []
    for step in range(rank):
        pivot = int(np.argmax(residual))
        column = K[:, pivot] - factor[:, :step] @ factor[pivot, :step]
        factor[:, step] = column / np.sqrt(column[pivot])
        residual = residual - factor[:, step] ** 2
        residual[pivot] = -1
        pivots.append(pivot)
    return np.array(pivots), factor, np.maximum(residual, 0)


@pytest.mark.parametrize("candidates", [1, 3, 64, 1000])
def test_same_as_one_column_at_a_time(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, candidates: int
) -> None:
    monkeypatch.setattr(pivoted, "_LEAST_CANDIDATES", candidates)
    scale = rng.uniform(0.5, 2.0, 300)  # variances that differ, so that no two residuals tie
    K = _matern(rng.standard_normal((300, 3))) * scale * scale[:, None]
    result = pivoted_cholesky(np.diag(K), _entries(K), 80)
    expected = _textbook(K, 80)
    for actual, wanted in zip(result, expected):
        np.testing.assert_allclose(actual, wanted, atol=1e-11)


@pytest.mark.exhaustive
def test_reads_few_columns(rng: np.random.Generator) -> None:
    K = _matern(rng.standard_normal((2000, 4)))
    read = {"full": 0, "block": 0, "calls": 0}

    def entries(rows, columns):
        read["full" if isinstance(rows, slice) else "block"] += len(K[rows]) * len(columns)
        read["calls"] += 1
        return K[rows][:, columns]

    pivoted_cholesky(np.diag(K), entries, 200)
    assert read["full"] == 2000 * 200
    assert read["block"] < 5 * 2000 * 200
    assert read["calls"] < 100


@pytest.mark.parametrize("dtype, atol", [(np.float64, 1e-10), (np.float32, 1e-3)])
def test_stops_at_the_rank_of_the_matrix(
    rng: np.random.Generator, dtype: type, atol: float
) -> None:
    root = rng.standard_normal((120, 7))
    K = np.tile(root @ root.T, (2, 2)).astype(dtype)  # rank 7, and every row twice
    pivots, factor, residual = pivoted_cholesky(np.diag(K), _entries(K), 50)
    assert len(pivots) == 7 and len(set(pivots % 120)) == 7
    assert factor.dtype == residual.dtype == dtype
    np.testing.assert_allclose(factor @ factor.T, K, atol=atol)
    assert np.all(residual >= 0) and np.max(residual) < atol


@pytest.mark.parametrize("candidates", [1, 64])
def test_never_repeats_a_pivot_and_never_more_than_n(
    monkeypatch: pytest.MonkeyPatch, candidates: int
) -> None:
    monkeypatch.setattr(pivoted, "_LEAST_CANDIDATES", candidates)
    K = np.exp(
        -0.5 * (np.linspace(0, 1, 60)[:, None] - np.linspace(0, 1, 60)) ** 2
    )  # numerical rank about 10
    pivots, factor, _ = pivoted_cholesky(np.diag(K), _entries(K), 200, tolerance=0.0)
    assert len(set(pivots)) == len(pivots) <= 60 and factor.shape == (60, len(pivots))
    assert np.all(np.isfinite(factor))
    full = pivoted_cholesky(np.ones(20), _entries(np.eye(20)), 200)
    assert sorted(full.pivots) == list(range(20)) and not np.any(full.residual)


def test_tolerance_bounds_the_residual(rng: np.random.Generator) -> None:
    K = _matern(rng.standard_normal((400, 2)))
    pivots, factor, residual = pivoted_cholesky(np.diag(K), _entries(K), 400, tolerance=0.05)
    assert 1 < len(pivots) < 400
    assert np.max(residual) <= 0.05
    np.testing.assert_allclose(residual, np.diag(K) - np.sum(factor**2, axis=1), atol=1e-12)
    shorter = pivoted_cholesky(np.diag(K), _entries(K), len(pivots) - 1)
    assert np.max(shorter.residual) > 0.05


def test_zero_matrix_has_no_pivots() -> None:
    pivots, factor, residual = pivoted_cholesky(np.zeros(5), _entries(np.zeros((5, 5))), 3)
    assert pivots.shape == (0,) and factor.shape == (5, 0) and not np.any(residual)


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="rank=0 must be at least 1"):
        pivoted_cholesky(np.ones(3), _entries(np.eye(3)), 0)
    with pytest.raises(NumericalError, match="K has NaN or infinite entries"):
        pivoted_cholesky(np.ones(3), _entries(np.full((3, 3), np.nan)), 2)


def test_preconditions_a_kernel_matrix(rng: np.random.Generator) -> None:
    K = _matern(rng.standard_normal((300, 2)), 2.0)
    _, factor, residual = pivoted_cholesky(np.diag(K), _entries(K), 60)
    state = woodbury_factor(tf.constant(factor), tf.constant(residual + 1e-2))
    noisy = K + 1e-2 * np.eye(300)
    eigenvalues = np.linalg.eigvals(woodbury_solve(state, tf.constant(noisy)).numpy()).real
    assert np.max(eigenvalues) / np.min(eigenvalues) < 0.01 * np.linalg.cond(noisy)
