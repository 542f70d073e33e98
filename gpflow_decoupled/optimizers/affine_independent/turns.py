"""The ascent in turns for A = L U (A20)."""

from __future__ import annotations

__all__ = ["Places", "check_turns", "climb_in_turns", "turns_of"]

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from ...bases.affine_independent import AffineIndependentBasis
from ...bases.affine_map import LUMap
from ...errors import DataError
from ...lbfgs import Objective
from .affine_climb import climb
from .affine_result import StageRecord

Places: TypeAlias = np.ndarray
"""The entries of a vector that one turn moves."""


def check_turns(basis: AffineIndependentBasis) -> LUMap:
    """Return the factors of A; raise `DataError` for another structure than "lu"."""
    if not isinstance(basis.map, LUMap):
        raise DataError(
            f"alternate=True needs A = L U, and the structure of A is '{basis.structure}': build"
            " the model with structure='lu', or leave out alternate."
        )
    return basis.map


def turns_of(basis: AffineIndependentBasis, variables: Sequence[tf.Variable]) -> list[Places]:
    """Return the places of (b, L), (b, U) and the shapes in the vector of `variables`.

    Raises the errors of `check_turns`.
    """
    factors = check_turns(basis)
    ends = np.cumsum([0, *(int(np.prod(variable.shape)) for variable in variables)])
    found = {
        variable.ref(): np.arange(*pair) for variable, pair in zip(variables, zip(ends, ends[1:]))
    }
    L, U, b, theta = (
        part.unconstrained_variable
        for part in (factors.L, factors.U_transposed, basis.b, basis.theta)
    )
    turns = [
        [found[one.ref()] for one in turn if one.ref() in found]
        for turn in ((b, L), (b, U), (theta,))
    ]
    return [np.concatenate(turn) for turn in turns if turn]  # (A20)


def climb_in_turns(
    function: Objective,
    start: np.ndarray,
    turns: Sequence[Places],
    record: StageRecord,
    tolerance: float,
    max_evaluations: int,
) -> tuple[np.ndarray, np.ndarray, str]:
    """Climb from `start` [n]; return the best point [n], the value after each turn, the reason.

    :param turns: the coordinates that each turn of a round moves.
    """
    x, bounds, done = start.copy(), [-np.inf], 0

    def counted(value: float, evaluations: int) -> None:
        nonlocal done
        done += evaluations
        record(value, evaluations)

    while True:
        for places in turns:
            x[places], value, reason = climb(
                _restricted(function, x.copy(), places),
                x[places],
                counted,
                tolerance,
                max_evaluations - done,
            )
            bounds.append(value)
            if reason != "converged":
                return x, np.array(bounds[1:]), reason
        if bounds[-1] - bounds[-1 - len(turns)] < tolerance:
            return x, np.array(bounds[1:]), "converged"


def _restricted(function: Objective, x: np.ndarray, places: Places) -> Objective:
    def restricted(part: np.ndarray) -> tuple[float, np.ndarray]:
        point = x.copy()
        point[places] = part
        value, gradient = function(point)
        return value, gradient[places]

    return restricted
