"""Training with a mean on all data: a coupled model first, then mean and hyperparameters in turns.

1. In the first 70 % of the run, a model without mean points that shares all Parameters takes steps
   on minibatches, with step sizes that fall in the last fifth of these: it finds kernel, noise and
   inducing points, and q(u) is a good start. Where too few evaluations of rounds fit into the rest,
   or expectations are sampled, these steps go on until step 4.
2. For Gaussian noise and rows that are not too many, these steps end after 25 % of the run, and
   L-BFGS climbs the bound of the coupled model at its best q(u) until 70 % of it, or until that no
   longer rises: see `routes/all_rows`. This is a step.
3. Each further step is a round: a solve for the mean on all data, by conjugate gradients or what
   was chosen, then L-BFGS climbs a bound of the evidence at this mean for a few evaluations. A
   round that gains less than `_ENOUGH` ends the run. For Gaussian noise the bound is that of CGLB;
   for other likelihoods, and where outputs are mixed, it is taken at the sites of q(f), and a round
   that lowers the ELBO is undone and ends the run.
4. At the end the mean is solved for at the hyperparameters as they are.

Solves within the rounds are rough: hyperparameters do not notice a mean that is `_ROUGH` nats per
observation below its best. A limit of seconds is planned for. Before the first step the parts of a
solve are timed on some rows, which says what rounds and solves will take. No climb goes on when the
solve that must follow would no longer fit, judged by how long the last one took. The last solve,
certificate included, may take a quarter of the limit more, and is then cut short: each product
raises the bound.
"""

from __future__ import annotations

__all__ = ["DataMeanStep"]

import time
from typing import cast

import numpy as np
import tensorflow as tf
from gpflow.kernels import LinearCoregionalization
from gpflow.likelihoods import MonteCarloLikelihood

from ....bases.parts.data_mean import DataMean
from ....lbfgs import LBFGSRun
from ....likelihoods.parameters import single_noise_variance
from ....models import BasisGP
from ....optimizers import MeanResult
from ....optimizers.ascent import INTERRUPTED
from ....optimizers.data_mean.hyperparameters import (
    bound_at_sites,
    climb,
    evidence_at,
    hyperparameters_of,
)
from ....optimizers.data_mean.mean_optimizer import MeanOptimizer
from ....optimizers.data_mean.mean_solution import TIME_IS_UP
from ....optimizers.data_mean.solve_mean import seconds_of_solves
from ....replicas import Group
from ...batches import Batch
from ...schedules import Limits
from ...states import Snapshot, go_back, snapshot
from ...steps import Step, StepOutput, StepSizes, Trackable
from ...together import repair_drift
from ..all_rows.climb import CollapsedClimb

_COUPLED_SHARE = 0.7
"""The share of a run before the rounds, where there are any. With half of it, a kernel with thirty
lengthscales ends behind that of a coupled model: steps on minibatches learn so many of them faster
than rounds do."""
_CLIMB_SHARE = 0.25
"""The share of a run before L-BFGS climbs the collapsed bound, where it does."""
_CLIMB_EVALUATIONS = 30
"""It does where so many evaluations fit in before the rounds: with fewer, L-BFGS gains less than
steps on minibatches.
"""
_ENOUGH_EVALUATIONS = 0.25
"""Rounds need so many evaluations for each number that kernel, likelihood and mean function learn:
with fewer, L-BFGS does not know the curvature, and steps on minibatches gain more in the same
time."""
_PRODUCTS = 8
"""With K in a solve, about."""
_OVERTIME, _LEAST_SECONDS = 1.25, 10.0
"""The share of the run after which the last solve is cut short, and what it may take in any
case.
"""
_EVALUATIONS = 8
"""Evaluations of the bound of the evidence in a round: more of them leave the mean too far
behind.
"""
_ENOUGH = 1e-3
"""A round that gains less than so many nats per observation is the last."""
_ROUGH = 1e-4
"""The gap in nats per observation that is good enough for a solve within a round."""


