"""The contract of a stage."""

from __future__ import annotations

__all__ = ["Budget", "Climb", "Clock", "ROUNDS_DONE", "Report", "Stage", "StepOutput", "all_finite"]

import abc
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.models import GPModel

from ...diagnostics import multiply_lengthscales, other_start
from ...errors import NumericalError
from ...lbfgs import CONVERGED
from ...optimizers.ascent import INTERRUPTED
from ...optimizers.data_mean.system import TIME_IS_UP
from ..batches import Batch, Trackable
from ..schedules import Limits, StepSizes
from ..snapshots import go_back, snapshot

# The loop asks the current stage for one turn at a time: a step, several small ones, or a long
# climb. If a turn fails, it restores all `variables`.


ROUNDS_DONE = "as many rounds as a run takes are done"
"""Why a stage ends whose last round still gained."""


class StepOutput(NamedTuple):
    """Numbers that a compiled step returns: scalars, or arrays [K] of K steps."""

    elbo: tf.Tensor
    """The bound in nats of the whole data set, as the step computed it."""
    ok: tf.Tensor
    """False if anything was not finite or not positive definite: the turn is undone."""
    shortened: tf.Tensor
    """How often the update of q was shortened."""
    clipped: tf.Tensor
    """How many observations had a negative precision clipped."""

    @classmethod
    def sound(
        cls,
        elbo: tf.Tensor | float,
        ok: tf.Tensor | bool = True,
        shortened: tf.Tensor | int = 0,
        clipped: tf.Tensor | int = 0,
    ) -> StepOutput:
        """Return the output of a step without faults, but for those given."""
        # TensorFlow would make a Python number single precision
        elbo = elbo if tf.is_tensor(elbo) else tf.constant(elbo, tf.float64)
        return cls(elbo, *(tf.convert_to_tensor(part) for part in (ok, shortened, clipped)))


class Clock(NamedTuple):
    """Where a run is, its limits, and a line to show."""

    share: float
    """How much of the run was done when the turn began, in [0, 1]."""
    limits: Limits
    show: Callable[[str], object]
    """Shows a line on where a long turn is, beside the progress of the run."""
    shift: float = 0.0
    """Nats by which the bound of the stage exceeds the bound in the units of the data."""

    def deadline(self, until: float = 1.0, least: float = 0.0) -> float:
        """The `time.perf_counter` at a share of the run, `least` seconds from now or later; may be
        infinite.
        """
        if self.limits.seconds is None:
            return float("inf")
        return time.perf_counter() + max((until - self.share) * self.limits.seconds, least)

    @property
    def is_last_step(self) -> bool:
        """True if the limit of steps ends the run after one more step."""
        steps = self.limits.steps
        return steps is not None and self.share + 1.0 / steps >= 1.0 - 1e-9


@dataclass(frozen=True)
class Budget:
    """The steps that a stage may take in one turn, with batches and step sizes."""

    clock: Clock
    seed: int
    """Of the run."""
    first: int
    """The number 0, 1, ... of the first step."""
    sizes: Sequence[StepSizes]
    """Of each of the K steps; K is 1 unless `Stage.most` is larger."""
    batch: Batch
    """X [B, D], Y [B, P]; with `Stage.most` above 1 the batches of K steps, X [K, B, D], Y [K, B,
    P].
    """
    until: float = 1.0
    """The share of the run at which the stage ends."""

    @property
    def step_seed(self) -> tf.Tensor:
        """[2], the seed of the run and the number of the first step."""
        return tf.constant([self.seed, self.first], tf.int32)

    def only(self, count: int) -> Budget:
        """Return the budget of the first `count` of several steps."""
        X, Y = self.batch
        return replace(self, sizes=self.sizes[:count], batch=(X[:count], Y[:count]))


