"""The one place that runs SciPy's L-BFGS-B: maximises a function of a flat vector, within bounds.

Callers pack their variables into the vector, with `gpflow.optimizers.Scipy.pack_tensors` where these are tensors.
"""

from __future__ import annotations

__all__ = ["LBFGSRun", "Objective", "lbfgs_ascent", "settled"]

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from ..errors import NumericalError
from .ascent import CONVERGED, INTERRUPTED

Objective = Callable[[np.ndarray], tuple[float, np.ndarray]]
"""A value and its gradient [n] at a point [n]."""

_PAIRS = 20
"""Pairs of steps and gradient changes that L-BFGS remembers."""
_REFUSED = 1e30
"""Stands for the loss at a point that is refused. Infinity would make the line search's next trial NaN."""


class LBFGSRun(NamedTuple):
    """Where a run ended."""

    x: np.ndarray
    """The best point [n]."""
    value: float
    """The value there."""
    start: float
    """The value at the start."""
    evaluations: int
    converged: bool
    """False where the evaluations ran out, and after an interrupt."""
    reason: str
    """Why it ended: "converged", "evaluations done" or "interrupted"."""


def settled(tolerance: float, window: int = 1) -> Callable[[list[float]], bool]:
    """A rule that ends a run when the last `window` iterations together gained less than `tolerance`."""

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
) -> LBFGSRun:
    """The best point that L-BFGS-B finds from `start`.

    A point at which the value or the gradient is not finite is refused: the line search tries a shorter step.

    :param function: the value to be maximised, and its gradient.
    :param start: [n].
    :param stop: called after each iteration with the best value at the start and after each iteration so far; True ends the
        run. See `settled`.
    :param max_evaluations: of the function, about.
    :param low: bounds from below [n], -inf where there is none.
    :param high: bounds from above [n], inf where there is none.
    :param record: called with the best value so far and the number of evaluations since the last call: at the start, after
        each iteration, and at the end where a line search was given up.
    :param keep: whether an interrupt ends the run with the best point so far, rather than being raised.
    :param advice: how the error for a start that is not finite ends: what the user can do.
    :param matrix: what that error names as its cause.
    :param value_tolerance: SciPy's `ftol`, relative.
    :param gradient_tolerance: SciPy's `gtol`, on the largest entry of the projected gradient.
    :raises NumericalError: where the value or the gradient at the start is not finite.
    """
    best, values = (start, -np.inf), list[float]()
    total = unreported = 0

    def report() -> None:
        nonlocal unreported
        if record is not None:
            record(best[1], unreported)
        unreported = 0

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best, total, unreported
        value, gradient = function(x)
        total, unreported = total + 1, unreported + 1
        good = bool(np.isfinite(value) and np.all(np.isfinite(gradient)))
        if not good and not values:
            raise NumericalError(f"The bound at the start is not finite: {advice}", matrix=matrix)
        if good and value >= best[1]:
            best = x.copy(), float(value)
        if not values:  # the start
            values.append(best[1])
            report()
        return (-value, -gradient) if good else (_REFUSED, np.zeros_like(x))

    def after_iteration(_: np.ndarray) -> None:
        values.append(best[1])
        report()
        if stop(values):
            raise StopIteration

    sides = [np.full(start.shape, end) if side is None else side for side, end in ((low, -np.inf), (high, np.inf))]
    options = {"maxcor": _PAIRS, "maxfun": max_evaluations, "maxiter": max_evaluations}
    tolerances = {"ftol": value_tolerance, "gtol": gradient_tolerance}
    bounds = None if low is None and high is None else np.stack(sides, axis=1)
    settings = {"jac": True, "method": "L-BFGS-B", "bounds": bounds, "options": {**options, **tolerances}}
    reason = ""
    try:
        minimize(objective, start, callback=after_iteration, **settings)
    except KeyboardInterrupt:
        if not (keep and values):
            raise
        reason = INTERRUPTED
    if unreported:
        report()
    reason = reason or (CONVERGED if total < max_evaluations else "evaluations done")
    return LBFGSRun(*best, values[0], total, reason == CONVERGED, reason)
