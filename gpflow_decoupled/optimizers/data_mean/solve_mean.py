"""Conjugate gradients for a mean on all data, until its certified gap is small; and what that will
take.
"""

from __future__ import annotations

__all__ = ["seconds_of_solves", "solve_mean"]

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import tensorflow as tf
from gpflow.inducing_variables import InducingPoints

from ...bases.parts.data_mean import data_points
from ...covariances.products import gram_product
from ...errors import NumericalError
from ...linalg.conjugate_gradients import Blocks, Iterate, advance, begin
from ...models import BasisGP
from ...replicas import Group
from ..ascent import CONVERGED, INTERRUPTED
from .mean_solution import TIME_IS_UP, MeanSolution, Point, Report, best_of, check_gap, point_of
from .row_features import preconditioner_rank, preconditioner_rows
from .system import MeanSystem

_SHARE = 0.5
"""The gap that the recursion must reach, as a share of the tolerance, before a product in full
precision is spent on it.
"""
_PROGRESS = 0.5
"""If a round of products in low precision leaves more than this share of the gap, the next round
has full precision.
"""
_ROUNDING = 0.2
"""The most that `MeanSystem.rounding` may be for products in low precision."""
_FULL = 3.0
"""Products in single precision that one in double precision takes, about."""
_TIMED, _TIMED_ROWS = 8192, 4096
"""Rows of data for a product with K that is timed, where it is some 20 % slower than for many; and
for the preconditioner.
"""


def solve_mean(
    system: MeanSystem,
    start: tf.Tensor,
    tolerance: float,
    max_products: int,
    *,
    K_start: tf.Tensor | None = None,
    dtype: tf.DType | None = None,
    deadline: float = float("inf"),
    report: Report = lambda products, share, gap: None,
    certify: bool = True,
) -> MeanSolution:
    """Solve (K + D) a = y~ from a start; N^2 L per product.

    Rounds of conjugate gradients with products in `dtype` are followed by one product in full
    precision, from whose residual the gap is certified, and from which the next round starts. The
    gaps within a round are by the residual that the recursion carries along. They are enlarged by
    how far it was off at the end, which assumes that it was off by no more before. On several
    workers each has all vectors and computes its share of every product; the first one's numbers
    and clock decide.

    Where the weights are so large that the errors of products in `dtype` could outweigh the system,
    all products are in full precision; and so are those of the rounds after one that left most of
    the gap. A round starts where the bound is highest so far, and no result has a lower bound than
    the start, by more than the tolerance.

    An interrupt ends a round, and the product in full precision follows; if it comes in that
    product, what the recursion knows is returned as it is. On several workers it is raised, because
    the others have not stopped.

    :param system: the system.
    :param start: a [N, L], as found for a similar system, or zeros.
    :param tolerance: the gap in nats that is good enough.
    :param max_products: at most so many products, one more for the certificate.
    :param K_start: K a of the start [N, L], where it is known; else it takes a product.
    :param dtype: tf.float32 for faster products; None is the dtype of the data.
    :param deadline: a value of `time.perf_counter`. No further product is begun if it would end
        later, together with the certificate, judged by the last one.
    :param report: shows progress.
    :param certify: False trusts the recursion's own residual, and ends after the first round.
    :raises NumericalError: if the gap is not a finite number: a product has overflowed.
    """
    run = _Rounds(system, tolerance, max_products, deadline, report, certify)
    points = [run.begin(start, K_start)]
    full = start.dtype
    useful = dtype is not None and 0.0 < system.rounding(dtype) <= _ROUNDING
    dtype = dtype if useful else full
    while not (points[-1].gap <= tolerance or run.reason):
        before = best_of(points, tolerance)
        check_gap(before.gap)
        found = run.round(before, dtype)
        if found is None:
            break
        if dtype == full or not found.certified:
            check_gap(found.gap)
        if np.isfinite(found.bound):
            points.append(found)
        if not found.certified:
            break
        if not (found.bound > before.bound and found.gap <= _PROGRESS * before.gap):
            dtype = full
    return run.solution(points)


