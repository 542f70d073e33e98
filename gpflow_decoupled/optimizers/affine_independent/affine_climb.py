"""L-BFGS with the settings of affine-independent inference."""

from __future__ import annotations

__all__ = ["climb"]

import numpy as np

from ...lbfgs import Objective, lbfgs_ascent, settled
from .affine_result import StageRecord

_GRADIENT_TOLERANCE = 1e-9
_ADVICE = (
    "scale the inputs, or use a narrower prior; with a likelihood like Poisson's, a base"
    " distribution with light tails, for example 'skew_normal'."
)


def climb(
    function: Objective,
    start: np.ndarray,
    record: StageRecord,
    tolerance: float,
    max_evaluations: int,
    low: np.ndarray | None = None,
) -> tuple[np.ndarray, float, str]:
    """Maximise from `start` [n]; return the best point [n], its value, the reason for stopping.

    :param function: returns the bound in nats and its gradient.
    """
    found = lbfgs_ascent(
        function,
        start,
        settled(tolerance),
        max_evaluations,
        low=low,
        record=record,
        advice=_ADVICE,
        matrix="A",
        gradient_tolerance=_GRADIENT_TOLERANCE,
    )
    return found.x, found.value, found.reason
