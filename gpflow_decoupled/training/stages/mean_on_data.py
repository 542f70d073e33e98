"""The end of a nearest-neighbour GP's run."""

from __future__ import annotations

__all__ = [
    "EVALUATIONS", "MeanSolves", "Rounds", "SolveMean", "Solved", "closed", "share_of_climbs",
    "with_mean",
]  # fmt: skip

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from ...covariances.products import kernel_product
from ...errors import NumericalError
from ...lbfgs import LBFGSRun
from ...models import BasisGP
from ...models.neighbours import NNGP
from ...optimizers import MeanResult
from ...optimizers.ascent import CONVERGED, INTERRUPTED
from ...optimizers.data_mean.evidence import bound_at_sites, evidence_at
from ...optimizers.data_mean.mean_optimizer import MeanOptimizer
from ...optimizers.data_mean.system import TIME_IS_UP
from ...optimizers.log_climb import LogObjective, climb_logarithms
from ...optimizers.neighbours import NeighbourRounds, choose_prediction_neighbours
from ...replicas import Group
from ..batches import Batch
from ..evaluation import repair_drift
from ..schedules import Limits
from ..snapshots import Snapshot, go_back, snapshot
from .neighbours import calibrated
from .stage import Budget, Clock, Report, Stage, StepOutput

# ---
# Solves for a mean on all data.


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


# ---
# A mean on all data and hyperparameters, in turns.


# A round climbs a bound of the evidence by L-BFGS at the present mean, then solves for the mean.
# The bound is the "diagonal" one of `evidence_bound` for Gaussian noise, else the ELBO at the sites
# of q(f); then a round that lowers it is undone and ends the run.
#
# Solves are rough: hyperparameters do not notice a mean `_ROUGH` nats per observation below its
# best. A climb ends when another solve like the last would no longer fit.


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


# ---


_TIMED, _PRODUCTS = 4096, 20
"""Rows of a timed product, and the usual number of products of a solve."""
_MOST = 0.5
"""Of the run, that a solve may be given: a mean at hyperparameters that nobody learned is none."""


def closed(rounds: NeighbourRounds, clock: Clock) -> Report:
    """Calibrate the variances, then solve for a mean on all rows, if the model has one.

    First choose the neighbours of predictions, if left to `fit`.

    A limit of seconds cuts the solve short, with a warning, or leaves it to the first prediction,
    as an interrupt does.
    """
    end = clock.deadline()
    if rounds.model.chooses_neighbours:
        before = end - rounds.seconds_of_calibration
        choose_prediction_neighbours(rounds.model, rounds.judges, before, rounds.group)
    return with_mean(rounds.model, calibrated(rounds, end), end, clock)


def with_mean(model: NNGP, report: Report, end: float, clock: Clock) -> Report:
    """Solve for the mean at the end of a run if the model takes the mean of all rows: see `closed`.

    :param end: of the time, a value of `time.perf_counter`.
    """
    if model.mean != "data":
        return report
    left = end - time.perf_counter()
    if left <= 0.0:
        return report
    seconds = left if np.isfinite(left) else None
    try:
        model.solve_mean(seconds=seconds, show=clock.show)
    except KeyboardInterrupt:
        return report._replace(reason=INTERRUPTED)
    except NumericalError:  # no time for a product; a prediction says so if it fails again
        return report
    return report


def share_of_climbs(model: NNGP, limits: Limits) -> float:
    """The share of a run after which the hyperparameters stay, so that the solve has time.

    All of it where steps are limited too: they then tell the share.
    """
    seconds = limits.seconds
    if model.mean != "data" or seconds is None or limits.steps is not None:
        return 1.0
    X, Y = model.of_rows.data
    few = X[:_TIMED]
    columns = tf.ones([few.shape[0], Y.shape[1]], X.dtype)
    for _ in range(2):  # the first one compiles
        began = time.perf_counter()
        for group in model.of_rows.groups:
            kernel_product(group.kernel, few, None, columns, dtype=tf.float32).numpy()
        taken = time.perf_counter() - began
    needed = _PRODUCTS * taken * (int(X.shape[0]) / int(few.shape[0])) ** 2
    return 1.0 - min(_MOST, needed / seconds)
