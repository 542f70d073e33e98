"""Stochastic dual descent."""

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

from __future__ import annotations

__all__ = ["DualDescent"]

import functools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ...compilation import Compiled
from ...covariances.blocks import xla_works
from ...covariances.products import diagonal_excess, gram_product
from ..ascent import CONVERGED, INTERRUPTED
from .mean_solution import TIME_IS_UP, MeanSolution, Point, Report, best_of, check_gap, point_of
from .system import MeanSystem

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

    :param step_size: eta in units of the formula above.
    """

    # Rounds follow until the gap is small, or epochs or time are used up:
    # 1. A preconditioned conjugate-gradient step settles directions with H about 1, where the
    # descent is slow.
    # 2. Steps (D52). Each epoch the visited rows estimate 1/2 r^T W r, at least the gap; if it
    # grew, the step size is halved and the descent returns to its best average.
    # 3. A product in full precision certifies the average.

    tolerance: float
    epochs: int
    correct_every: int
    batch_size: int
    step_size: float
    momentum: float
    seed: int
    dtype: tf.DType | None = None
    share: float = field(default=1.0, init=False)
    """Share of the step size left after halvings."""

    def __post_init__(self) -> None:
        self.generator = np.random.default_rng(self.seed)
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
        products, left, goal = 0, self.epochs, self.tolerance
        try:
            while not (reason := self._end(points[-1], left, deadline)):
                a, residual = self._corrected(
                    system, points[-1], functools.partial(report, products)
                )
                products += 1
                said = functools.partial(report, products)
                descent = _Descent(
                    self, system, a, residual, min(left, self.correct_every), deadline, said
                )
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
            reason = INTERRUPTED if points[-1].gap > self.tolerance else CONVERGED
        best = best_of(points, self.tolerance)
        gaps = [point.gap for point in points if point is not best] + [best.gap]
        return MeanSolution(best.a, best.residual, best.gap, products, gaps, reason)

    def _end(self, now: Point, left: int, deadline: float) -> str:
        if now.gap <= self.tolerance:
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
            / (1.0 - self.momentum)
        )
        return self.share * self.step_size / (system.largest() + noise)

    def batch(self, system: MeanSystem) -> int:
        """B, at most N."""
        return min(self.batch_size, len(system.target))

    def compiled(self, system: MeanSystem) -> Compiled:
        """Compile a step once for all systems of a run; they differ in weights and target."""
        if self._step is not None:
            return self._step
        kernel, points, X, xla = system.kernel, system.mean.points, system.mean.inputs, xla_works()
        excess = diagonal_excess(kernel, points)

        def step(now: _State, constants: _Constants, rate: tf.Tensor, rows: tf.Tensor) -> _State:
            w, y, own = (
                tf.gather(part, rows) for part in (constants.weights, constants.target, excess)
            )
            u = now.a + self.momentum * now.velocity
            at = tf.gather(u, rows)
            K_u = (
                gram_product(kernel, points, tf.gather(X, rows), u, dtype=self.dtype, xla=xla)
                + own * at
            )
            g = w * (K_u - y) + at
            scale = len(X) / rows.shape[0]
            misfit = 0.5 * scale * tf.reduce_sum(tf.square(g) / w)
            slowed = self.momentum * now.velocity
            velocity = tf.tensor_scatter_nd_sub(slowed, rows[:, None], rate * scale * g)
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
