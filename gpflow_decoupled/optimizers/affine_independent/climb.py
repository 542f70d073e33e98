"""SciPy's L-BFGS on a bound: points that are not finite are refused, the best one is kept."""

from __future__ import annotations

__all__ = ["climb"]

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize

from ...errors import NumericalError
from .result import StageRecord

_PAIRS = 20
_WINDOW = 6
"""Iterations over which a gain is measured: single ones may be small by chance."""
_REFUSED = 1e30


def climb(
    value_and_gradient: Callable[[np.ndarray], tuple[float, np.ndarray]],
    start: np.ndarray,
    record: StageRecord,
    tolerance: float,
    max_evaluations: int,
    low: np.ndarray | None = None,
) -> tuple[np.ndarray, float, str]:
    """The best point [n] from `start`, its value, and why it stopped: six iterations gained less than `tolerance`.

    `low` [n]: bounds from below, by default none. Raises `NumericalError` where the start has no finite value.
    """
    best = (start.copy(), -np.inf)
    values: list[float] = []
    count = 0

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best, count
        count += 1
        value, gradient = value_and_gradient(x)
        if not np.isfinite(value) or not np.all(np.isfinite(gradient)):
            return _REFUSED, np.zeros_like(x)
        if value > best[1]:
            best = x.copy(), float(value)
        return -value, -gradient

    def check(_: np.ndarray) -> None:
        nonlocal count
        record(best[1], count)
        count = 0
        values.append(best[1])
        if len(values) > _WINDOW and values[-1] - values[-1 - _WINDOW] < tolerance:
            raise StopIteration

    if objective(start)[0] >= _REFUSED:
        raise NumericalError(
            "The bound at the start is not finite: scale the inputs, or use a narrower prior; with a likelihood like "
            "Poisson's, a base with light tails, for example 'skew_normal'.",
            matrix="A",
        )
    values.append(best[1])
    limits = None if low is None else [(part if np.isfinite(part) else None, None) for part in low]
    options = {"maxcor": _PAIRS, "maxfun": max_evaluations, "maxiter": max_evaluations, "ftol": 0.0, "gtol": 1e-9}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=limits, callback=check, options=options)
    if count:
        record(best[1], count)
    return best[0], best[1], "evaluations done" if found.nfev >= max_evaluations else "converged"
