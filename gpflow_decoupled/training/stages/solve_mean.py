"""Solves for a mean on all data."""

from __future__ import annotations

__all__ = ["MeanSolves", "SolveMean", "Solved"]

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from ...models import BasisGP
from ...optimizers import MeanResult
from ...optimizers.ascent import INTERRUPTED
from ...optimizers.data_mean.mean_optimizer import MeanOptimizer
from ...optimizers.data_mean.mean_solution import TIME_IS_UP
from ...replicas import Group
from ..batches import Batch
from .stage import Budget, Clock, Report, Stage, StepOutput

_OVERTIME, _LEAST_SECONDS = 1.25, 10.0
"""The share of the run after which the last solve is cut short, and the seconds that it may take in
any case.
"""


@dataclass(frozen=True)
class Solved:
    """A solve for the coefficients [N, L], and the Parameters that it left."""

    result: MeanResult
    is_rough: bool
    seconds: float
    values: Sequence[np.ndarray]
    """Of all variables of the model."""

    @property
    def gap(self) -> float | None:
        """Nats below the best mean, at most; None unless certified."""
        return self.result.gap if self.result.certified and not self.is_rough else None

    @property
    def was_interrupted(self) -> bool:
        """True if Ctrl-C ended the solve, with the mean found so far."""
        return self.result.reason == INTERRUPTED

    def output(self) -> StepOutput:
        """Return the bound after the solve as the output of a step."""
        return StepOutput.sound(tf.constant(self.result.elbo, self.values[0].dtype))


class MeanSolves:
    """The solver of a mean on all data, and its last solve, shared by stages.

    :param data: all rows, X [N, D] and Y [N, P].
    """

    def __init__(self, model: BasisGP, data: Batch, solver: MeanOptimizer, group: Group) -> None:
        self.model, self.data, self.solver, self.group = model, data, solver, group
        self.last: Solved | None = None

    @property
    def variables(self) -> list[tf.Variable]:
        """All variables of q(u), and the coefficients of the mean."""
        basis = self.model.basis
        assert basis.data_mean is not None
        parameters = [*basis.gaussian_parameters(), basis.data_mean.coefficients]
        return [parameter.unconstrained_variable for parameter in parameters]

    @property
    def current(self) -> Solved | None:
        """The last solve, unless the model changed since."""
        if self.last is None:
            return None
        # by their numbers: callbacks and users may have assigned Parameters in between
        return self.last if all(map(np.array_equal, self.last.values, self._state())) else None

    @property
    def seconds(self) -> float:
        """The time of the last solve."""
        return 0.0 if self.last is None else self.last.seconds

    def bound(self, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor | None:
        """Return the bound on all data X [N, D], Y [N, P], if the last solve computed it."""
        solved = self.current
        return None if solved is None else solved.output().elbo

    def roughly(self, solver: MeanOptimizer, deadline: float, clock: Clock) -> Solved:
        """Solve by a solver with a loose tolerance, until a value of `time.perf_counter`."""
        return self._solve(solver, True, deadline, clock)

    def fully(self, clock: Clock) -> Solved:
        """Solve for the final mean; late, it is cut short."""
        return self._solve(self.solver, False, clock.deadline(_OVERTIME, _LEAST_SECONDS), clock)

    def closing(self, clock: Clock) -> Report | None:
        """Solve, unless the last step did; a rough solve is continued."""
        solved = self.current
        if solved is not None and not solved.is_rough:
            return None
        solved = self.fully(clock)
        reason = INTERRUPTED if solved.was_interrupted else ""
        return Report(solved.output(), reason, gap=solved.gap)

    def _solve(
        self, solver: MeanOptimizer, is_rough: bool, deadline: float, clock: Clock
    ) -> Solved:
        began = time.perf_counter()
        result = solver.run_on(
            self.group, self.model, self.data, deadline=deadline, show=clock.show
        )
        self.last = Solved(result, is_rough, time.perf_counter() - began, self._state())
        return self.last

    def _state(self) -> list[np.ndarray]:
        return [variable.numpy() for variable in self.model.variables]


class SolveMean(Stage):
    """The final solve of a run without rounds, as a step.

    :param follows: other stages came before, so time ended them.
    """

    def __init__(self, solves: MeanSolves, follows: bool) -> None:
        self.solves, self.follows = solves, follows

    @property
    def variables(self) -> list[tf.Variable]:
        return self.solves.variables

    @property
    def settings(self) -> dict[str, object]:
        return {"mean_solver": type(self.solves.solver).__name__}

    def run(self, budget: Budget) -> Report:
        solved = self.solves.fully(budget.clock)
        late = self.follows or solved.result.reason == TIME_IS_UP
        reason = TIME_IS_UP if late else "the mean is solved for"
        return Report(
            solved.output(),
            INTERRUPTED if solved.was_interrupted else reason,
            converged=not self.follows and solved.result.converged,
            gap=solved.gap,
        )
