"""The stages of `gamma="data"`, and when each ends."""

# 1. Minibatches for 70 % of the run, by a model without mean points that shares all Parameters. For
#    Gaussian noise and not too many rows, a collapsed climb follows at 25 %.
# 2. Rounds: mean and hyperparameters in turns.
# 3. A last solve for the mean.
#
# Where expectations are sampled, or too few rounds fit, minibatches go on until the solve. For a
# limit of seconds a solve is timed on some rows first.

from __future__ import annotations

__all__ = ["Course"]

from collections.abc import Sequence
from typing import cast

import tensorflow as tf
from gpflow.kernels import LinearCoregionalization
from gpflow.likelihoods import MonteCarloLikelihood

from ...bases.parts.data_mean import DataMean
from ...likelihoods.parameters import single_noise_variance
from ...models import BasisGP
from ...optimizers.data_mean.hyperparameters import hyperparameters_of
from ...optimizers.data_mean.solve_mean import seconds_of_solves
from ..options import Options
from ..plan import Part, Plan
from ..stages.collapsed_climb import CollapsedClimb
from ..stages.rounds import EVALUATIONS, Rounds
from ..stages.solve_mean import MeanSolves, SolveMean
from ..stages.stage import Stage

_BEFORE_ROUNDS = 0.7
"""Share of a run before the rounds, if any. With half of it, a kernel with thirty lengthscales ends
behind a coupled model's: minibatches learn many lengthscales faster than rounds.
"""
_BEFORE_CLIMB = 0.25
"""The share of a run before L-BFGS climbs the collapsed bound, where it does."""
_CLIMB_EVALUATIONS = 30
"""Evaluations that must fit in before the rounds: with fewer, L-BFGS gains less than minibatches.
"""
_ENOUGH_EVALUATIONS = 0.25
"""Evaluations in rounds for each number that kernel, likelihood and mean function learn: with
fewer, L-BFGS does not know the curvature, and minibatches gain more in the same time.
"""
_PRODUCTS = 8
"""With K in a solve, about."""


class Course:
    """Chooses the stages of a run, and when each ends.

    :param view: the model without mean points that shares the Parameters of `model`.
    """

    def __init__(
        self, model: BasisGP, view: BasisGP, coupled: Plan, solves: MeanSolves, options: Options
    ) -> None:
        self.model, self.solves, self.limits = model, solves, options.limits
        self.minibatches: Stage = coupled.parts[0].stage
        data, mean = solves.data, cast(DataMean, model.basis.data_mean)
        self.moved = hyperparameters_of(model, mean)
        sampled = model.expectations is not None
        self.sampled = sampled or isinstance(model.likelihood, MonteCarloLikelihood)
        one_noise = single_noise_variance(model.likelihood) is not None
        at_sites = not one_noise or isinstance(model.kernel, LinearCoregionalization)
        self.rounds = Rounds(solves, self.moved, at_sites)
        self.climb: CollapsedClimb | None = None
        alone = options.group.strategy is None and CollapsedClimb.fits(view, len(data[0]))
        if alone and not self.sampled and not at_sites and self.moved:
            evaluations = 10**6  # limited by time alone
            if options.steps is not None:  # the rows that minibatches would see meanwhile
                share = min(1.0, (coupled.batches.batch_size or 1) / len(data[0]))
                evaluations = int((_BEFORE_ROUNDS - _BEFORE_CLIMB) * options.steps * share)
            self.climb = CollapsedClimb(self.moved, view, data, evaluations)

    def parts(self, rounds: bool | None = None, before_solve: float = 1.0) -> list[Part]:
        """The stages; `before_solve` is the share of the run before a solve without rounds."""
        if not self.moved:
            return [Part(SolveMean(self.solves, follows=False))]
        rounds = not self.sampled if rounds is None else rounds
        if not rounds and before_solve == 1.0:
            return [Part(self.minibatches)]
        before = _BEFORE_ROUNDS if rounds else before_solve
        last: Stage = self.rounds if rounds else SolveMean(self.solves, follows=True)
        if self.climb is None or self.climb.evaluations < _CLIMB_EVALUATIONS:
            return [Part(self.minibatches, before), Part(last)]
        return [Part(self.minibatches, _BEFORE_CLIMB), Part(self.climb, before), Part(last)]

    def timed(self) -> Sequence[Part]:
        """The stages of a run with a limit of seconds, by the time of products on some rows."""
        seconds, solves = self.limits.seconds, self.solves
        if seconds is None or not self.moved:
            return self.parts()
        product, rest = seconds_of_solves(
            self.model,
            solves.data[0],
            rank=solves.solver.rank,
            dtype=tf.float32 if solves.solver.float32 else None,
            group=solves.group,
        )
        solve = _PRODUCTS * product + rest
        round_ = solve + 3.0 * EVALUATIONS * product  # a gradient costs two products more
        count = ((1.0 - _BEFORE_ROUNDS) * seconds - solve) / round_
        learners = self.model.kernel, self.model.likelihood, self.model.mean_function
        numbers = sum(int(tf.size(v)) for part in learners for v in part.trainable_variables)
        rounds = not self.sampled and count * EVALUATIONS >= _ENOUGH_EVALUATIONS * numbers
        before = max(_BEFORE_ROUNDS, 1.0 - solve / seconds)
        if self.climb is not None:
            until = _BEFORE_ROUNDS if rounds else before
            fit_in = int((until - _BEFORE_CLIMB) * seconds / self.climb.seconds())
            self.climb.evaluations = min(self.climb.evaluations, fit_in)
        return self.parts(rounds, before)
