"""Preconditioned conjugate gradients for blocks or latents; `begin` and `advance` run them
stepwise.
"""

from __future__ import annotations

__all__ = [
    "Iterate", "LowRank", "PivotedCholesky", "Solution", "advance", "begin",
    "conjugate_gradients", "map_rows", "pivoted_cholesky", "woodbury_factor", "woodbury_solve",
]  # fmt: skip

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import tensorflow as tf
from scipy.linalg import solve_triangular

from ..errors import NumericalError
from .cholesky import cholesky
from .triangular import solve

# ---
# Functions of rows, by blocks.


Result = TypeVar("Result")


def map_rows(
    function: Callable[..., Result],
    arrays: Sequence[tf.Tensor],
    size: int,
    signature: object,
    fill: bool = False,
) -> Result:
    """Apply a function of rows by blocks of equal size, the last one padded.

    :param function: of arrays [b, ...]; returns a tensor [b, ...], or a tuple of them.
    :param signature: type or `tf.TensorSpec` of each result.
    :param fill: give all blocks of all calls `size` rows, so that a row's rounding errors do not
        depend on other rows.
    """
    known = None if arrays[0].shape[0] is None else int(arrays[0].shape[0])
    total = tf.shape(arrays[0])[0] if known is None else known
    count = -(-total // size)
    at_least_one = max(count, 1) if known is not None else tf.maximum(count, 1)
    rows_each = size if fill else -(-total // at_least_one)
    rows = tf.minimum(tf.range(count * rows_each), total - 1)
    if known is not None and (tf.executing_eagerly() or count == 1):
        # `map_fn` would rewrite the function's source at every eager call, a second for a kernel
        places = tf.split(rows, count)
        parts = [function(*(tf.gather(array, some) for array in arrays)) for some in places]
        return tf.nest.map_structure(lambda *pieces: tf.concat(pieces, axis=0)[:total], *parts)
    found = tf.map_fn(
        lambda some: function(*(tf.gather(array, some) for array in arrays)),
        tf.reshape(rows, [count, rows_each]),
        fn_output_signature=signature,
        parallel_iterations=1,
    )
    return tf.nest.map_structure(
        lambda part: tf.reshape(part, tf.concat([[-1], tf.shape(part)[2:]], axis=0))[:total], found
    )


# ---
# Solves by Woodbury's identity.


#   (R R^T + D)^-1 = D^-1 - D^-1 R (I + R^T D^-1 R)^-1 R^T D^-1
#
# for R [..., N, r] and a positive diagonal D: N r^2 + r^3 / 3 once, N r per solve.


class LowRank(NamedTuple):
    """R R^T + D, ready for solves."""

    scaled: tf.Tensor
    """D^-1 R [..., N, r]"""
    diagonal: tf.Tensor
    """D [..., N]"""
    chol: tf.Tensor
    """The lower Cholesky factor of I + R^T D^-1 R [..., r, r]."""
    ok: tf.Tensor
    """[], bool: D is positive and the factorisation succeeded."""


def woodbury_factor(factor: tf.Tensor, diagonal: tf.Tensor) -> LowRank:
    """Prepare (R R^T + D)^-1; N r^2 + r^3 / 3.

    R is [..., N, r], D [..., N], or [] for a multiple of the identity. A pivoted Cholesky's
    remainder is zero at pivots: add noise or jitter.
    """
    diagonal = tf.broadcast_to(diagonal, tf.shape(factor)[:-1])
    scaled = factor / diagonal[..., None]
    inner = tf.matmul(factor, scaled, transpose_a=True)
    chol, ok = cholesky(tf.linalg.set_diag(inner, tf.linalg.diag_part(inner) + 1.0))
    return LowRank(scaled, diagonal, chol, ok & tf.reduce_all(diagonal > 0.0))


def woodbury_solve(state: LowRank, rhs: tf.Tensor) -> tf.Tensor:
    """Return (R R^T + D)^-1 z.

    z is [..., N], or columns [..., N, P]; (N r + r^2) P.
    """
    one_column = len(rhs.shape) < len(state.scaled.shape)
    z = rhs[..., None] if one_column else rhs
    pulled = solve(state.chol, tf.matmul(state.scaled, z, transpose_a=True))
    back = tf.matmul(state.scaled, solve(state.chol, pulled, adjoint=True))
    value = z / state.diagonal[..., None] - back  # (D47)
    return value[..., 0] if one_column else value


# ---


Blocks = tuple[tf.Tensor, ...]
"""The blocks of one vector."""
Inner = Callable[[Blocks, Blocks], tf.Tensor]
"""Inner product of a residual and a direction, see `conjugate_gradients`."""


class Solution(NamedTuple):
    """The solution and its status."""

    x: Blocks
    ok: tf.Tensor
    """[], bool: every direction had positive curvature, and the tolerance was reached."""


class Iterate(NamedTuple):
    """The state of an iteration; blocks have the caller's shapes, for example [N, L]."""

    step: tf.Tensor
    x: Blocks
    residual: Blocks
    direction: Blocks
    size: tf.Tensor
    """<residual, preconditioned residual>"""
    curvature: tf.Tensor
    """<direction, matrix direction> of the last step; infinite before the first."""


def begin(precondition: Callable[[Blocks], Blocks], right: Blocks, inner: Inner) -> Iterate:
    """Return the iterate at x = 0; arguments as for `conjugate_gradients`."""
    start = precondition(right)
    size = inner(right, start)
    nothing = tuple(tf.zeros_like(block) for block in start)
    return Iterate(
        tf.constant(0),
        nothing,
        right,
        start,
        size,
        tf.fill(tf.shape(size), tf.constant(np.inf, size.dtype)),
    )


def advance(
    now: Iterate,
    apply: Callable[[Blocks], Blocks],
    precondition: Callable[[Blocks], Blocks],
    inner: Inner,
) -> Iterate:
    """Take one step: one product with the matrix, one with the preconditioner."""
    product = apply(now.direction)
    curvature = inner(product, now.direction)
    length = tf.math.divide_no_nan(now.size, curvature)
    x = _moved(now.x, length, now.direction)
    residual = _moved(now.residual, -length, product)
    z = precondition(residual)
    size = inner(residual, z)
    direction = _moved(z, tf.math.divide_no_nan(size, now.size), now.direction)
    return Iterate(now.step + 1, x, residual, direction, size, curvature)


def conjugate_gradients(
    apply: Callable[[Blocks], Blocks],
    precondition: Callable[[Blocks], Blocks],
    right: Blocks,
    inner: Inner,
    tolerance: float,
    iterations: int,
    norm: Callable[[Blocks], tf.Tensor] | None = None,
) -> Solution:
    """Solve apply(x) = right, starting at zero.

    :param precondition: its extra blocks travel with every direction and with x.
    :param inner: inner product of a residual and a direction: a scalar, or [L, 1] for L independent
        systems in blocks [L, N].
    :param tolerance: on the root of `norm`, relative to the right-hand side.
    :param norm: squared size of a residual; by default its `inner` with the preconditioned one.
    """
    first = begin(precondition, right, inner)
    goal = tolerance**2 * (first.size if norm is None else norm(right))

    def left(now: Iterate) -> tf.Tensor:
        return now.size if norm is None else norm(now.residual)

    def running(ok: tf.Tensor, *state: tf.Tensor) -> tf.Tensor:
        now = Iterate(*state)
        return (now.step < iterations) & tf.reduce_any(left(now) > goal)

    def body(ok: tf.Tensor, *state: tf.Tensor) -> tuple:
        before = Iterate(*state)
        now = advance(before, apply, precondition, inner)
        return ok & tf.reduce_all((now.curvature > 0.0) | (left(before) <= goal)), *now

    ok, *state = tf.while_loop(running, body, (tf.constant(True), *first))
    last = Iterate(*state)
    return Solution(last.x, ok & tf.reduce_all(left(last) <= goal))


def _moved(blocks: Blocks, length: tf.Tensor, by: Blocks) -> Blocks:
    return tuple(block + length * change for block, change in zip(blocks, by))


# ---
# Pivoted Cholesky of a matrix that is never stored; `woodbury` solves with the result.


# | symbol | name | shape |
# |---|---|---|
# | $K$ | `entries` | [N, N], positive semi-definite, read by blocks |
# | $R$ | `factor` | [N, r], $K = R R^T + $ a remainder that is zero in the rows of the pivots |
# | $\mathrm{diag}(K - R R^T)$ | `residual` | [N] |
#
# Each step pivots on the largest residual (Burt, Rasmussen, van der Wilk, JMLR 2020).


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
