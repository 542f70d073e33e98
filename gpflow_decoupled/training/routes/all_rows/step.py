"""Steps on minibatches first, then L-BFGS on all rows at the best q(u), for models on inducing
points with Gaussian noise.

1. In the first quarter of the run, steps on minibatches find the neighbourhood of a good kernel.
2. Then L-BFGS climbs the bound at the best q(u), see `climb.py`, until the run is over or the bound
   no longer rises. All of it counts as one step.
"""

from __future__ import annotations

__all__ = ["AllRowsStep"]

import time
import warnings

import tensorflow as tf

from ....errors import NumericalError
from ....linalg.cholesky import unsound
from ....optimizers.ascent import CONVERGED
from ....optimizers.data_mean.mean_solution import TIME_IS_UP
from ...schedules import Limits
from ...steps import Step, StepOutput, StepSizes, Trackable
from .climb import CollapsedClimb

_SHARE = 0.25
"""Of the run before the climb."""
_LEAST_EVALUATIONS = 30
"""Of a climb in a run whose limit is a number of steps: with fewer, L-BFGS gains less than the
steps on minibatches that it stands for."""


class AllRowsStep(Step):
    """A step on a minibatch, or the climb on all rows; see the top of this file.

    :param coupled: its training step on minibatches, whose variables the climb moves too.
    :param climb: on all rows.
    :param batch_size: rows of a minibatch.
    :param limits: of the run. A limit of steps stands for the rows that these would have seen.
    """

    end = _SHARE

    def __init__(
        self, coupled: Step, climb: CollapsedClimb, batch_size: int, limits: Limits
    ) -> None:
        self.coupled, self.climb, self.limits = coupled, climb, limits
        self.evaluations = 10**6  # as many as there is time for
        if limits.steps is not None:
            passes = (1.0 - _SHARE) * limits.steps * batch_size / len(climb.data[0])
            self.evaluations = max(_LEAST_EVALUATIONS, int(passes))
        self._share = 0.0

    @property
    def variables(self) -> list[tf.Variable]:
        """Everything that a step writes."""
        return [*self.coupled.variables, self.climb.done]

    @property
    def checkpointable(self) -> dict[str, Trackable]:
        """The optimizers of the steps on minibatches, and whether all rows were climbed."""
        return {**self.coupled.checkpointable, "climbed": self.climb.done}

    @property
    def settings(self) -> dict[str, object]:
        """Those of the steps on minibatches, and that L-BFGS follows."""
        return {**self.coupled.settings, "all_rows": "lbfgs"}

    def trace(self, X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> None:
        """Compile the step for X [B, D], Y [B, P], and the bound of all rows."""
        self.coupled.trace(X, Y, seed)
        self.climb.compile()

    def set_step_sizes(self, sizes: StepSizes) -> None:
        """Take those of the steps on minibatches, and how far the run is."""
        self._share = sizes.share
        self.coupled.set_step_sizes(sizes)

    def refresh(self) -> bool:
        """Bring up to date what the steps on minibatches keep."""
        return self.coupled.refresh()

    def run(self, X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> StepOutput:
        """A step on X [B, D], Y [B, P], or the climb on all rows."""
        if self._share < self.end and not self._is_last_step:
            self.climb.done.assign(False)  # a longer run goes on from one that had ended
            return self.coupled.run(X, Y, seed)
        self.is_long = True
        deadline = float("inf")
        if self.limits.seconds is not None:
            deadline = time.perf_counter() + (1.0 - self._share) * self.limits.seconds
        try:
            found, elbo = self.climb.run(self.evaluations, deadline, self.show)
        except NumericalError as error:
            if (cause := unsound(self.matrices())) is not None:
                raise cause from error
            raise
        late = time.perf_counter() >= deadline
        self.finished = TIME_IS_UP if late and found.reason == CONVERGED else found.reason
        self.converged = self.finished == CONVERGED
        return StepOutput.sound(elbo)

    def finish(self) -> bool:
        """Where the run ended before the climb: the best q(u) for what the steps on minibatches
        have found, with a warning.
        """
        if self.climb.done:
            return False
        self.climb.set_best_q()
        warnings.warn(
            "The run ended before L-BFGS on all rows began. q(u) is the best one for the kernel and"
            " the points that the steps on minibatches have found; for better ones, raise the limit"
            " of `fit`, or its patience.",
            stacklevel=7,
        )
        return True

    def bound(self, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor | None:
        """The bound on all data X [N, D], Y [N, P]: that of q, or where its norm is sampled that of
        the best q, once it is.
        """
        bound = self.coupled.bound(X, Y)
        return self.climb.bound(X, Y) if bound is None and self.climb.done else bound

    @property
    def _is_last_step(self) -> bool:
        """Whether the limit of steps ends the run after this one: so few steps are all left to the
        climb.
        """
        return self.limits.steps is not None and self._share + 1.0 / self.limits.steps >= 1.0 - 1e-9

    def probe(self, X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """The bound of a batch X [B, D], Y [B, P]."""
        return self.coupled.probe(X, Y, seed)

    def matrices(self) -> dict[str, tf.Tensor]:
        """Those of the basis."""
        return self.coupled.matrices()
