"""The dual of a subproblem by SciPy's L-BFGS-B: as in the paper, for data that Newton's method is too large for."""

from __future__ import annotations

__all__ = ["lbfgs_solve"]

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from scipy.optimize import minimize

from .dual import DualPoint, DualProblem, Marginals
from .newton import Box
from .site_maximiser import Subproblem

_PAIRS = 20
_MAX_EVALUATIONS = 2000


class _Done(Exception):
    """Raised out of SciPy's loop where the duality gap is small enough."""


def lbfgs_solve(
    problem: DualProblem,
    sub: Subproblem,
    at: Marginals,
    point: DualPoint,
    box: Box,
    finished: Callable[[Marginals, DualPoint], bool],
) -> tuple[Marginals, DualPoint, int]:
    """The last point of L-BFGS-B on D_k from `at`, alpha and lam [N, L] in the box, and its number of evaluations.

    Coordinates are scaled by the diagonal of the Hessian (V18) at the start. Where V does not exist the value is infinite,
    and the line search backtracks. Memory: 20 pairs of 2 N L numbers.
    """
    scales = _scales(problem, sub, at, point)
    best: list[Any] = [at, point]
    count = 0

    def split(x: np.ndarray) -> tuple[tf.Tensor, tf.Tensor]:
        alpha, lam = (tf.constant(part.reshape(at.alpha.shape)) for part in np.split(x * scales, 2))
        return box.clip(alpha, lam)

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal count
        count += 1
        trial = problem.marginals(*split(x))
        then = problem.point(sub, trial, best[1].sites.h, best[1].sites.sigma)
        if not bool(trial.state.ok) or not np.isfinite(float(then.dual)):
            return np.inf, np.zeros_like(x)
        if float(then.dual) <= float(best[1].dual):
            best[:] = trial, then
        return float(then.dual), scales * _flat(then.g_alpha, then.g_lam)

    def check(_: np.ndarray) -> None:
        if finished(*best):
            raise _Done

    low, high = _flat(box.alpha_low, box.lam_low) / scales, _flat(box.alpha_high, box.lam_high) / scales
    start = np.clip(_flat(at.alpha, at.lam) / scales, low, high)
    try:
        if not finished(at, point):
            options = {
                "maxcor": _PAIRS,
                "maxfun": _MAX_EVALUATIONS,
                "maxiter": _MAX_EVALUATIONS,
                "ftol": 1e-15,
                "gtol": 0.0,
            }
            minimize(
                objective, start, jac=True, method="L-BFGS-B", bounds=np.stack([low, high], axis=1), callback=check,
                options=options,
            )  # fmt: skip
    except _Done:
        pass
    return best[0], best[1], count


def _scales(problem: DualProblem, sub: Subproblem, at: Marginals, point: DualPoint) -> np.ndarray:
    """Roots of the inverse diagonal of (V18) [2 N L]."""
    prior, sites = problem.prior, point.sites
    weight = problem.basis.form == "weight"
    diagonal = tf.reduce_sum(tf.square(prior), axis=-1) if weight else tf.linalg.diag_part(prior)
    moved = [tf.maximum(one, 0.0) for one in (sites.d_h_d_alpha, sub.sigma * sites.d_s_d_lam)]  # negative at a saddle
    alpha = tf.transpose(diagonal) + moved[0]
    lam = 0.5 * tf.square(at.state.variance) + moved[1]
    return 1.0 / np.sqrt(_flat(alpha, lam))


def _flat(*parts: tf.Tensor) -> np.ndarray:
    return np.concatenate([np.asarray(part).ravel() for part in parts])
