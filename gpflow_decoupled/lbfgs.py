"""SciPy's L-BFGS-B for a function of a flat vector, within bounds."""

from __future__ import annotations

__all__ = [
    "CONVERGED", "EVALUATIONS_DONE", "FAILED", "INTERRUPTED", "TIME_IS_UP", "LBFGSRun",
    "Objective", "lbfgs_ascent", "settled",
]  # fmt: skip

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import OptimizeResult, minimize

from .errors import NumericalError
from .interrupts import raise_swallowed

Objective = Callable[[np.ndarray], tuple[float, np.ndarray]]
"""A value and its gradient [n] at a point [n]."""

CONVERGED = "converged"
INTERRUPTED = "interrupted"
FAILED = "the line search failed"
TIME_IS_UP = "time is up"
EVALUATIONS_DONE = "evaluations done"
_PAIRS = 20
"""Pairs of steps and gradient changes in L-BFGS's memory."""
_ABSURD = 1e8
"""A value worse than the best one by this many times its size is refused like one that is not
finite: between it and the last point a line search takes a step of round-off, and fails.
"""
_FLAT = 1e-8
"""At a maximum, where line searches fail, a Newton step gains at most this share of the value."""

_LAST = 10
"""Iterations at the end of a run whose gain tells whether more would pay."""
_TRIALS = 4
"""Of a line search before it may be flat; most end after one or two, and one in round-off takes 20.
"""


class LBFGSRun(NamedTuple):
    """The end of a run."""

    x: np.ndarray
    """The best point [n]."""
    value: float
    """The value there."""
    start: float
    """The value at the start."""
    evaluations: int
    converged: bool
    """False after the last evaluation, an interrupt, or a line search failed below a maximum."""
    reason: str
    """"converged", "evaluations done", "the line search failed" or "interrupted"; see also
    `climb_logarithms`.
    """
    rise: float = 0.0
    """The gain of ten iterations at the pace of the last ten, or of the last half of fewer."""


def settled(tolerance: float, window: int = 6) -> Callable[[list[float]], bool]:
    """A rule that ends a run when its last `window` iterations gained less than `tolerance`."""
    # Single iterations may gain little far from the optimum.

    def rule(values: list[float]) -> bool:
        return len(values) > window and values[-1] - values[-1 - window] < tolerance

    return rule


def lbfgs_ascent(
    function: Objective,
    start: np.ndarray,
    stop: Callable[[list[float]], bool],
    max_evaluations: int,
    *,
    low: np.ndarray | None = None,
    high: np.ndarray | None = None,
    record: Callable[[float, int], None] | None = None,
    keep: bool = False,
    advice: str = "",
    matrix: str = "",
    value_tolerance: float = 0.0,
    gradient_tolerance: float = 0.0,
    flat: float = 0.0,
) -> LBFGSRun:
    """Find the best point by L-BFGS-B from `start` [n].

    :param stop: called after each iteration with the best values; True ends the run, see `settled`.
    :param max_evaluations: approximate limit.
    :param low: lower bounds [n], -inf for none; `high` upper bounds [n], inf for none.
    :param record: called with the best value and the new evaluations.
    :param keep: an interrupt ends the run with its best point.
    :param advice: end of the error for a start that is not finite.
    :param value_tolerance: SciPy's `ftol`, relative.
    :param gradient_tolerance: SciPy's `gtol`, of the largest entry of the projected gradient.
    :param flat: a gain not worth a step. A line search has converged where its trials, or a Newton
        step after its failure, promise less.
    """
    # At a value or gradient that is not finite the line search shortens its step.
    unusable = NumericalError(f"The bound at the start is not finite: {advice}", matrix=matrix)
    sides = [
        np.full(start.shape, end) if side is None else side
        for side, end in ((low, -np.inf), (high, np.inf))
    ]
    boxed = bool(np.all(np.isfinite(sides)))
    watched = _Watched(function, start, stop, record, unusable, flat, boxed)
    options = {"maxcor": _PAIRS, "maxfun": max_evaluations, "maxiter": max_evaluations}
    tolerances = {"ftol": value_tolerance, "gtol": gradient_tolerance}
    bounds = None if low is None and high is None else np.stack(sides, axis=1)
    settings = {
        "jac": True,
        "method": "L-BFGS-B",
        "bounds": bounds,
        "options": {**options, **tolerances},
    }
    reason, ended = "", None
    try:
        ended = minimize(watched.loss, start, callback=watched.after_iteration, **settings)
    except KeyboardInterrupt:
        if not (keep and watched.values):
            raise
        reason = INTERRUPTED
    except _FlatError:
        reason = CONVERGED
    watched.report(only_new=True)
    if ended is not None and watched.total >= max_evaluations:
        reason = EVALUATIONS_DONE
    elif ended is not None:
        free = watched.free_gradient(*sides)
        # SciPy calls it success, too, where no step is better at all
        success = (
            ended.success and value_tolerance > 0.0 or np.max(np.abs(free)) <= gradient_tolerance
        )
        is_flat = watched.scale * _newton_gain(ended, free) <= max(
            flat, _FLAT * (1.0 + abs(watched.value))
        )
        reason = CONVERGED if watched.stopped or success or is_flat else FAILED
    values, is_done = watched.values, reason == CONVERGED
    last = _LAST if len(values) > _LAST else len(values) // 2
    rise = (watched.value - values[-1 - last]) * _LAST / max(last, 1)
    return LBFGSRun(watched.x, watched.value, values[0], watched.total, is_done, reason, rise)


