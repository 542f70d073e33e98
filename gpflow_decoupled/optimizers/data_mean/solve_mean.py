"""Conjugate gradients to a certified gap, and their cost."""

from __future__ import annotations

__all__ = ["DualDescent", "seconds_of_solves", "solve_mean"]

import functools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.inducing_variables import InducingPoints

from ...bases.optimum import data_points
from ...compilation import Compiled
from ...covariances.blocks import xla_works
from ...covariances.products import diagonal_excess, gram_product
from ...errors import NumericalError
from ...linalg.conjugate_gradients import Blocks, Iterate, advance, begin
from ...models import BasisGP
from ...replicas import Group
from ..ascent import CONVERGED, INTERRUPTED
from .system import (
    TIME_IS_UP,
    MeanSolution,
    MeanSystem,
    Point,
    Report,
    best_of,
    check_gap,
    point_of,
    preconditioner_rank,
    preconditioner_rows,
)

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


# ---
# Stochastic dual descent.


# Lin et al. 2024 (arXiv:2310.20581), algorithm 1, for (K + D) a = y~ in the variables W^-1/2 a,
# with H = I + W^1/2 K W^1/2. A step draws a batch I of B rows: (D52)
#
#   u = a + rho v,    g = N/B sum_{n in I} [w_n ((K u)_n - y~_n) + u_n] e_n
#   v <- rho v - eta g,    a <- a + v,    a_bar <- r a + (1 - r) a_bar
#
# | symbol | code | meaning | shape |
# |---|---|---|---|
# | eta | `rate` | the setting over lambda_1 + N/B max_n H_nn / (1 - rho) | [L] |
# | rho | `momentum` | | [] |
# | r | `keep` | 100 over the steps of a round, at most 1 | [] |
# | a_bar | `average` | the result | [N, L] |
#
# A full step is stable up to about 4 / (3 lambda_1), lambda_1 the largest eigenvalue of H; the
# second term of eta keeps a row from overshooting.


_AVERAGED = 100
"""The average covers about the last step in this many."""
_GROWTH = 10.0
"""Growth of 1/2 r^T W r above its least value at which the step size is halved."""
_SECONDS = 0.2
"""Seconds between two reports of progress."""


class _State(NamedTuple):
    a: tf.Tensor
    """[N, L]"""
    velocity: tf.Tensor
    """[N, L]"""
    average: tf.Tensor
    """[N, L]"""
    misfit: tf.Tensor
    """[], sum over steps of an estimate of 1/2 r^T W r at u, at least the gap there, in nats."""


class _Constants(NamedTuple):
    weights: tf.Tensor
    """w [N, L]."""
    target: tf.Tensor
    """y~ [N, L]."""
    keep: tf.Tensor
    """r, a scalar."""


