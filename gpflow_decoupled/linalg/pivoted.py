r"""Pivoted Cholesky of a matrix that is never stored; `woodbury` solves with the low-rank form that it gives.

| symbol | name | shape |
|---|---|---|
| $K$ | `entries` | [N, N], positive semi-definite, read by blocks |
| $R$ | `factor` | [N, r], $K = R R^T + $ a remainder that is zero in the rows of the pivots |
| $\mathrm{diag}(K - R R^T)$ | `residual` | [N] |

The pivot of each step is the index of the largest residual: the point whose value is known least given the
pivots before it. That is greedy conditional variance when K is a kernel matrix (Burt, Rasmussen, van der
Wilk, JMLR 2020).
"""

from __future__ import annotations

__all__ = ["PivotedCholesky", "pivoted_cholesky"]

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from ..errors import NumericalError

Entries = Callable[[np.ndarray | slice, np.ndarray], np.ndarray]

_ULPS = 100.0
"""A residual below this many units in the last place of the largest diagonal entry is round-off."""
_LEAST_CANDIDATES, _MOST_CANDIDATES = 64, 512
"""Bounds on the number of rows in which the next pivots are looked for."""
_BLOCK_ENTRIES = 2**24
"""Most entries of K asked for at a time: 128 MiB in float64."""


class PivotedCholesky(NamedTuple):
    """K ~ R R^T from r rows of K."""

    pivots: np.ndarray
    """[r], int: the chosen rows, in order, all different."""
    factor: np.ndarray
    """[N, r]: R; its rows `pivots` are lower triangular."""
    residual: np.ndarray
    """[N]: diag(K - R R^T), not negative, zero at the pivots."""


def pivoted_cholesky(
    diagonal: np.ndarray, entries: Entries, rank: int, tolerance: float | None = None
) -> PivotedCholesky:
    """Greedy low-rank factor of a positive semi-definite matrix K [N, N].

    `diagonal` [N] is that of K, and `entries(rows, columns)` returns K[rows][:, columns] for index arrays;
    `rows` is `slice(None)` for all. There are `rank` pivots at most, fewer when the largest residual falls to
    `tolerance` (by default 100 ulp of the largest diagonal entry, which is round-off). The dtype is that of
    `diagonal`.

    Time N r^2, plus r columns of K and some small blocks; memory N r. The pivots are the same as by one
    column at a time: residuals only fall, so as long as the best of a few candidates is above all that was
    left out, it is the best of all. So columns are read, and the factor is updated, in blocks. Raises
    `ValueError` for a rank below one, `NumericalError` when K has NaN.
    """
    if rank < 1:
        raise ValueError(f"rank={rank} must be at least 1.")
    residual = np.array(diagonal)
    size = residual.shape[0]
    rank = min(rank, size)
    if tolerance is None:
        tolerance = _ULPS * float(np.finfo(residual.dtype).eps * np.max(residual, initial=0.0))
    most = max(1, min(_MOST_CANDIDATES, _BLOCK_ENTRIES // max(size, 1)))
    factor = np.empty((size, rank), residual.dtype)
    pivots = np.empty(0, np.int64)
    width = _LEAST_CANDIDATES
    while (done := len(pivots)) < rank:
        candidates, rest = _largest(residual, min(width, most))
        known = factor[:, :done]
        local = entries(candidates, candidates) - known[candidates] @ known[candidates].T
        order, chol = _greedy(local, residual[candidates], max(rest, tolerance), tolerance, rank - done)
        if not len(order):
            break
        block = candidates[order]
        new = entries(slice(None), block) - known @ known[block].T
        new = solve_triangular(chol, new.T, lower=True, check_finite=False).T
        factor[:, done : done + len(block)] = new
        residual -= np.einsum("nb,nb->n", new, new)
        if not np.all(np.isfinite(residual[residual != -np.inf])):
            raise NumericalError("K has NaN or infinite entries: check the kernel's parameters.", "K")
        residual[block] = -np.inf  # never chosen again
        pivots = np.concatenate([pivots, block])
        width = max(_LEAST_CANDIDATES, 4 * len(block))
    return PivotedCholesky(pivots, factor[:, : len(pivots)], np.maximum(residual, 0))


def _largest(values: np.ndarray, count: int) -> tuple[np.ndarray, float]:
    """The indices of the `count` largest values, ascending, and the largest value that is not among them."""
    if count >= len(values):
        return np.arange(len(values)), -np.inf
    order = np.argpartition(-values, count)
    return np.sort(order[:count]), float(values[order[count]])


def _greedy(
    matrix: np.ndarray, residual: np.ndarray, least: float, tolerance: float, rank: int
) -> tuple[np.ndarray, np.ndarray]:
    """Pivots [b] of a small matrix [c, c] while their residual is at least `least` and above `tolerance`.

    Also the Cholesky factor [b, b] of matrix[pivots][:, pivots].
    """
    residual = residual.copy()
    factor = np.zeros((len(matrix), min(rank, len(matrix))), matrix.dtype)
    order: list[int] = []
    while len(order) < factor.shape[1]:
        pivot = int(np.argmax(residual))
        if not (residual[pivot] >= least and residual[pivot] > tolerance):
            break
        step = len(order)
        column = matrix[:, pivot] - factor[:, :step] @ factor[pivot, :step]
        factor[:, step] = column / np.sqrt(residual[pivot])
        factor[pivot, step] = np.sqrt(residual[pivot])
        residual -= factor[:, step] ** 2
        residual[pivot] = -np.inf
        order.append(pivot)
    return np.array(order, np.int64), np.tril(factor[order, : len(order)])