class Report(NamedTuple):
    """The outcome of a turn."""

    output: StepOutput
    reason: str = ""
    """Why the stage is over; empty if it continues. The reason of the last stage ends the run, and
    an interrupt ends it in any stage.
    """
    converged: bool = False
    """True if `reason` means that a tolerance was reached."""
    gap: float | None = None
    """Nats: how far the bound is at most below its maximum over the mean, where that is known."""
    is_long: bool = False
    """True if callbacks should hear of the turn separately, since it took long or all data."""
    scores: Mapping[str, float] = {}
    """Further entries of the history, by name, the same names in each turn of a stage."""
    before: tuple[float, ...] = ()
    """Nats: the bound before the first step of a run whose steps report the bound after them."""
    is_exact: bool = False
    """True if the last bound in `output` counts all data and belongs to the final Parameters."""
    rise: float = 0.0
    """Nats that ten iterations of L-BFGS gain at their last pace; a longer run would go on."""

    @classmethod
    def of_climb(
        cls,
        bound: tf.Tensor | float,
        reason: str,
        deadline: float,
        before: tuple[float, ...],
        rise: float = 0.0,
    ) -> Report:
        """The report of a climb on all data, in one turn.

        :param bound: in nats, at the final Parameters.
        :param reason: why the climb ended; convergence does not count after the deadline.
        :param before: see the field; so is `rise`.
        """
        if reason == CONVERGED and time.perf_counter() >= deadline:
            reason = TIME_IS_UP
        return cls(
            StepOutput.sound(bound),
            reason,
            reason == CONVERGED,
            is_long=True,
            before=before,
            is_exact=True,
            rise=rise,
        )


class Stage(abc.ABC):
    """One stage of a run of `fit`.

    Override `variables` and `run`, and list it in a route's `plan`. `prepare` is called once; per
    turn `refresh` if due, and `run`.
    """

    most: int = 1
    """Steps in one turn, at most."""

    @property
    @abc.abstractmethod
    def variables(self) -> Sequence[tf.Variable]:
        """Everything that a turn writes, the state of optimizers included."""

    @property
    def done(self) -> bool:
        """True once the run has been through this stage; the next one follows."""
        return False

    def reopen(self) -> None:
        """Undo `done`: an earlier stage continues, as in a longer run from a checkpoint."""
        return None

    @property
    def checkpointable(self) -> dict[str, Trackable]:
        """Objects that a checkpoint saves beside the model, by name."""
        return {}

    @property
    def settings(self) -> dict[str, object]:
        """Values, by name, that a resumed run must share to keep its trace."""
        return {}

    def prepare(self, X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> None:
        """Compile the stage for batches like X [B, D], Y [B, P]; no variable changes."""
        return None

    def refresh(self) -> bool:
        """Update values held fixed for many steps; return True if there are any.

        :raises NumericalError: on failure; the loop then undoes it and stops.
        """
        return False

    @abc.abstractmethod
    def run(self, budget: Budget) -> Report:
        """Take one turn.

        :param budget: the steps allowed, with their batches and step sizes.
        :raises NumericalError: if it fails and the cause is known; else `StepOutput.ok` is False.
        """


class Climb(Stage):
    """A stage of L-BFGS, whose first turn may end at no signal where lengthscales are too long.

    Where some rows show one at shorter lengthscales, the first turn is taken from these too, in
    half of the time each, and the better end stands. Override `climb` in place of `run`.
    """

    model: GPModel

    @abc.abstractmethod
    def climb(self, budget: Budget) -> Report:
        """Take one turn from the present Parameters; arguments and errors as `run`."""

    def reached(self, report: Report) -> float:
        """How good the end of a first turn is; NaN for never."""
        return float(report.output.elbo)

    def run(self, budget: Budget) -> Report:
        factor = 1.0 if budget.first > 0 else other_start(self.model, budget.seed)
        if factor == 1.0:
            return self.climb(budget)
        clock, given = budget.clock, snapshot(self.variables)
        budget = replace(budget, until=0.5 * (clock.share + budget.until))
        first = self.climb(budget)
        if first.reason == INTERRUPTED:
            return first
        reached = snapshot(self.variables)
        go_back(given)
        multiply_lengthscales(self.model.kernel, factor)
        clock.show(f"another start: lengthscales times {factor:.3g}")
        try:
            second = self.climb(budget)
        except NumericalError:
            go_back(reached)
            return first
        except BaseException:
            go_back(reached)
            raise
        if np.isnan(self.reached(first)) or self.reached(second) > self.reached(first):
            return second._replace(before=first.before)
        go_back(reached)
        return first._replace(reason=INTERRUPTED) if second.reason == INTERRUPTED else first


def all_finite(tensors: Iterable[tf.Tensor | None]) -> tf.Tensor:
    """True if all entries of all tensors [...], if given, are finite, a scalar."""
    checks = [tf.reduce_all(tf.math.is_finite(tensor)) for tensor in tensors if tensor is not None]
    return tf.reduce_all(tf.stack(checks))