@dataclass
class DualDescent:
    """Solves linear systems in turn by (D52); a `Solve`.

    The result has the highest certified bound. Cost per step: B N D; per round two products with K.

    :param settings: a `StochasticDualDescent`.
    """

    # Rounds follow until the gap is small, or epochs or time are used up:
    # 1. A preconditioned conjugate-gradient step settles directions with H about 1, where the
    # descent is slow.
    # 2. Steps (D52). Each epoch the visited rows estimate 1/2 r^T W r, at least the gap; if it
    # grew, the step size is halved and the descent returns to its best average.
    # 3. A product in full precision certifies the average.

    settings: Any
    dtype: tf.DType | None = None
    share: float = field(default=1.0, init=False)
    """Share of the step size left after halvings."""

    def __post_init__(self) -> None:
        self.generator = np.random.default_rng(self.settings.seed)
        self._step: Compiled | None = None

    def __call__(
        self,
        system: MeanSystem,
        start: tf.Tensor,
        K_start: tf.Tensor,
        *,
        deadline: float,
        report: Report,
    ) -> MeanSolution:
        points = [point_of(system, start, system.target - K_start - start / system.weights)]
        check_gap(points[0].gap)
        tolerance, every = self.settings.tolerance, self.settings.correct_every
        products, left, goal = 0, self.settings.epochs, tolerance
        try:
            while not (reason := self._end(points[-1], left, deadline)):
                a, residual = self._corrected(
                    system, points[-1], functools.partial(report, products)
                )
                products += 1
                said = functools.partial(report, products)
                descent = _Descent(self, system, a, residual, min(left, every), deadline, said)
                interrupted = descent.run(goal)
                products, left, goal = (
                    products + descent.passes,
                    left - descent.epochs,
                    min(goal, 0.5 * descent.estimate),
                )
                a = descent.state.average
                found = point_of(system, a, system.target - system.product(a, None))
                products += 1
                if np.isfinite(found.bound):  # else the steps diverged within an epoch
                    points.append(found)
                if interrupted:
                    raise KeyboardInterrupt
        except KeyboardInterrupt:  # the best point so far is the result
            reason = INTERRUPTED if points[-1].gap > tolerance else CONVERGED
        best = best_of(points, tolerance)
        gaps = [point.gap for point in points if point is not best] + [best.gap]
        return MeanSolution(best.a, best.residual, best.gap, products, gaps, reason)

    def _end(self, now: Point, left: int, deadline: float) -> str:
        if now.gap <= self.settings.tolerance:
            return CONVERGED
        if left < 1:
            return "epochs done"
        return TIME_IS_UP if time.perf_counter() >= deadline else ""

    def _corrected(
        self, system: MeanSystem, now: Point, report: Callable[[float, float], None]
    ) -> tuple:
        direction = system.precondition(now.residual)
        product = system.product(direction, self.dtype, lambda share: report(share, now.gap))
        sizes = (tf.reduce_sum(direction * other, axis=0) for other in (now.residual, product))
        length = tf.math.divide_no_nan(*sizes)  # [L]
        return now.a + length * direction, now.residual - length * product

    def rate(self, system: MeanSystem) -> tf.Tensor:
        """eta [L] for a system."""
        diagonal = 1.0 + system.weights * tf.transpose(system.projections.prior)  # H_nn [N, L]
        noise = (
            len(diagonal)
            / self.batch(system)
            * tf.reduce_max(diagonal, axis=0)
            / (1.0 - self.settings.momentum)
        )
        return self.share * self.settings.step_size / (system.largest() + noise)

    def batch(self, system: MeanSystem) -> int:
        """B, at most N."""
        return min(self.settings.batch_size, len(system.target))

    def compiled(self, system: MeanSystem) -> Compiled:
        """Compile a step once for all systems of a run; they differ in weights and target."""
        if self._step is not None:
            return self._step
        kernel, points, X, xla = system.kernel, system.mean.points, system.mean.inputs, xla_works()
        excess, momentum = diagonal_excess(kernel, points), self.settings.momentum

        def step(now: _State, constants: _Constants, rate: tf.Tensor, rows: tf.Tensor) -> _State:
            w, y, own = (
                tf.gather(part, rows) for part in (constants.weights, constants.target, excess)
            )
            u = now.a + momentum * now.velocity
            at = tf.gather(u, rows)
            K_u = (
                gram_product(kernel, points, tf.gather(X, rows), u, dtype=self.dtype, xla=xla)
                + own * at
            )
            g = w * (K_u - y) + at
            scale = len(X) / rows.shape[0]
            misfit = 0.5 * scale * tf.reduce_sum(tf.square(g) / w)
            velocity = tf.tensor_scatter_nd_sub(
                momentum * now.velocity, rows[:, None], rate * scale * g
            )
            a = now.a + velocity
            average = now.average + constants.keep * (a - now.average)  # (D52)
            return _State(a, velocity, average, now.misfit + misfit)

        self._step = Compiled(step)
        return self._step


class _Descent:
    def __init__(
        self,
        settings: DualDescent,
        system: MeanSystem,
        a: tf.Tensor,
        residual: tf.Tensor,
        epochs: int,
        deadline: float,
        report: Callable[[float, float], None],
    ) -> None:
        self.settings, self.deadline, self.report = settings, deadline, report
        self.batch, self.count = settings.batch(system), len(a)
        self.epoch = -(-self.count // self.batch)
        self.total, self.taken = epochs * self.epoch, 0
        keep = tf.constant(min(1.0, _AVERAGED / self.total), a.dtype)
        self.constants = _Constants(system.weights, system.target, keep)
        self.step, self.rate = settings.compiled(system), settings.rate(system)
        self.state = self.best = _at_rest(a)
        self.estimate = self.least = 0.5 * float(
            tf.reduce_sum(system.weights * tf.square(residual))
        )
        check_gap(self.least)

    @property
    def epochs(self) -> int:
        return -(-self.taken // self.epoch)

    @property
    def passes(self) -> int:
        return -(-self.taken * self.batch // self.count)

    def run(self, goal: float) -> bool:
        """Descend until the estimate of 1/2 r^T W r is small, or time or steps are used up.

        :return: True if an interrupt ended it.
        """
        said, interrupted = time.perf_counter(), False
        try:
            while self.taken < self.total and time.perf_counter() < self.deadline:
                rows = self.settings.generator.integers(0, self.count, self.batch)
                self.state = self.step(self.state, self.constants, self.rate, tf.constant(rows))
                self.taken += 1
                if self.taken % self.epoch == 0 and self._look() <= goal:
                    break
                if time.perf_counter() > said + _SECONDS:
                    said = time.perf_counter()
                    self.report(self.taken * self.batch / self.count, self.estimate)
        except KeyboardInterrupt:  # the average so far is certified after the round
            interrupted = True
        if not bool(tf.reduce_all(tf.math.is_finite(self.state.average))):
            self.state = self.best
        return interrupted

    def _look(self) -> float:
        """Return 1/2 r^T W r over the last epoch; if it grew, halve the step and go back."""
        misfit = float(self.state.misfit) / self.epoch
        if not misfit <= _GROWTH * self.least:
            self.settings.share *= 0.5
            self.rate, self.state = 0.5 * self.rate, self.best
            return math.inf
        self.state = self.state._replace(misfit=tf.zeros_like(self.state.misfit))
        if misfit < self.least:
            self.least, self.best = misfit, _at_rest(self.state.average)
        self.estimate = misfit
        return misfit


def _at_rest(a: tf.Tensor) -> _State:
    return _State(a, tf.zeros_like(a), a, tf.zeros([], a.dtype))