class DataMeanStep(Step):
    """A step of the coupled model, or a round; see the top of this file.

    :param model: the model with the mean on all data.
    :param mean: its mean.
    :param view: the model without mean points that shares its Parameters.
    :param coupled: the training step of the view.
    :param data: all rows, X [N, D] and Y [N, P].
    :param batch_size: the rows of a coupled step.
    :param solver: of the mean.
    :param limits: of the run.
    :param group: whose replicas share out the products of the rounds, and the rows of the coupled
    steps.
    """

    def __init__(
        self,
        model: BasisGP,
        mean: DataMean,
        view: BasisGP,
        coupled: Step,
        data: Batch,
        batch_size: int,
        solver: MeanOptimizer,
        limits: Limits,
        group: Group,
    ) -> None:
        self.model, self.mean, self.coupled, self.data = model, mean, coupled, data
        self.solver, self.limits, self.group = solver, limits, group
        one_noise = single_noise_variance(model.likelihood) is not None
        sampled = model.expectations is not None or isinstance(
            model.likelihood, MonteCarloLikelihood
        )
        self.rounds = not sampled
        self.end = self._climb_end = 1.0 if sampled else _COUPLED_SHARE
        self.at_sites = not one_noise or isinstance(model.kernel, LinearCoregionalization)
        self.hyperparameters = hyperparameters_of(model, mean)
        alone = group.strategy is None and CollapsedClimb.fits(view, len(data[0]))
        climbs = alone and self.rounds and not self.at_sites and bool(self.hyperparameters)
        self.collapsed = CollapsedClimb(self.hyperparameters, view, data) if climbs else None
        self.evaluations = 10**6  # as many as there is time for
        if (
            limits.steps is not None
        ):  # as many rows as those steps would see that the climb stands for
            self.evaluations = int(
                (_COUPLED_SHARE - _CLIMB_SHARE) * limits.steps * min(1.0, batch_size / len(data[0]))
            )
        self._plan_climb()
        self.rough = solver.rough(_ROUGH * len(data[0]))
        self._share, self._solve_seconds = 0.0, 0.0
        self._last: MeanResult | None = None
        self._last_is_rough = False
        self._values: list[np.ndarray] = []

    @property
    def variables(self) -> list[tf.Variable]:
        """Everything that a step writes."""
        return [
            *self.coupled.variables,
            self.mean.coefficients.unconstrained_variable,
            *self._not_in_coupled(),
        ]

    @property
    def checkpointable(self) -> dict[str, Trackable]:
        """The optimizers of the coupled steps, and whether the collapsed bound was climbed."""
        climbed = {} if self.collapsed is None else {"climbed": self.collapsed.done}
        return {**self.coupled.checkpointable, **climbed}

    @property
    def settings(self) -> dict[str, object]:
        """Those of the coupled steps, and what solves for the mean."""
        return {**self.coupled.settings, "mean_solver": type(self.solver).__name__}

    def trace(self, X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> None:
        """Compile the coupled step for X [B, D], Y [B, P], and plan the time after the coupled
        steps.
        """
        self.coupled.trace(X, Y, seed)
        if self.limits.seconds is not None and self.hyperparameters:
            dtype = tf.float32 if self.solver.float32 else None
            parts = seconds_of_solves(
                self.model, self.data[0], rank=self.solver.rank, dtype=dtype, group=self.group
            )
            self._plan(self.limits.seconds, *parts)
            if self.collapsed is not None:
                time_left = (self._climb_end - _CLIMB_SHARE) * self.limits.seconds
                self.evaluations = min(self.evaluations, int(time_left / self.collapsed.seconds()))
                self._plan_climb()

    def set_step_sizes(self, sizes: StepSizes) -> None:
        """Take those of the coupled steps, and how far the run is."""
        self._share = sizes.share
        self.coupled.set_step_sizes(sizes)

    def run(self, X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> StepOutput:
        """A coupled step on X [B, D], Y [B, P], or a round on all rows."""
        moves = bool(self.hyperparameters)
        if moves and self._share < self.end:
            self.gap = None
            return self.coupled.run(X, Y, seed)
        if self.collapsed is not None and self._share < self._climb_end and not self.collapsed.done:
            return self._climb_collapsed(self.collapsed)
        if moves and self.rounds:
            return self._round()
        elbo, last = self._solve(), cast(MeanResult, self._last)
        self.converged = not moves and last.converged
        late = moves or last.reason == TIME_IS_UP
        self.finished = self.finished or (TIME_IS_UP if late else "the mean is solved for")
        return StepOutput.sound(elbo)

    def finish(self) -> bool:
        """Solve for the mean, unless the last step did; a rough solve goes on from where it was."""
        if self._solved is not None and not self._last_is_rough:
            return False
        self._solve()
        return True

    def bound(self, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor | None:
        """The bound on all data X [N, D], Y [N, P], where the last step computed it."""
        solved = self._solved
        return None if solved is None else tf.constant(solved.elbo, X.dtype)

    def probe(self, X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """The bound of the coupled model on a batch, or of this one after a round."""
        bound = self.bound(X, Y)
        return self.coupled.probe(X, Y, seed) if bound is None else bound

    def matrices(self) -> dict[str, tf.Tensor]:
        """Those of the basis."""
        return self.coupled.matrices()

    def _plan(self, seconds: float, product: float, rest: float) -> None:
        """Whether there are rounds, and when the coupled steps end, by the seconds of the run and
        of the parts of a solve.
        """
        solve = _PRODUCTS * product + rest
        round_ = solve + 3.0 * _EVALUATIONS * product  # a gradient costs two products more
        rounds = ((1.0 - _COUPLED_SHARE) * seconds - solve) / round_
        parts = self.model.kernel, self.model.likelihood, self.model.mean_function
        numbers = sum(
            int(tf.size(variable)) for part in parts for variable in part.trainable_variables
        )
        if self.rounds and rounds * _EVALUATIONS >= _ENOUGH_EVALUATIONS * numbers:
            return
        self.rounds = False
        self.end = self._climb_end = max(_COUPLED_SHARE, 1.0 - solve / seconds)

    def _plan_climb(self) -> None:
        """The coupled steps end early where the collapsed bound is climbed after them."""
        enough = self.collapsed is not None and self.evaluations >= _CLIMB_EVALUATIONS
        self.end = _CLIMB_SHARE if enough else self._climb_end

    def _climb_collapsed(self, collapsed: CollapsedClimb) -> StepOutput:
        """Move hyperparameters and points to where the coupled model of all rows has a better
        bound.
        """
        self.is_long = True
        run, elbo = collapsed.run(self.evaluations, self._deadline(self._climb_end), self.show)
        if run.reason == INTERRUPTED:
            self.finished = INTERRUPTED
        return StepOutput.sound(elbo)

    def _round(self) -> StepOutput:
        self.is_long = True
        repair_drift(self.group, self.variables)
        deadline = self._deadline()
        elbo = self.bound(*self.data)
        elbo = self._solve(self.rough, deadline) if elbo is None else elbo
        if self.finished or self._is_late(deadline, solves=1):
            self.finished = self.finished or TIME_IS_UP
            return StepOutput.sound(elbo)
        before, known = (
            snapshot(self.variables),
            (self._last, self._last_is_rough, self._values, self.gap),
        )
        try:
            return StepOutput.sound(self._climb_and_solve(elbo, before, deadline))
        except KeyboardInterrupt:
            if self.group.workers > 1:  # the others have not stopped
                raise
            go_back(before)  # to the mean that is solved for
            self._last, self._last_is_rough, self._values, self.gap = known
            self.finished = INTERRUPTED
            return StepOutput.sound(elbo)

    def _climb_and_solve(self, elbo: tf.Tensor, before: Snapshot, deadline: float) -> tf.Tensor:
        """The bound after a climb and the solve that follows it; `elbo` and `before` are bound and
        variables before these.
        """
        run = self._climb(deadline)
        late, settled = (
            self._is_late(deadline, solves=2),
            run.value - run.start < _ENOUGH * len(self.data[0]),
        )
        then = self._solve(self.solver if late or settled or self._is_last_step else self.rough)
        fell = self.at_sites and not bool(then >= elbo - self.rough.tolerance)
        if fell and self.finished == INTERRUPTED:
            raise KeyboardInterrupt
        if fell:
            go_back(before)
            then = self._solve()
        if not self.finished and (late or settled or fell):
            self.converged = not late
            self.finished = TIME_IS_UP if late else "converged"
        return then

    @property
    def _is_last_step(self) -> bool:
        """Whether the limit of steps ends the run after this one."""
        return self.limits.steps is not None and self._share + 1.0 / self.limits.steps >= 1.0 - 1e-9

    def _climb(self, deadline: float) -> LBFGSRun:
        """Move the hyperparameters at the mean as it is, as long as the solve after it still
        fits.
        """
        model, mean = self.model, self.mean
        dtype = tf.float32 if self.solver.float32 else None
        objective = (bound_at_sites if self.at_sites else evidence_at)(
            model, mean, self.data, dtype, self.group
        )
        end = deadline - self._solve_seconds
        return climb(
            model,
            self.hyperparameters,
            objective,
            evaluations=_EVALUATIONS,
            deadline=end,
            group=self.group,
        )

    def _is_late(self, deadline: float, solves: int) -> bool:
        """Whether so many solves as the last one would not end by a value of
        `time.perf_counter`.
        """
        return self.group.is_over(deadline - solves * self._solve_seconds)

    def _solve(
        self, solver: MeanOptimizer | None = None, deadline: float = float("inf")
    ) -> tf.Tensor:
        """The bound after a solve. One that was interrupted leaves what it has found, and ends the
        run.
        """
        began, solver = time.perf_counter(), solver or self.solver
        deadline = self._deadline(_OVERTIME) if solver is self.solver else deadline
        self._last = solver.run_on(
            self.group, self.model, self.data, deadline=deadline, show=self.show
        )
        self._last_is_rough, self._solve_seconds = (
            solver is not self.solver,
            time.perf_counter() - began,
        )
        known = self._last.certified and not self._last_is_rough
        self._values, self.gap = self._state(), self._last.gap if known else None
        if self._last.reason == INTERRUPTED:
            self.finished = INTERRUPTED
        return tf.constant(self._last.elbo, self.data[0].dtype)

    @property
    def _solved(self) -> MeanResult | None:
        """What the last solve returned, unless the model was changed or taken back since."""
        same = self._last is not None and all(map(np.array_equal, self._values, self._state()))
        return self._last if same else None

    def _state(self) -> list[np.ndarray]:
        return [variable.numpy() for variable in self.model.variables]

    def _deadline(self, end: float = 1.0) -> float:
        """When a share of the run is over; with overtime, ten seconds from now at least."""
        if self.limits.seconds is None:
            return float("inf")
        return time.perf_counter() + max(
            (end - self._share) * self.limits.seconds, _LEAST_SECONDS * (end > 1.0)
        )

    def _not_in_coupled(self) -> list[tf.Variable]:
        known = {variable.ref() for variable in self.coupled.variables}
        return [variable for variable in self.hyperparameters if variable.ref() not in known]
