"""Conjugate gradients to a certified gap, and their cost."""

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
"""Gap of the recursion, as a share of the tolerance, that earns a product in full precision."""
_PROGRESS = 0.5
"""A round that leaves more than this share of the gap is followed by one in full precision."""
_ROUNDING = 0.2
"""Largest `MeanSystem.rounding` for products in low precision."""
_SAFETY = 3.0
"""Factor of the estimate of `MeanSystem.rounding` in a bound of errors."""
_FULL = 3.0
"""Approximate cost of a product in double precision, in products in single precision."""
_TIMED, _TIMED_ROWS = 8192, 4096
"""Rows for a timed product with K (20 % slower per pair than many) and preconditioner."""


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

    :param start: a [N, L], from a similar system, or zeros; `K_start` is K a of it [N, L], if
        known.
    :param tolerance: largest gap, in nats.
    :param deadline: a value of `time.perf_counter`. No product begins that would end later, with
        its certificate.
    :param certify: False relies on the recursion's residual, and ends after the first round.
        `K_start` may then have errors of `dtype`.
    """
    # A round of products in `dtype` ends with one in full precision, which certifies the gap and
    # starts the next round from the highest bound so far. All products have full precision where
    # errors of `dtype` could outweigh the system, and after a round that left most of the gap.
    # An interrupt ends a round, followed by the certificate; in that product, it returns the
    # recursion's result. With several workers it is raised.
    #
    # An uncertified round counts with the least bound that errors of `dtype` allow. Where that is
    # below the start's, products in full precision tell which of the two is higher; after an
    # interrupt, or at the end of the time, the start stays.
    full = start.dtype
    rounding = 0.0 if dtype is None else system.rounding(dtype)
    run = _Rounds(system, tolerance, max_products, deadline, report, certify, rounding)
    points = [run.begin(start, None if rounding > _ROUNDING and not certify else K_start)]
    dtype = dtype if dtype is not None and 0.0 < rounding <= _ROUNDING else full
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
            ended = run.reason in (INTERRUPTED, TIME_IS_UP)
            if not (certify or ended or found.bound > before.bound):
                points = run.in_full(points)
            break
        if not (found.bound > before.bound and found.gap <= _PROGRESS * before.gap):
            dtype = full
    return run.solution(points)


@dataclass
class _Rounds:
    system: MeanSystem
    tolerance: float
    max_products: int
    deadline: float
    report: Report
    certified: bool
    """True if a product in full precision follows."""
    rounding: float
    """`MeanSystem.rounding` of the low precision."""
    products: int = 0
    gaps: list[float] = field(default_factory=list)
    reason: str = ""
    """Why no further round follows, or ""."""
    _left: float = 0.0
    """Estimated seconds of another product with its certificate."""

    def begin(self, start: tf.Tensor, K_start: tf.Tensor | None) -> Point:
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
        now = self.iterate(before, dtype)
        if now is None:
            return None
        a, carried = before.a + now.x[0], now.residual[0]
        exact = self.certify(a, carried, now) if self.certified else None
        if exact is None:
            point = point_of(self.system, a, carried, certified=False)
            low = dtype != before.a.dtype
            return point._replace(bound=point.bound - low * self._doubt(before, point))
        found = point_of(self.system, a, exact)
        self.gaps.append(found.gap)
        return found

    def in_full(self, points: list[Point]) -> list[Point]:
        """The points with residuals in full precision; unchanged after an interrupt."""
        try:
            residuals = [self.system.target - self._product(one.a, one.a.dtype) for one in points]
        except KeyboardInterrupt:
            self._interrupted()
            return points
        self.products += len(points)
        found = [point_of(self.system, one.a, rest) for one, rest in zip(points, residuals)]
        self.gaps.append(found[-1].gap)
        return found

    def _doubt(self, before: Point, then: Point) -> float:
        """Most nats by which errors of products may have raised a bound above the start's."""
        # With a product's error E, |W^1/2 E W^1/2| <= s, the quadratic form changes by
        # 1/2 (a - a_0)^T E (a + a_0), and W^1/2 r of the gap by W^1/2 E a.
        s, weights, group = _SAFETY * self.rounding, self.system.weights, self.system.group
        sizes = (tf.norm(a / tf.sqrt(weights)) for a in (then.a - before.a, before.a, then.a))
        step, first, last = (group.first(float(size)) for size in sizes)
        gaps = [_sum_of_lengths(one.gap, 0.5 * (s * size) ** 2) - one.gap
                for one, size in ((before, first), (then, last))]  # fmt: skip
        return 0.5 * s * step * (first + last) + sum(gaps)

    def iterate(self, before: Point, dtype: tf.DType) -> Iterate | None:
        """Iterate until the gap is small or a limit is reached; None if interrupted at once."""

        def apply(direction: Blocks) -> Blocks:
            return (self._product(direction[0], dtype),)

        def precondition(blocks: Blocks) -> Blocks:
            return (self.system.precondition(blocks[0]),)

        def inner(left: Blocks, right: Blocks) -> tf.Tensor:
            return self.system.inner(left[0], right[0])

        now, gap = None, before.gap
        try:
            now = begin(precondition, (before.residual,), inner)
            while gap > _SHARE * self.tolerance and not self._is_over():
                began = time.perf_counter()
                now = advance(now, apply, precondition, inner)
                self.products += 1
                self._left = (time.perf_counter() - began) * (
                    1.0 + self.certified * _relative_cost(before.a.dtype, dtype)
                )
                gap = self.system.gap(now.residual[0])
                self.gaps.append(gap)
                self.report(self.products, 0.0, gap)
        except KeyboardInterrupt:  # the iterate so far is certified next
            self._interrupted()
        return now

    def certify(self, a: tf.Tensor, carried: tf.Tensor, now: Iterate) -> tf.Tensor | None:
        """Compute the residual at a [N, L] in full precision; enlarge the gaps of `now` by the
        drift from `carried` [N, L].
        """
        try:
            residual = self.system.target - self._product(a, a.dtype)
        except KeyboardInterrupt:  # the recursion's gaps stand, uncertified
            self._interrupted()
            return None
        self.products += 1
        drift = self.system.gap(residual - carried)
        first = len(self.gaps) - int(now.step)
        self.gaps[first:] = [_sum_of_lengths(gap, drift) for gap in self.gaps[first:]]
        return residual

    def solution(self, points: list[Point]) -> MeanSolution:
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
        """Note an interrupt; with several workers raise it, because the others continue."""
        if self.system.group.workers > 1:
            raise KeyboardInterrupt
        self.reason = INTERRUPTED


def seconds_of_solves(
    model: BasisGP, X: tf.Tensor, *, rank: int | None, dtype: tf.DType | None, group: Group
) -> tuple[float, float]:
    """Seconds of a product with K and of the rest of a solve, measured on rows of X [N, D].

    By the first worker's clock.
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
    return 1.0 if dtype == full else _FULL


def _sum_of_lengths(gap: float, drift: float) -> float:
    return (math.sqrt(max(gap, 0.0)) + math.sqrt(max(drift, 0.0))) ** 2