class _FlatError(Exception):
    """A line search is within round-off of the best point."""


class _Watched:
    def __init__(
        self,
        function: Objective,
        start: np.ndarray,
        stop: Callable[[list[float]], bool],
        record: Callable[[float, int], None] | None,
        unusable: NumericalError,
        flat: float,
        boxed: bool,
    ) -> None:
        self.function, self.stop, self.record, self.unusable = function, stop, record, unusable
        self.flat, self.trials, self.boxed, self.scale = flat, 0, boxed, 1.0
        self.x, self.value, self.gradient = start, -np.inf, np.zeros_like(start)
        self.values: list[float] = []
        self.total, self.unreported, self.stopped = 0, 0, False

    def loss(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = self.function(x)
        self.total, self.unreported = self.total + 1, self.unreported + 1
        self.trials += 1
        good = bool(np.isfinite(value) and np.all(np.isfinite(gradient)))
        promised = abs(float(self.gradient @ (x - self.x)))
        if good and self.trials > _TRIALS and max(promised, abs(self.value - value)) < self.flat:
            raise _FlatError
        if not good and not self.values:
            raise self.unusable
        if good and value >= self.value:
            self.x, self.value, self.gradient = x.copy(), float(value), np.array(gradient)
        if not self.values:  # the start
            if self.boxed:
                # the first trial is one gradient away: SciPy takes a unit step in its place, but
                # not where all sides are bounded, and from a bad start it leads to the bounds
                self.scale = 1.0 / max(1.0, float(np.linalg.norm(gradient)))
            self.values.append(self.value)
            self.report()
        if not good or self.value - value > _ABSURD * (1.0 + abs(self.value)):
            # as much worse as the slope promised better: the next trial is a ninth of the step
            return self.scale * (promised - self.value), np.zeros_like(x)
        return -self.scale * value, -self.scale * gradient

    def after_iteration(self, _: np.ndarray) -> None:
        self.trials = 0
        self.values.append(self.value)
        self.report()
        raise_swallowed()
        self.stopped = self.stop(self.values)
        if self.stopped:
            raise StopIteration

    def report(self, only_new: bool = False) -> None:
        if self.record is not None and (self.unreported or not only_new):
            self.record(self.value, self.unreported)
        self.unreported = 0

    def free_gradient(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        held = (self.gradient < 0.0) & (self.x <= low) | (self.gradient > 0.0) & (self.x >= high)
        return np.where(held, 0.0, self.gradient)


def _newton_gain(ended: OptimizeResult, gradient: np.ndarray) -> float:
    # It is tiny at a maximum, where round-off makes a line search fail, but not where values and
    # gradients disagree.
    return float(0.5 * gradient @ ended.hess_inv.dot(gradient))
