r"""Pivoted Cholesky of a matrix that is never stored; `woodbury` solves with the result."""

# | symbol | name | shape |
# |---|---|---|
# | $K$ | `entries` | [N, N], positive semi-definite, read by blocks |
# | $R$ | `factor` | [N, r], $K = R R^T + $ a remainder that is zero in the rows of the pivots |
# | $\mathrm{diag}(K - R R^T)$ | `residual` | [N] |
#
# Each step pivots on the largest residual (Burt, Rasmussen, van der Wilk, JMLR 2020).

from __future__ import annotations

__all__ = ["PivotedCholesky", "pivoted_cholesky"]

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from ..errors import NumericalError

Entries = Callable[[np.ndarray | slice, np.ndarray], np.ndarray]
"""(rows, columns) -> the block K[rows][:, columns]."""

_ULPS = 100.0
"""Residuals below this many machine epsilons of the largest diagonal entry are round-off."""
_LEAST_CANDIDATES, _MOST_CANDIDATES = 64, 512
"""Bounds on the number of rows among which the next pivots are searched."""
_BLOCK_ENTRIES = 2**24
"""Most entries of K computed at a time: 128 MiB in float64."""


class PivotedCholesky(NamedTuple):
    """The approximation R R^T of K from r of its rows."""

    pivots: np.ndarray
    """[r], int: distinct rows, in the order of their choice."""
    factor: np.ndarray
    """R [N, r]; its rows `pivots` are lower triangular."""
    residual: np.ndarray
    """Diagonal of K - R R^T [N], zero at the pivots and non-negative."""


def pivoted_cholesky(
    diagonal: np.ndarray, entries: Entries, rank: int, tolerance: float | None = None
) -> PivotedCholesky:
    """Factorise a positive semi-definite K [N, N] at low rank, with greedy pivots.

    :param diagonal: the diagonal [N] of K.
    :param entries: (rows, columns) -> K[rows][:, columns]; `slice(None)` stands for all rows.
    :param tolerance: stop when the largest residual is at most this; by default 100 machine
        epsilons of the largest diagonal entry.
    :return: pivots, factor, residual. Time N r^2, memory N r.
    """
    # Columns are read in blocks of candidates, with the same pivots as column by column.
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
        # 1) a small block of K, at the rows with the largest residuals, less what the pivots so far
        # explain of it
        candidates, rest = _largest(residual, min(width, most))
        known = factor[:, :done]
        local = entries(candidates, candidates) - known[candidates] @ known[candidates].T
        # 2) pivots from this block alone, while no row has a larger residual
        # outside of it
        order, chol = _greedy(
            local, residual[candidates], max(rest, tolerance), tolerance, rank - done
        )
        if not len(order):
            break
        # 3) the columns of the factor for these pivots, and what they leave
        block = candidates[order]
        new = entries(slice(None), block) - known @ known[block].T
        new = solve_triangular(chol, new.T, lower=True, check_finite=False).T
        factor[:, done : done + len(block)] = new
        residual -= np.einsum("nb,nb->n", new, new)
        if not np.all(np.isfinite(residual[residual != -np.inf])):
            raise NumericalError(
                "K has NaN or infinite entries: check the kernel's parameters and its inputs.", "K"
            )
        residual[block] = -np.inf  # never chosen again
        pivots = np.concatenate([pivots, block])
        # 4) as many candidates as the last block suggests: one that yielded few pivots was too wide
        width = max(_LEAST_CANDIDATES, 4 * len(block))
    return PivotedCholesky(pivots, factor[:, : len(pivots)], np.maximum(residual, 0))


def _largest(values: np.ndarray, count: int) -> tuple[np.ndarray, float]:
    if count >= len(values):
        return np.arange(len(values)), -np.inf
    order = np.argpartition(-values, count)
    return np.sort(order[:count]), float(values[order[count]])


def _greedy(
    matrix: np.ndarray, residual: np.ndarray, least: float, tolerance: float, rank: int
) -> tuple[np.ndarray, np.ndarray]:
    """Pivot a small matrix [c, c] while the residual is at least `least` and above `tolerance`."""
    # Returns the pivots [b], and the Cholesky factor [b, b] at them.
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
