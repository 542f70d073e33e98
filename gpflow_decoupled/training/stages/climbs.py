"""Models on inducing points by L-BFGS on all rows."""

from __future__ import annotations

__all__ = ["AffineClimb", "CollapsedClimb", "MOST_ENTRIES", "all_points", "has_gaussian_start"]

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import tensorflow as tf

from ...compilation import Compiled
from ...errors import NumericalError
from ...lbfgs import LBFGSRun, lbfgs_ascent, settled
from ...linalg.cholesky import unsound
from ...models import CVIGP, AffineIndependentGP, BasisGP
from ...optimizers import AffineIndependentAscent, AffineResult, optimal_parameters
from ...optimizers.affine_independent import (
    ClimbCoordinates,
    as_vector,
    assign_vector,
    compiled_objective,
)
from ...optimizers.ascent import CONVERGED
from ...optimizers.data_mean.system import TIME_IS_UP
from ...optimizers.gaussian_optimum import bound_at_optimum, regression
from ...optimizers.log_climb import LogObjective, climb_logarithms
from ...user_warnings import warn_user
from ..batches import Batch, Trackable
from ..keras import hyperparameters_of
from .sites import SitesClimb, has_best_sites
from .stage import Budget, Clock, Report, Stage, StepOutput

# ---
# Affine-independent models by L-BFGS.


_SETTLED = 0.05
"""Nats by which 2 may miss what is promised, and which six iterations of 3 gain at its end."""


def has_gaussian_start(model: AffineIndependentGP) -> bool:
    """True if a full GP of sites has the same prior and likelihood: no weights, inducing points or
    sampled expectations.
    """
    if model.weight_priors is not None or model.basis.size != len(model.data[0]):
        return False
    return has_best_sites(_gaussian(model))


