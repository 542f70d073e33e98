"""Models on inducing points."""

from __future__ import annotations

__all__ = ["BY_NAME", "Course", "InducingRoute", "plan_on_data", "undo_of"]

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import tensorflow as tf
from gpflow.kernels import LinearCoregionalization
from gpflow.models import SVGP

from ...bases import MeanOnDataBasis
from ...bases.optimum import DataMean, refuse_streams
from ...errors import UnknownOptionError
from ...inputs import stays_on_disk
from ...likelihoods.facts import draws_expectations, has_steps
from ...likelihoods.parameters import single_noise_variance
from ...models import BasisGP
from ...optimizers import ConjugateGradients
from ...optimizers.data_mean.evidence import hyperparameters_of
from ...optimizers.data_mean.solve_mean import seconds_of_solves
from ...optimizers.natural_steps import as_basis_model
from ..batches import ArrayBatches, Batches, Data
from ..evaluation import refuse_other_run
from ..options import NAMES, Options
from ..schedules import MeanSolver
from ..stages.climbs import CollapsedClimb
from ..stages.mean_on_data import EVALUATIONS, MeanSolves, Rounds, SolveMean
from ..stages.stage import Stage
from ..turns import Part, Plan
from .minibatches import BY_NAME as LBFGS
from .minibatches import (
    check_mean_on_data,
    check_own_bound,
    check_precision,
    check_xla,
    plan_on_all_rows,
    plan_on_minibatches,
)
from .route import Route, check_on_replicas

# ---
# The stages of `gamma="data"`, and when each ends.


# 1. Minibatches for 70 % of the run, by a model without mean points that shares all Parameters. For
#    Gaussian noise and not too many rows, a collapsed climb follows at 25 %.
# 2. Rounds: mean and hyperparameters in turns.
# 3. A last solve for the mean.
#
# Where expectations are sampled, or too few rounds fit, minibatches go on until the solve. For a
# limit of seconds a solve is timed on some rows first.


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
        self.sampled = sampled or draws_expectations(model.likelihood)
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


# ---
# The stages of `gamma="data"`.


BY_NAME = "conjugate_gradients"
"""The `mean_solver` that stands for a `ConjugateGradients()`."""


