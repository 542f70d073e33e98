r"""Pivoted Cholesky of a matrix that is never stored; `woodbury` solves with the low-rank form that
it gives.

| symbol | name | shape |
|---|---|---|
| $K$ | `entries` | [N, N], positive semi-definite, read by blocks |
| $R$ | `factor` | [N, r], $K = R R^T + $ a remainder that is zero in the rows of the pivots |
| $\mathrm{diag}(K - R R^T)$ | `residual` | [N] |

Each step takes the row with the largest residual as its pivot. If K is a kernel matrix, the
residual is the prior variance given the values at the pivots so far, so that the pivots are chosen
by greedy conditional variance (Burt, Rasmussen, van der Wilk, JMLR 2020).
"""

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
"""A residual below this multiple of the machine epsilon times the largest diagonal entry counts as
round-off.
"""
_LEAST_CANDIDATES, _MOST_CANDIDATES = 64, 512
"""Bounds on the number of rows among which the next pivots are searched."""
_BLOCK_ENTRIES = 2**24
"""The largest number of entries of K that are computed at a time: 128 MiB in float64."""


class PivotedCholesky(NamedTuple):
    """The low-rank approximation R R^T of K that uses r rows of K."""

    pivots: np.ndarray
    """[r], int: the chosen rows, all different, in the order of the choice."""
    factor: np.ndarray
    """[N, r]: R; its rows `pivots` are lower triangular."""
    residual: np.ndarray
    """[N]: the diagonal of K - R R^T, which is zero at the pivots and not negative elsewhere."""


def pivoted_cholesky(
    diagonal: np.ndarray, entries: Entries, rank: int, tolerance: float | None = None
) -> PivotedCholesky:
    """A low-rank factor of a positive semi-definite matrix K [N, N], by greedy choice of its rows.

    The pivots are those of the algorithm that reads one column at a time. Residuals only decrease,
    so the best of a few candidates is the best of all rows for as long as its residual exceeds
    every residual that was left out at the start. This allows columns to be read, and the factor to
    be updated, in blocks.

    :param diagonal: the diagonal [N] of K; its dtype is that of the result.
    :param entries: a function of index arrays (rows, columns) that returns K[rows][:, columns];
        `rows` is `slice(None)` for all rows.
    :param rank: the largest number of pivots.
    :param tolerance: stop when the largest residual falls to this; by default 100 machine epsilons
        of the largest diagonal entry, below which residuals are round-off.
    :return: pivots, factor and residual. Cost: time N r^2, r columns of K and some small blocks of
        it; memory N r.
    :raises ValueError: for a rank below one.
    :raises NumericalError: if K has NaN or infinite entries.
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
        # 1) a small block of K, at the rows with the largest residuals, less what the pivots so far
        # explain of it
        candidates, rest = _largest(residual, min(width, most))
        known = factor[:, :done]
        local = entries(candidates, candidates) - known[candidates] @ known[candidates].T
        # 2) pivots from this block alone, while their residual is at least that of every row
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
    """The indices of the `count` largest values, ascending, and the largest value that is not among
    them.
    """
    if count >= len(values):
        return np.arange(len(values)), -np.inf
    order = np.argpartition(-values, count)
    return np.sort(order[:count]), float(values[order[count]])


def _greedy(
    matrix: np.ndarray, residual: np.ndarray, least: float, tolerance: float, rank: int
) -> tuple[np.ndarray, np.ndarray]:
    """Pivots of a small matrix [c, c], one at a time, while the residual is at least `least` and
    above `tolerance`.

    :return: the pivots [b], and the Cholesky factor [b, b] of matrix[pivots][:, pivots].
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