class AffineClimb(Stage):
    """L-BFGS on the bound over hyperparameters and q together, in one step.

    1. The best Gaussian q, and hyperparameters by `SitesClimb` on its bound.
    2. A better q at these hyperparameters, by `AffineIndependentAscent`. Often the rotated Gaussian
       with its shapes reaches the predicted gain, and ends the run.
    3. Both together, in coordinates that whiten q.

    :param evaluations: most of 1, and of 3.
    :param compile: False evaluates the expectations of 1 eagerly.
    """

    def __init__(self, model: AffineIndependentGP, evaluations: int, compile: bool = True) -> None:
        self.model, self.evaluations = model, evaluations
        self.gaussian = SitesClimb(_gaussian(model), evaluations, compile)

    @property
    def _q(self) -> list[tf.Variable]:
        basis = self.model.basis
        return [*basis.map.variables, *basis.b.variables, *basis.theta.variables]

    @property
    def variables(self) -> list[tf.Variable]:
        return [*self._q, *self.gaussian.coordinates.variables]

    def prepare(self, X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> None:
        self.gaussian.prepare(X, Y, seed)

    def run(self, budget: Budget) -> Report:
        deadline = budget.clock.deadline(budget.until)
        # half of the time is left for the q that is not Gaussian
        half = replace(budget, until=0.5 * (budget.clock.share + budget.until))
        gaussian = self.gaussian.run(half)
        reason, rise = gaussian.reason, gaussian.rise
        basis = self.model.basis
        base, theta = basis.base, basis.theta
        try:
            found = self._ascended()
        except BaseException:  # the ascent tries a normal base, and may break off at it
            basis.base, basis.theta = base, theta
            raise
        bound = found.elbo
        climbed = np.sum(found.history["stage"]) > 1
        if climbed and hyperparameters_of(self.model) and time.perf_counter() < deadline:
            together = self._together(budget, deadline)
            reason, rise, bound = together.reason, together.rise, float(self.model.elbo())
        return Report.of_climb(bound, reason, deadline, gaussian.before, rise)

    def _ascended(self) -> AffineResult:
        more = hyperparameters_of(self.model)
        ascent = AffineIndependentAscent(_SETTLED) if more else AffineIndependentAscent()
        nu, tau = (site.numpy()[:, 0].astype(float) for site in self.gaussian.model.sites)
        return ascent.run_from(self.model, (nu, tau))

    def _together(self, budget: Budget, deadline: float) -> LBFGSRun:
        model, basis = self.model, self.model.basis
        moved = {variable.ref() for variable in hyperparameters_of(model)}
        variables = [
            *basis.map.trainable_variables,
            *basis.b.trainable_variables,
            *basis.theta.trainable_variables,
            *(v for v in model.trainable_variables if v.ref() in moved),
        ]

        def objective() -> tf.Tensor:
            return model.bound(model.site_groups()) + model.log_prior_density()

        A = basis.matrix().numpy()
        frame = ClimbCoordinates(basis, np.linalg.cholesky(A @ A.T), variables)
        has_settled = settled(_SETTLED)

        def show(value: float, _: int) -> None:
            budget.clock.show(f"L-BFGS on q and the rest, {value - budget.clock.shift:.6g} nats")

        run = lbfgs_ascent(
            frame.around(compiled_objective(objective, variables)),
            frame.inward(as_vector(variables)),
            lambda values: has_settled(values) or time.perf_counter() >= deadline,
            self.evaluations,
            record=show,
            keep=True,
            advice="standardise X and Y.",
            matrix="A",
        )
        assign_vector(variables, frame.outward(run.x))
        return run


def _gaussian(model: AffineIndependentGP) -> CVIGP:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of the data, which the model has said
        return CVIGP(model.data, model.kernel, model.likelihood, mean_function=model.mean_function)


# ---


MOST_ENTRIES = 3e7
"""N M of the largest matrices [M, N], of which an evaluation and its gradient keep about seven at
once: 1.7 GB.
"""
_TIMED_ROWS = 4096
"""Rows whose evaluation is timed; for fewer, work that does not grow with the rows counts too
much.
"""
_COLLAPSED_CLIMB_SETTLED, _WINDOW = 1e-5, 10
"""The climb ends if this number of iterations gained less than this many nats per observation."""


def all_points(model: BasisGP) -> int:
    """Return the number of points of mean and covariance together."""
    return sum(size for size in model.basis.sizes.values() if isinstance(size, int))


class CollapsedClimb(Stage):
    """L-BFGS on the collapsed bound of a model with Gaussian noise.

    The climb is one turn and one step; N M^2 per evaluation, memory N M.

    :param data: all rows, X [N, D] and Y [N, L].
    :param evaluations: limit of evaluations of bound and gradient.
    """

    def __init__(
        self,
        moved: Sequence[tf.Variable],
        model: BasisGP,
        data: Batch,
        evaluations: int,
        compile: bool = True,
    ) -> None:
        self.moved, self.model, self.data = moved, model, data
        self.evaluations = evaluations
        # a variable, so that a checkpoint knows whether the climb was taken
        self.is_best = tf.Variable(False, trainable=False)
        """True if q(u) was set to its optimum since other steps were taken."""
        self.bound: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] = self._collapsed
        if compile:
            rows = [tf.TensorSpec([None, *array.shape[1:]], array.dtype) for array in data]
            self.bound = Compiled(self.bound, input_signature=rows)

    @staticmethod
    def fits(model: BasisGP, num_data: int) -> bool:
        """True if an evaluation on this number of rows fits into memory."""
        return num_data * all_points(model) <= MOST_ENTRIES

    @property
    def variables(self) -> list[tf.Variable]:
        q = [p.unconstrained_variable for p in self.model.basis.gaussian_parameters()]
        mean = self.model.basis.kernel_mean
        own = [] if mean is None else [mean.coefficients.unconstrained_variable]
        return [*self.moved, *q, *own, self.is_best]

    @property
    def done(self) -> bool:
        return bool(self.is_best)

    def reopen(self) -> None:
        self.is_best.assign(False)

    @property
    def checkpointable(self) -> dict[str, Trackable]:
        return {"climbed": self.is_best}

    def prepare(self, X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> None:
        self._evaluate(*(array[:_TIMED_ROWS] for array in self.data))

    def seconds(self) -> float:
        """Time an evaluation and its gradient on some rows."""
        few = [array[:_TIMED_ROWS] for array in self.data]
        self._evaluate(*few)  # traces
        began = time.perf_counter()
        self._evaluate(*few)
        # N M^2 of the rows outweighs M^3 of the points
        return (time.perf_counter() - began) * len(self.data[0]) / len(few[0])

    def run(self, budget: Budget) -> Report:
        clock = budget.clock
        deadline = clock.deadline(budget.until)
        try:
            found = self._climbed(deadline, clock) if self.moved else None
            output = StepOutput.sound(self.set_best_q())
        except NumericalError as error:
            if (cause := unsound(self.model.basis.matrices(self.model.kernel))) is not None:
                raise cause from error
            raise
        reason = CONVERGED if found is None else found.reason
        if reason == CONVERGED and time.perf_counter() >= deadline:
            reason = TIME_IS_UP
        rise = 0.0 if found is None else found.rise
        return Report(output, reason, converged=reason == CONVERGED, is_long=True, rise=rise)

    def closing(self, clock: Clock) -> Report | None:
        """If the run ended before the climb, set q(u) to the best one, with a warning."""
        if self.done:
            return None
        output = StepOutput.sound(self.set_best_q())
        warn_user(
            "The run ended before L-BFGS on all rows began. q(u) is the best one for the kernel and"
            " the points that the steps on minibatches have found; for better ones, raise the limit"
            " of `fit`, or its patience."
        )
        return Report(output)

    def set_best_q(self) -> tf.Tensor:
        """Set q(u) to the best one for the present kernel and points; return its bound."""
        best = optimal_parameters(self.model, self.data)
        best.assign(self.model)
        self.is_best.assign(True)
        return best.elbo

    def _climbed(self, deadline: float, clock: Clock) -> LBFGSRun:
        # over logarithms, inducing points lag: on kin40k 24 of 2,800 nats after 60 evaluations,
        # where protein and elevators gain 0.4 and 20
        objective = LogObjective.of_model(
            self.model, self.moved, lambda: self.bound(*self.data), logarithms=False
        )
        return climb_logarithms(
            objective,
            objective.coordinates,
            # the tolerance is for all rows already
            num_data=1,
            evaluations=self.evaluations,
            deadline=deadline,
            show=clock.show,
            name="L-BFGS on all rows",
            tolerance=_COLLAPSED_CLIMB_SETTLED * len(self.data[0]),
            window=_WINDOW,
            matrix="K_beta",
            shift=clock.shift,
        )

    def _collapsed(self, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        return bound_at_optimum(self.model, regression(self.model, (X, Y)))

    def _evaluate(self, X: tf.Tensor, Y: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            value = self.bound(X, Y)
        float(value)
        tape.gradient(value, self.moved)