def plan_on_data(model: BasisGP, mean: DataMean, data: Data, options: Options) -> Plan:
    """Return the plan; the data become the mean points, which `undo_of` reverts."""
    refuse_streams(data)
    if isinstance(data, (tuple, list)):
        data = [np.asarray(array) if stays_on_disk(array) else array for array in data]
    view = BasisGP(
        model.kernel,
        model.likelihood,
        cast(MeanOnDataBasis, model.basis).without_mean_points(),
        mean_function=model.mean_function,
        expectations=model.expectations,
        bound=model.bound,
    )
    coupled = plan_on_minibatches(view, data, replace(options, mean_solver=MeanSolver()))
    batches = cast(ArrayBatches, coupled.batches)
    # new coefficients are sent to all workers, and need the same rows
    refuse_other_run(options.group, lambda: batches.settings)
    mean.set_data(batches.X.numpy())
    view.num_data = batches.num_data
    solver = options.mean_solver
    solver = ConjugateGradients() if isinstance(solver, MeanSolver) else solver
    whole = batches.X, batches.Y
    solves = MeanSolves(model, whole, solver, options.group)
    course = Course(model, view, coupled, solves, options)

    def probe(X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        bound = solves.bound(X, Y)
        return coupled.soundness(X, Y, seed) if bound is None else bound

    return replace(
        coupled,
        parts=course.parts(),
        others=[course.rounds, *([] if course.climb is None else [course.climb])],
        whole=whole,
        bound=solves.bound,
        probe=probe,
        closing=solves.closing,
        timed=course.timed if options.seconds is not None else None,
    )


def undo_of(mean: DataMean) -> Callable[[], None]:
    """Return a callback that gives a mean its present points [N, D] and coefficients [N, L]."""
    points, size, coefficients = mean.points, mean.size, mean.coefficients

    def undo() -> None:
        mean.points, mean.size, mean.coefficients = points, size, coefficients

    return undo


# ---


_OF_MEAN = frozenset({"mean_solver", "Schedule.refresh_every"})
"""The options that act on mean points alone."""
_OF_GAUSSIANS = frozenset({"natural_gradient", "hold", "negative_precision"})
"""The options that act only on parts of q that have natural parameters."""
_NO_NATURAL = (
    "The covariance of this model has no natural parameters (a DVGP with"
    ' covariance="coupled" has them).'
)


class InducingRoute(Route):
    """`BasisGP` with its kin (`ODVGP`, `SparseCVIGP`, ...) and plain `gpflow.models.SVGP`."""

    name = "inducing"
    models = ("BasisGP", "SVGP")
    takes = NAMES
    reasons = {
        **dict.fromkeys(_OF_MEAN, "This model has no mean points of its own."),
        **dict.fromkeys(_OF_GAUSSIANS, _NO_NATURAL),
    }
    defaults = {"natural_gradient": "auto", "ramp_steps": 10, "hold": "auto"}
    holds = ("auto", "sites", "whitened")
    compiles = (True, False, "xla")

    def taken_by(self, model: Any) -> frozenset[str]:
        if _data_mean_of(model) is not None:
            return self.takes - {"Schedule.refresh_every"}
        stored = isinstance(model, BasisGP) and model.basis.kernel_mean is not None
        lacks = frozenset() if stored else _OF_MEAN
        return self.takes - (lacks if _has_gaussians(model) else lacks | _OF_GAUSSIANS)

    def only_of(self, model: Any) -> Mapping[str, object]:
        return {} if _has_gaussians(model) else {"natural_gradient": None}

    def defaults_of(self, model: Any, asked: Mapping[str, object]) -> Mapping[str, object]:
        """Choose Adam for q(u) too if the likelihood is a robust maximum and no option asks
        otherwise.
        """
        solver = asked.get("mean_solver", "adam")
        natural = {"hold", "negative_precision"} & set(asked) or (
            getattr(solver, "method", solver) != "adam"
        )
        robust = has_steps(model.likelihood)
        if robust and not natural and _data_mean_of(model) is None:
            return {**self.defaults, "natural_gradient": None}
        return self.defaults

    def check(self, model: Any, asked: Mapping[str, Any]) -> None:
        super().check(model, asked)
        check_own_bound(model)
        if (strategy := asked.get("strategy")) is not None:
            check_on_replicas(model, strategy, asked)
        if asked.get("compile") == "xla":
            check_xla()
        if asked.get("precision") == "mixed":
            check_precision(self.view(model))
        if _data_mean_of(model) is not None:
            check_mean_on_data(model, asked.get("mean_solver"), BY_NAME)

    def options(self, model: Any, asked: Mapping[str, Any]) -> Options:
        named: dict[str, Any] = dict(asked)
        if _is_called(BY_NAME, asked.get("mean_solver")):
            named["mean_solver"] = ConjugateGradients()
        if _is_called(LBFGS, asked.get("optimizer")):
            named |= {"optimizer": None, "on_all_rows": True}  # Adam, on minibatches
        return super().options(model, named)

    def view(self, model: BasisGP | SVGP) -> BasisGP:
        return as_basis_model(model)

    def undo(self, model: Any) -> Callable[[], None]:
        mean = _data_mean_of(model)
        return super().undo(model) if mean is None else undo_of(mean)

    def accept(self, model: BasisGP | SVGP, view: BasisGP, batches: Batches) -> None:
        view.num_data = model.num_data = batches.num_data

    def plan(self, model: BasisGP, data: Data, options: Options) -> Plan:
        mean = model.basis.data_mean
        if mean is not None:
            if options.on_all_rows:
                raise UnknownOptionError(
                    f'optimizer={LBFGS!r}: training with gamma="data" climbs all rows anyway where'
                    " that pays; leave it out."
                )
            return plan_on_data(model, mean, data, options)
        if options.on_all_rows:
            return plan_on_all_rows(model, data, options)
        return plan_on_minibatches(model, data, options)


def _data_mean_of(model: BasisGP | SVGP) -> Any:
    return model.basis.data_mean if isinstance(model, BasisGP) else None


def _has_gaussians(model: BasisGP | SVGP) -> bool:
    return not isinstance(model, BasisGP) or bool(model.basis.gaussian_parameters())


def _is_called(name: str, option: object) -> bool:
    return isinstance(option, str) and option == name
