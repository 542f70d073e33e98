"""A mean on all data and hyperparameters, in turns."""

# A round climbs a bound of the evidence by L-BFGS at the present mean, then solves for the mean.
# The bound is the "diagonal" one of `evidence_bound` for Gaussian noise, else the ELBO at the sites
# of q(f); then a round that lowers it is undone and ends the run.
#
# Solves are rough: hyperparameters do not notice a mean `_ROUGH` nats per observation below its
# best. A climb ends when another solve like the last would no longer fit.

from __future__ import annotations

__all__ = ["EVALUATIONS", "Rounds"]

from collections.abc import Sequence

import tensorflow as tf

from ...lbfgs import LBFGSRun
from ...models import BasisGP
from ...optimizers.ascent import CONVERGED, INTERRUPTED
from ...optimizers.data_mean.hyperparameters import bound_at_sites, evidence_at
from ...optimizers.data_mean.mean_solution import TIME_IS_UP
from ...optimizers.log_climb import climb_logarithms
from ...optimizers.log_objective import LogObjective
from ..batches import Batch
from ..snapshots import Snapshot, go_back, snapshot
from ..workers import repair_drift
from .solve_mean import MeanSolves, Solved
from .stage import Budget, Clock, Report, Stage

EVALUATIONS = 8
"""Of the bound of the evidence in a round: more of them leave the mean too far behind."""
_ENOUGH = 1e-3
"""A round that gains less than this many nats per observation is the last."""
_ROUGH = 1e-4
"""The gap in nats per observation that is good enough for a solve within a round."""


class Rounds(Stage):
    """Rounds of a climb of the hyperparameters and a solve for the mean, one per turn.

    :param solves: the solver, and the model with the mean on all data.
    :param at_sites: take the bound at the sites of q(f).
    """

    def __init__(self, solves: MeanSolves, moved: Sequence[tf.Variable], at_sites: bool) -> None:
        self.solves, self.moved, self.at_sites = solves, moved, at_sites
        self.model: BasisGP = solves.model
        self.data: Batch = solves.data
        self.rise = 0.0
        """Of the last climb, in nats."""
        self.rough = solves.solver.rough(_ROUGH * len(self.data[0]))

    @property
    def variables(self) -> list[tf.Variable]:
        return [*self.solves.variables, *self.moved]

    @property
    def settings(self) -> dict[str, object]:
        return {"mean_solver": type(self.solves.solver).__name__}

    def run(self, budget: Budget) -> Report:
        return self._round(budget)._replace(rise=self.rise)

    def _round(self, budget: Budget) -> Report:
        clock, solves = budget.clock, self.solves
        repair_drift(solves.group, self.variables)
        deadline = clock.deadline()
        solved = solves.current or solves.roughly(self.rough, deadline, clock)
        if solved.was_interrupted or self._is_late(deadline, solves=1):
            return _report(solved, INTERRUPTED if solved.was_interrupted else TIME_IS_UP)
        before = snapshot(self.variables)
        try:
            return self._climb_and_solve(solved, before, deadline, clock)
        except KeyboardInterrupt:
            if solves.group.workers > 1:  # the others have not stopped
                raise
            go_back(before)  # to the mean that is solved for
            solves.last = solved
            return _report(solved, INTERRUPTED)

    def _climb_and_solve(
        self, solved: Solved, before: Snapshot, deadline: float, clock: Clock
    ) -> Report:
        run, solves = self._climb(deadline - solved.seconds), self.solves
        self.rise = run.rise
        late = self._is_late(deadline, solves=2)
        settled = run.value - run.start < _ENOUGH * len(self.data[0])
        if late or settled or clock.is_last_step:
            then = solves.fully(clock)
        else:
            then = solves.roughly(self.rough, float("inf"), clock)
        floor = solved.result.elbo - self.rough.tolerance
        fell = self.at_sites and not then.result.elbo >= floor
        if fell and then.was_interrupted:
            raise KeyboardInterrupt  # `run` goes back to the mean that is solved for
        if fell:
            go_back(before)
            then = solves.fully(clock)
        if then.was_interrupted:
            return _report(then, INTERRUPTED)
        if late:
            return _report(then, TIME_IS_UP)
        return _report(then, CONVERGED if settled or fell else "", converged=settled or fell)

    def _climb(self, deadline: float) -> LBFGSRun:
        """Move the hyperparameters at the present mean, as long as the next solve still fits."""
        model, solves = self.model, self.solves
        dtype = tf.float32 if solves.solver.float32 else None
        bound = bound_at_sites if self.at_sites else evidence_at
        density = bound(model, model.basis.data_mean, self.data, dtype, solves.group)
        objective = LogObjective.of_model(
            model, self.moved, density, group=solves.group, logarithms=False
        )
        return climb_logarithms(
            objective,
            objective.coordinates,
            num_data=1,
            evaluations=EVALUATIONS,
            deadline=deadline,
            tolerance=0.0,
            keep=False,
            group=solves.group,
            matrix="K_beta",
        )

    def _is_late(self, deadline: float, solves: int) -> bool:
        return self.solves.group.is_over(deadline - solves * self.solves.seconds)


def _report(solved: Solved, reason: str, converged: bool = False) -> Report:
    return Report(solved.output(), reason, converged=converged, gap=solved.gap, is_long=True)
