"""Conjugate gradients for the mean that all observations give."""

# Which preconditioner is better depends on the noise. With much of it the mean is smooth, and a
# thousand points say nearly all; with little, each row depends on its neighbours. On 4,000 rows of
# elevators points took 3 products where neighbours were far off after 25.

from __future__ import annotations

__all__ = ["RowsSettings", "RowsSolution", "solve_rows"]

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ...covariances.neighbours import inverse_factor, ordered_neighbours
from ...covariances.products import kernel_product
from ...errors import NumericalError
from ...linalg.conjugate_gradients import Blocks, advance, begin
from ..evidence import Nystrom, Observed

_NEIGHBOURS, _POINTS = 60, 1000
"""Of the preconditioners; points are at most a quarter of the rows."""
_MUCH_LEFT = 20.0
"""Variance that points leave, in noise variances, from which on neighbours are tried: products
with points grow with its root, to some thirty here, and with neighbours hardly at all."""
_ROUNDED_ROWS, _ROUNDING = 2048, 0.2
"""Rows on which products in single precision are compared with full ones, and the largest error
that is worth it, in units of the noise."""
_SHARE = 0.5
"""Of the tolerance, that the recursion's residual must reach: round-off takes some of the rest."""


class RowsSettings(NamedTuple):
    """When a solve ends."""

    tolerance: float
    """Largest gap, in nats."""
    max_products: int
    deadline: float = float("inf")
    """A value of `time.perf_counter`; no product begins that would end later."""
    show: Callable[[str], object] | None = None
    """Shows a line after each product."""


class RowsSolution(NamedTuple):
    """The coefficients found, and how far they are from the solution."""

    coefficients: tf.Tensor
    """a [N, R]."""
    gap: float
    """r^T (K + D)^-1 r / 2 in nats for the residual r, summed over columns: a bound with points, an
    estimate with neighbours."""
    products: int
    """With the kernel matrix."""


def solve_rows(part: Observed, start: tf.Tensor, settings: RowsSettings) -> RowsSolution:
    """Solve (K + D) a = y by conjugate gradients, preconditioned by points or neighbours (N8).

    :param part: kernel, inputs [N, D], observations [N, R] less the mean function, and noise.
    :param start: a [N, R] of a similar system, or zeros.
    :raises NumericalError: if the preconditioner's covariances cannot be factorised.

    Cost: N^2 (D + R) a product, some ten to thirty of them; N M^2 for M = 1,000 points, or N (m^3 /
    3 + m^2 D) and a search for m = 60 neighbours. Memory: N M.
    """
    system = _System(part, settings)
    y = part.y
    nothing = RowsSolution(tf.zeros_like(y), system.gap(y), 0)
    best, residual = nothing, y
    if bool(tf.reduce_any(start != 0.0)):
        best, residual = system.judged(start)
        if not best.gap < nothing.gap:
            best, residual = nothing._replace(products=best.products), y
    for dtype in system.dtypes():
        if best.gap <= settings.tolerance or system.is_over():
            break
        change = system.climb(residual, dtype)
        if change is None:
            break
        then, left = system.judged(best.coefficients + change)
        if then.gap < best.gap:
            best, residual = then, left
    return best._replace(products=system.products)


