"""The ascent in turns for A = L U: over (b, L), over (b, U) and over the shapes, each by L-BFGS,
until a round gains no more.

Where all log densities g_n are concave, the bound is concave in (b, L) for fixed U and shapes and,
as long as no entry of the diagonal of L changes its sign, has one maximum there; likewise in (b, U)
for fixed L, (A20). It is neither concave in L and U together nor in the shapes.
"""

from __future__ import annotations

__all__ = ["Places", "check_turns", "climb_in_turns", "turns_of"]

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from ...bases.affine_independent import AffineIndependentBasis
from ...bases.affine_map import LUMap
from ...errors import DataError
from ..lbfgs import Objective
from .affine_climb import climb
from .affine_result import StageRecord

Places: TypeAlias = np.ndarray
"""Which entries of a vector one turn moves."""


def check_turns(basis: AffineIndependentBasis) -> LUMap:
    """The factors of A.

    :raises DataError: for another structure of A than "lu".
    """
    if not isinstance(basis.map, LUMap):
        raise DataError(
            f"alternate=True needs A = L U, and the structure of A is '{basis.structure}': build"
            " the model with structure='lu', or leave out alternate."
        )
    return basis.map


def turns_of(basis: AffineIndependentBasis, variables: Sequence[tf.Variable]) -> list[Places]:
    """Where the vector of all `variables` has (b, L), (b, U) and the shapes, as far as these are
    among them.

    :param basis: the basis whose A, b and shapes are meant.
    :param variables: the variables, in the order in which the vector has them.
    :raises DataError: for another structure of A than "lu".
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
    """The best point [n] from `start`, the value after each turn [turns], which never falls, and
    why the run ended.

    :param function: the bound in nats and its gradient, of all coordinates.
    :param start: [n].
    :param turns: the coordinates that each turn of a round moves.
    :param record: is called with the best bound so far and the evaluations since the last call.
    :param tolerance: in nats; a turn ends as `climb` does, and the run when a round of turns gains
        less.
    :param max_evaluations: at most about so many, in all turns together.
    :raises NumericalError: where the bound at the start is not finite.
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
    """The same function of the coordinates at `places` alone, with the others as in x [n]."""

    def restricted(part: np.ndarray) -> tuple[float, np.ndarray]:
        point = x.copy()
        point[places] = part
        value, gradient = function(point)
        return value, gradient[places]

    return restricted
