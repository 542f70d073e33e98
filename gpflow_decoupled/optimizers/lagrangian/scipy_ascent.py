"""SciPy's L-BFGS-B on a bound that TensorFlow computes: what the rivals of the Lagrangian share."""

from __future__ import annotations

__all__ = ["ascend", "write_multipliers"]

from collections.abc import Callable

import numpy as np
import tensorflow as tf
from scipy.optimize import minimize

from ...errors import NumericalError
from .dual import DualProblem, Marginals
from .result import Trace

_PAIRS = 20


def ascend(
    value_and_gradient: Callable[[np.ndarray], tuple[float, np.ndarray]],
    start: np.ndarray,
    low: np.ndarray,
    trace: Trace,
    tolerance: float,
    max_evaluations: int,
) -> tuple[np.ndarray, str]:
    """The best point [n] from `start`, above `low` [n], and why it stopped: the bound changed by less than `tolerance`.

    A value that is not finite stands for minus infinity, and the line search backtracks. Raises `NumericalError` where the
    start has none. An iteration is an entry of `trace`.
    """
    count, before, best = 0, -np.inf, (start, -np.inf)

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal count, best
        count += 1
        value, gradient = value_and_gradient(x)
        if not np.isfinite(value) or not np.all(np.isfinite(gradient)):
            return np.inf, np.zeros_like(x)
        if value > best[1]:
            best = x.copy(), value
        return -value, -gradient

    def check(_: np.ndarray) -> None:
        nonlocal count, before
        trace.append(best[1], count)
        count, gain, before = 0, best[1] - before, best[1]
        if gain < tolerance:
            raise StopIteration

    first = objective(start)[0]
    if not np.isfinite(first):
        raise NumericalError("The bound at the start is not finite: use a kernel with a smaller variance.", matrix="K")
    before = -first
    trace.append(before)
    options = {"maxcor": _PAIRS, "maxfun": max_evaluations, "maxiter": max_evaluations, "ftol": 0.0, "gtol": 0.0}
    bounds = [(bound if np.isfinite(bound) else None, None) for bound in low]
    found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, callback=check, options=options)
    if count:
        trace.append(best[1], count)
    reason = "evaluations done" if found.nfev >= max_evaluations else "converged"
    return best[0], reason


def write_multipliers(problem: DualProblem, candidates: list[tuple[tf.Tensor, tf.Tensor]]) -> Marginals:
    """Leave the model at the best of some (alpha, lam), [N, L] each."""
    found = [problem.marginals(alpha, lam) for alpha, lam in candidates]
    best = max(found, key=lambda at: float(at.bound) if bool(at.ok) else -np.inf)
    if bool(best.ok):
        problem.basis.alpha.assign(best.alpha)
        problem.basis.lam.assign(best.lam)
    return best
