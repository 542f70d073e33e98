"""Sparse factors beside dense ones: determinants, solves, entries of the inverse on the pattern."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from gpflow_decoupled.linalg.sparse_precision import SparsePattern


def lattice(rows: int, columns: int) -> sparse.csc_matrix:
    """The precision of a proper field on a lattice, weights of neighbours at random."""

    def path(length: int) -> sparse.spmatrix:
        return sparse.diags([-1.0, 1.0], [0, 1], (length - 1, length))

    steps = sparse.vstack(
        [
            sparse.kron(path(rows), sparse.eye(columns)),
            sparse.kron(sparse.eye(rows), path(columns)),
        ]
    )
    weights = sparse.diags(np.random.default_rng(0).uniform(0.5, 2.0, steps.shape[0]))
    return sparse.csc_matrix(steps.T @ weights @ steps + 0.1 * sparse.eye(rows * columns))


CASES = {
    "lattice": lattice(6, 7),
    "chain": lattice(1, 20),
    "no neighbours": sparse.diags(np.arange(1.0, 6.0)).tocsc(),
    "dense": sparse.csc_matrix(np.eye(5) + 0.3),
    "an arrow": sparse.csc_matrix(np.eye(6) * 9.0 + np.eye(6)[:1] + np.eye(6)[:1].T),
}


@pytest.mark.parametrize("name", CASES)
def test_a_factor_is_that_of_the_dense_matrix(name: str, rng: np.random.Generator) -> None:
    Q = CASES[name]
    factor = SparsePattern(Q).factor(Q)
    assert factor is not None
    dense = Q.toarray()
    inverse = np.linalg.inv(dense)
    assert_allclose(factor.log_det, np.linalg.slogdet(dense)[1], rtol=1e-12)
    right = rng.normal(size=(len(dense), 2))
    assert_allclose(factor.solve(right), inverse @ right, rtol=1e-9, atol=1e-12)
    assert_allclose(factor.solve(right[:, 0]), inverse @ right[:, 0], rtol=1e-9, atol=1e-12)
    found = factor.inverse_entries()
    assert_allclose(found.diagonal(), np.diag(inverse), rtol=1e-11)
    known = found.toarray() != 0.0
    assert np.all(known[dense != 0.0])
    assert_allclose(found.toarray()[known], inverse[known], rtol=1e-9, atol=1e-13)


def test_few_entries_are_computed() -> None:
    Q = lattice(30, 30)
    assert SparsePattern(Q).factor(Q).inverse_entries().nnz < 0.08 * 900**2  # type: ignore[union-attr]


def test_a_pattern_serves_values_that_vanish() -> None:
    """Entries of the pattern may be zero in one of the matrices."""
    Q = CASES["lattice"]
    alone = sparse.diags(Q.diagonal()).tocsc()
    factor = SparsePattern(Q).factor(alone)
    assert factor is not None
    assert_allclose(factor.inverse_entries().diagonal(), 1.0 / Q.diagonal(), rtol=1e-14)


@pytest.mark.parametrize("shift", [0.1, 2.0, 50.0])
def test_a_matrix_that_is_not_positive_definite_has_no_factor(shift: float) -> None:
    Q = CASES["lattice"]
    least = np.linalg.eigvalsh(Q.toarray())[0]
    pattern = SparsePattern(Q)
    assert pattern.factor(Q - (least + shift) * sparse.eye(42)) is None
    assert pattern.factor(Q - (least - 1e-6) * sparse.eye(42)) is not None
