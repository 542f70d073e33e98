"""Sparse precision matrices."""

# SciPy's SuperLU factorises, in an order that is chosen once for a pattern:
#
#   Q = P^T L D L^T P,   L unit lower triangular, D diagonal
#
# The entries of Z = Q^-1 on the pattern of L follow from the last column to the first (Takahashi,
# Fagan & Chin 1973; Rue & Martino 2007, section 2), without any other entry of Z: (C70)
#
#   Z_Si = -Z_SS L_Si,   Z_ii = 1 / D_i - L_Si^T Z_Si,   S = {k > i: L_ki is not a zero by pattern}
#
# In numpy: the graphs of TensorFlow have no sparse factorisation.

from __future__ import annotations

__all__ = ["SparseFactor", "SparsePattern"]

from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import SuperLU, splu

_SYMMETRIC = {"diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}


class SparseFactor(NamedTuple):
    """A factor L D L^T of a positive definite matrix [p, p]."""

    pattern: SparsePattern
    lu: SuperLU
    """Of the reordered matrix."""
    diagonal: np.ndarray
    """D [p], positive."""

    @property
    def log_det(self) -> float:
        """The log determinant of the matrix."""
        return float(np.sum(np.log(self.diagonal)))

    def solve(self, right: np.ndarray) -> np.ndarray:
        """The matrix's inverse times `right` [p] or [p, k]."""
        found = self.lu.solve(right[self.pattern.order])
        result = np.empty_like(found)
        result[self.pattern.order] = found
        return result

    def inverse_entries(self) -> sparse.csr_matrix:
        """Entries of the inverse [p, p] on the factor's pattern; cost: the sum of |S|^2 over
        columns.
        """
        return self.pattern.inverse_entries(self.lu.L.tocsc(), self.diagonal)


class SparsePattern:
    """The places of possible entries of a symmetric matrix, and an order that keeps factors sparse.

    :param matrix: symmetric [p, p]; its non-zero entries and the diagonal are the pattern.
    """

    def __init__(self, matrix: sparse.spmatrix) -> None:
        pattern = abs(sparse.csc_matrix(matrix))
        pattern.data = np.ones_like(pattern.data)
        self.size = pattern.shape[0]
        dominant = pattern + sparse.diags(pattern.sum(axis=0).A1 + 1.0)
        found = splu(dominant.tocsc(), permc_spec="MMD_AT_PLUS_A", **_SYMMETRIC)
        self.order = np.argsort(found.perm_c)
        """Rows of the matrix in the factor's order [p]."""
        reordered = sparse.tril(dominant.tocsr()[self.order][:, self.order]).tocsc()
        self._below = _filled(reordered)
        """Rows below the diagonal, for each column of the factor."""
        rows = [np.concatenate([[column], below]) for column, below in enumerate(self._below)]
        self._starts = np.cumsum([0, *(len(part) for part in rows)])
        self._rows = np.concatenate(rows)
        self._columns = np.repeat(np.arange(self.size), np.diff(self._starts))
        self._keys = self._columns * self.size + self._rows

    def factor(self, matrix: sparse.spmatrix) -> SparseFactor | None:
        """Factor a symmetric matrix [p, p] on the pattern; None unless it is positive definite."""
        reordered = sparse.csr_matrix(matrix)[self.order][:, self.order].tocsc()
        try:
            lu = splu(reordered, permc_spec="NATURAL", **_SYMMETRIC)
        except RuntimeError:  # a pivot is exactly zero
            return None
        diagonal = lu.U.diagonal()
        in_order = np.array_equal(lu.perm_r, lu.perm_c)
        good = in_order and np.all(np.isfinite(diagonal)) and np.all(diagonal > 0.0)
        return SparseFactor(self, lu, diagonal) if good else None

    def inverse_entries(self, lower: sparse.csc_matrix, diagonal: np.ndarray) -> sparse.csr_matrix:
        """The entries of (L D L^T)^-1 on the pattern, for L and D [p]; in the matrix's order."""
        values = self._on_pattern(lower)
        Z = np.zeros_like(values)
        for column in range(self.size - 1, -1, -1):
            first, end = self._starts[column], self._starts[column + 1]
            S, weights = self._below[column], values[first + 1 : end]
            places = np.minimum.outer(S, S) * self.size + np.maximum.outer(S, S)
            Z[first + 1 : end] = -Z[np.searchsorted(self._keys, places)] @ weights  # (C70)
            Z[first] = 1.0 / diagonal[column] - weights @ Z[first + 1 : end]  # (C70)
        rows, columns = self.order[self._rows], self.order[self._columns]
        shape = (self.size, self.size)
        lower_half = sparse.csr_matrix((Z, (rows, columns)), shape)
        return lower_half + lower_half.T - sparse.diags(lower_half.diagonal())

    def _on_pattern(self, lower: sparse.csc_matrix) -> np.ndarray:
        """The entries of L on the pattern, zeros where SuperLU keeps none."""
        entries = lower.tocoo()
        values = np.zeros(len(self._keys))
        values[np.searchsorted(self._keys, entries.col * self.size + entries.row)] = entries.data
        return values


def _filled(lower: sparse.csc_matrix) -> list[np.ndarray]:
    # A column's first entry below the diagonal is its parent, which has all of its other entries
    # too.
    below = [np.sort(lower.indices[a:b]) for a, b in zip(lower.indptr[:-1], lower.indptr[1:])]
    below = [rows[rows > column].astype(np.int64) for column, rows in enumerate(below)]
    for rows in below:
        if len(rows) > 1:
            below[rows[0]] = np.union1d(below[rows[0]], rows[1:])
    return below