class _System:
    """K + D of one part, its preconditioner, and the count of products."""

    def __init__(self, part: Observed, settings: RowsSettings) -> None:
        self.part, self.settings, self.products, self._seconds = part, settings, 0, 0.0
        self._preconditioner = _preconditioner(part)

    def precondition(self, blocks: Blocks) -> Blocks:
        """P^-1 r."""
        return (self._preconditioner.solve(blocks[0]),)

    def gap(self, residual: tf.Tensor) -> float:
        return 0.5 * float(tf.reduce_sum(residual * self._preconditioner.solve(residual)))

    def dtypes(self) -> list[tf.DType]:
        """Single precision where its errors are small, then full, in which the rest is solved."""
        kernel, X, y, noise = self.part
        if y.dtype != tf.float64:
            return [y.dtype]
        N = int(X.shape[0])
        rows = np.linspace(0, N - 1, min(N, _ROUNDED_ROWS)).astype(int)
        few, v = tf.gather(X, rows), np.random.default_rng(0).standard_normal((len(rows), 1))
        low, full = (
            kernel_product(kernel, few, None, tf.constant(v), dtype=kind)
            for kind in (tf.float32, tf.float64)
        )
        scale = np.sqrt(N / len(rows)) / tf.norm(tf.gather(noise, rows)[:, None] * v)
        fine = float(tf.norm(low - full) * scale) < _ROUNDING
        return [tf.float32, y.dtype] if fine else [y.dtype]

    def judged(self, a: tf.Tensor) -> tuple[RowsSolution, tf.Tensor]:
        residual = self.part.y - self._product(a, a.dtype)
        return RowsSolution(a, self.gap(residual), self.products), residual

    def is_over(self) -> bool:
        """True if another product, and the last one, would be too many or too late."""
        late = time.perf_counter() + 2.0 * self._seconds > self.settings.deadline
        return late or self.products + 2 > self.settings.max_products

    def climb(self, residual: tf.Tensor, dtype: tf.DType) -> tf.Tensor | None:
        """Solve for the change of a [N, R]; None if no step could be taken."""
        goal = _SHARE * self.settings.tolerance

        def apply(blocks: Blocks) -> Blocks:
            return (self._product(blocks[0], dtype),)

        now = begin(self.precondition, (residual,), _inner)
        while 0.5 * float(tf.reduce_sum(now.size)) > goal and not self.is_over():
            now = advance(now, apply, self.precondition, _inner)
            gap = 0.5 * float(tf.reduce_sum(now.size))
            if self.settings.show is not None:
                self.settings.show(f"mean of all rows, {self.products} products, gap {gap:.2g}")
            if not np.isfinite(gap):
                return None
        return now.x[0] if int(now.step) else None

    def _product(self, columns: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """(K + D) v [N, R]."""
        kernel, X, _, noise = self.part
        began = time.perf_counter()
        found = kernel_product(kernel, X, None, columns, dtype=dtype) + noise[:, None] * columns
        found = tf.constant(found.numpy())  # waits for it, so that its time is known
        self.products, self._seconds = self.products + 1, time.perf_counter() - began
        return found


class _Neighbours:
    """U^T U, the precision of observations given neighbours (N8)."""

    def __init__(self, part: Observed) -> None:
        kernel, X, _, noise = part
        N = int(X.shape[0])
        order = np.random.default_rng(0).permutation(N)
        near = ordered_neighbours(kernel, X, order, max(1, min(_NEIGHBOURS, N - 1)))
        self._factor = inverse_factor(kernel, X, noise, near)
        if not np.isfinite(self._factor.log_determinant):
            raise NumericalError(
                "The covariance of a row's neighbours is not positive definite: use a larger noise"
                " variance, double precision, or kernel parameters that are finite.",
                "k(neighbours, neighbours)",
            )

    def solve(self, right: tf.Tensor) -> tf.Tensor:
        """U^T U r [N, R]."""
        return self._factor.transposed(self._factor.times(right))


def _preconditioner(part: Observed) -> Nystrom | _Neighbours:
    """Points if they leave little beside the noise, else neighbours."""
    kernel, X, _, noise = part
    N = int(X.shape[0])
    chosen = np.random.default_rng(0).permutation(N)[: max(1, min(_POINTS, N // 4))]
    points = Nystrom(kernel, tf.gather(X, chosen), X, noise)
    left = tf.reduce_mean(points.left(kernel(X, full_cov=False)) / noise)
    return points if float(left) < _MUCH_LEFT else _Neighbours(part)


def _inner(left: Blocks, right: Blocks) -> tf.Tensor:
    """[1, R]: columns are independent systems."""
    return tf.reduce_sum(left[0] * right[0], axis=0, keepdims=True)