@dataclass
class _Rounds:
    """The rounds of one solve, and what they have come to; parameters are those of `solve_mean`."""

    system: MeanSystem
    tolerance: float
    max_products: int
    deadline: float
    report: Report
    certified: bool
    """Whether a product in full precision follows."""
    products: int = 0
    gaps: list[float] = field(default_factory=list)
    reason: str = ""
    """Why there is to be no further round, or nothing."""
    _left: float = 0.0
    """Seconds that another product, and the certificate after it, would take."""

    def begin(self, start: tf.Tensor, K_start: tf.Tensor | None) -> Point:
        """The start [N, L]."""
        residual = self.system.target
        if K_start is not None:
            residual = self.system.target - K_start - start / self.system.weights
        elif bool(tf.reduce_any(start != 0.0)):
            residual = self.system.target - self._product(start, start.dtype)
            self.products += 1
        point = point_of(self.system, start, residual)
        self.gaps.append(point.gap)
        return point

    def round(self, before: Point, dtype: tf.DType) -> Point | None:
        """Where conjugate gradients with products in `dtype` lead to.

        :return: None where an interrupt came before there was anything.
        """
        now = self.iterate(before, dtype)
        if now is None:
            return None
        a, carried = before.a + now.x[0], now.residual[0]
        exact = self.certify(a, carried, now) if self.certified else None
        if exact is None:
            return point_of(self.system, a, carried, certified=False)
        found = point_of(self.system, a, exact)
        self.gaps.append(found.gap)
        return found

    def iterate(self, before: Point, dtype: tf.DType) -> Iterate | None:
        """Conjugate gradients until the gap is small or something ends them.

        :return: None where an interrupt came before there was anything.
        """

        def apply(direction: Blocks) -> Blocks:
            return (self._product(direction[0], dtype),)

        def precondition(blocks: Blocks) -> Blocks:
            return (self.system.precondition(blocks[0]),)

        now, gap = None, before.gap
        try:
            now = begin(precondition, (before.residual,), _inner)
            while gap > _SHARE * self.tolerance and not self._is_over():
                began = time.perf_counter()
                now = advance(now, apply, precondition, _inner)
                self.products += 1
                self._left = (time.perf_counter() - began) * (
                    1.0 + self.certified * _relative_cost(before.a.dtype, dtype)
                )
                gap = self.system.gap(now.residual[0])
                self.gaps.append(gap)
                self.report(self.products, 0.0, gap)
        except KeyboardInterrupt:
            self._interrupted()
        return now

    def certify(self, a: tf.Tensor, carried: tf.Tensor, now: Iterate) -> tf.Tensor | None:
        """The residual at a [N, L] in full precision; the gaps of the round `now` are enlarged by
        the drift.

        :param carried: the residual [N, L] of the recursion, which is another one after some
            products.
        :return: None where an interrupt came.
        """
        try:
            residual = self.system.target - self._product(a, a.dtype)
        except KeyboardInterrupt:
            self._interrupted()
            return None
        self.products += 1
        drift = self.system.gap(residual - carried)
        first = len(self.gaps) - int(now.step)
        self.gaps[first:] = [_sum_of_lengths(gap, drift) for gap in self.gaps[first:]]
        return residual

    def solution(self, points: list[Point]) -> MeanSolution:
        """The best of the points, with what the rounds took."""
        best = best_of(points, self.tolerance)
        good = best.certified and best.gap <= self.tolerance
        reason = CONVERGED if good else self.reason or CONVERGED
        if best is not points[-1]:
            self.gaps.append(best.gap)
        return MeanSolution(
            best.a,
            best.residual,
            best.gap,
            self.products,
            self.gaps,
            reason,
            certified=best.certified,
        )

    def _product(self, vector: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        known = self.gaps[-1] if self.gaps else float("nan")
        return self.system.product(
            vector, dtype, lambda share: self.report(self.products, share, known)
        )

    def _is_over(self) -> bool:
        if self.products >= self.max_products:
            self.reason = "products done"
        elif self.system.group.is_over(self.deadline - self._left):
            self.reason = TIME_IS_UP
        return self.reason != ""

    def _interrupted(self) -> None:
        """Note an interrupt; on several workers raise it, because the others have not stopped."""
        if self.system.group.workers > 1:
            raise KeyboardInterrupt
        self.reason = INTERRUPTED


def seconds_of_solves(
    model: BasisGP, X: tf.Tensor, *, rank: int | None, dtype: tf.DType | None, group: Group
) -> tuple[float, float]:
    """What a solve will take, by the clock of the first worker: seconds of a product with K, and of
    all that is no product.

    The latter is the preconditioner, and the certificate in full precision. Both are judged by some
    rows of data.

    :param model: a model whose mean is on all data.
    :param X: inputs [N, D].
    :param rank: points of the preconditioner; None as of `preconditioner_rank`.
    :param dtype: of the products; None is that of X.
    :param group: the workers of the run.
    """
    rank = preconditioner_rank(rank, len(X))
    few, fewer = X[:_TIMED], X[:_TIMED_ROWS]
    points = data_points(few, shared=not isinstance(model.basis.beta, InducingPoints))
    a = tf.ones([len(few), model.num_latent_gps], X.dtype)

    def product() -> object:
        return gram_product(model.kernel, points, None, a, dtype=dtype, group=group).numpy()

    def preconditioner() -> object:
        return (
            preconditioner_rows(model.kernel, model.basis.beta, fewer, rank)
            .precision(a[: len(fewer)])
            .numpy()
        )

    product()  # compiles
    seconds = _seconds_of(product) * (len(X) / len(few)) ** 2
    certificate = _relative_cost(X.dtype, dtype or X.dtype) * seconds
    try:
        setup = _seconds_of(preconditioner) * len(X) / len(fewer)
    except NumericalError:  # a solve comes at other hyperparameters, and says so if it fails too
        setup = 0.0
    return group.first(seconds), group.first(setup + certificate)


def _seconds_of(function: Callable[[], object]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def _relative_cost(full: tf.DType, dtype: tf.DType) -> float:
    """Products in `dtype` that one in full precision takes."""
    return 1.0 if dtype == full else _FULL


def _sum_of_lengths(gap: float, drift: float) -> float:
    """The gap of the sum of two residuals is at most this, by the triangle inequality."""
    return (math.sqrt(max(gap, 0.0)) + math.sqrt(max(drift, 0.0))) ** 2


def _inner(residual: Blocks, direction: Blocks) -> tf.Tensor:
    """Inner products [1, L] of columns: each latent is a system of its own."""
    return tf.reduce_sum(residual[0] * direction[0], axis=0, keepdims=True)
