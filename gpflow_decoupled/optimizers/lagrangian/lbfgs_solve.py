"""A subproblem's dual by L-BFGS-B, for many observations."""

from __future__ import annotations

__all__ = ["lbfgs_solve"]

from collections.abc import Callable

import numpy as np
import tensorflow as tf
from gpflow.optimizers import Scipy

from ...errors import NumericalError
from ...lbfgs import lbfgs_ascent
from .dual import DualPoint, DualProblem, Marginals
from .newton import Box
from .site_maximiser import Subproblem

_MAX_EVALUATIONS = 2000
_VALUE_TOLERANCE = 1e-15  # so small that `finished` decides


def lbfgs_solve(
    problem: DualProblem,
    sub: Subproblem,
    at: Marginals,
    point: DualPoint,
    box: Box,
    finished: Callable[[Marginals, DualPoint], bool],
) -> tuple[Marginals, DualPoint, int]:
    """Minimise D_k by L-BFGS-B from `at`; return the best point and the number of evaluations."""
    # Coordinates are scaled by the Hessian's diagonal (V18) at the start, where alpha and lam [N,
    # L] lie in the box.
    if finished(at, point):
        return at, point, 0
    scales = _scales(problem, sub, at, point)
    best, count = (at, point), 0

    def value_and_gradient(x: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best, count
        count += 1
        trial = problem.marginals(
            *box.clip(*Scipy.unpack_tensors([at.alpha, at.lam], tf.constant(x * scales)))
        )
        then = problem.point(sub, trial, best[1].sites.h, best[1].sites.sigma)
        if float(then.dual) <= float(best[1].dual):
            best = trial, then
        return -float(then.dual), -scales * _flat(then.g_alpha, then.g_lam)

    low, high = (
        _flat(box.alpha_low, box.lam_low) / scales,
        _flat(box.alpha_high, box.lam_high) / scales,
    )
    start = np.clip(_flat(at.alpha, at.lam) / scales, low, high)
    try:
        lbfgs_ascent(
            value_and_gradient,
            start,
            lambda _: finished(*best),
            _MAX_EVALUATIONS,
            low=low,
            high=high,
            value_tolerance=_VALUE_TOLERANCE,
        )
    except NumericalError:  # D_k is infinite at the start, so that there is no descent
        return at, point, 0
    return *best, count


def _scales(problem: DualProblem, sub: Subproblem, at: Marginals, point: DualPoint) -> np.ndarray:
    """Inverse roots of the diagonal of (V18) [2 N L]."""
    sites = point.sites
    moved = [
        tf.maximum(one, 0.0) for one in (sites.d_h_d_alpha, sub.sigma * sites.d_s_d_lam)
    ]  # negative at a saddle
    alpha = tf.transpose(problem.geometry.diagonal(problem.prior)) + moved[0]
    lam = 0.5 * tf.square(at.state.variance) + moved[1]
    return 1.0 / np.sqrt(_flat(alpha, lam))


def _flat(*parts: tf.Tensor) -> np.ndarray:
    return Scipy.pack_tensors(parts).numpy().astype(float)
