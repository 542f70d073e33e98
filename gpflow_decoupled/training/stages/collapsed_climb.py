"""Models on inducing points by L-BFGS on all rows."""

from __future__ import annotations

__all__ = ["MOST_ENTRIES", "CollapsedClimb", "all_points"]

import time
from collections.abc import Callable, Sequence

import tensorflow as tf

from ...compilation import Compiled
from ...errors import NumericalError
from ...lbfgs import LBFGSRun
from ...linalg.cholesky import unsound
from ...models import BasisGP
from ...optimizers import optimal_parameters
from ...optimizers.ascent import CONVERGED
from ...optimizers.data_mean.mean_solution import TIME_IS_UP
from ...optimizers.gaussian_optimum import bound_at_optimum, regression
from ...optimizers.log_climb import climb_logarithms
from ...optimizers.log_objective import LogObjective
from ...user_warnings import warn_user
from ..batches import Batch, Trackable
from .stage import Budget, Clock, Report, Stage, StepOutput

MOST_ENTRIES = 3e7
"""N M of the largest matrices [M, N], of which an evaluation and its gradient keep about seven at
once: 1.7 GB.
"""
_TIMED_ROWS = 4096
"""Rows whose evaluation is timed; for fewer, work that does not grow with the rows counts too
much.
"""
_SETTLED, _WINDOW = 1e-5, 10
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
            tolerance=_SETTLED * len(self.data[0]),
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
