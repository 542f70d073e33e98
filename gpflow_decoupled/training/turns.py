"""Turns of stages, undone where they fail."""

from __future__ import annotations

__all__ = ["Part", "Plan", "Taken", "Turns", "UNSOUND"]

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple, NoReturn

import numpy as np
import tensorflow as tf
from gpflow.models import GPModel

from ..diagnostics import explain, restored, unusable_observation
from ..errors import NumericalError
from ..models import FactorGraph
from .batches import ArrayBatches, Batch, Batches, Trackable
from .evaluation import repair_drift
from .options import Options
from .schedules import Rates
from .snapshots import Snapshot, go_back, snapshot
from .stages.stage import Budget, Clock, Report, Stage, all_finite

# ---
# The plan of a run.


Bound = Callable[[tf.Tensor, tf.Tensor], tf.Tensor | None]
"""Of X [N, D] and Y [N, P]: the bound in nats; None where only estimates exist."""
UNSOUND = (ArithmeticError, tf.errors.InvalidArgumentError)
"""Errors of a bound that cannot be computed, such as a failed factorisation."""
Probe = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]
"""Of X [B, D], Y [B, P] and a seed [2]: a cheap number that is finite if and only if the bound is.
Uses up no random numbers of the run."""


class Part(NamedTuple):
    """A stage, and the share of the run at which it ends."""

    stage: Stage
    until: float = 1.0


@dataclass(frozen=True)
class Plan:
    """Stages in order, with data X [N, D] and Y [N, P], step sizes, and the test of a turn.

    The current part is the first whose share is not over and whose stage is not `done`. The last
    part should last until 1.
    """

    parts: Sequence[Part]
    batches: Batches
    rates: Rates
    bound: Bound
    """The bound on all data at the present Parameters."""
    matrices: Callable[[], Mapping[str, tf.Tensor]]
    """The matrices that a turn factorises, by name, to find out which one made it fail."""
    others: Sequence[Stage] = ()
    """Stages that other limits would add: a checkpoint must know them in any case."""
    whole: Batch | None = None
    """All data, X [N, D] and Y [N, P], if the bound on them is to be computed at the end."""
    probe: Probe | None = None
    """If it is not given, `bound` takes its place."""
    closing: Callable[[Clock], Report | None] | None = None
    """Work after the last step that counts as no step; it returns None if nothing was left."""
    objective: str = "ELBO"
    """A name of `bound` for people."""
    timed: Callable[[], Sequence[Part]] | None = None
    """Times the work on some rows, and returns the parts that suit a limit of seconds."""
    sampled_rows: int | None = None
    """Rows that estimate the norm of the mean in each step, where it is not computed in full."""

    @property
    def stages(self) -> list[Stage]:
        """All stages, each once."""
        return list(dict.fromkeys([*(part.stage for part in self.parts), *self.others]))

    @property
    def variables(self) -> list[tf.Variable]:
        """Everything that a turn of any stage writes."""
        every = [variable for stage in self.stages for variable in stage.variables]
        return list({variable.ref(): variable for variable in every}.values())

    @property
    def checkpointable(self) -> dict[str, Trackable]:
        """Objects of all stages that a checkpoint saves, by name."""
        return {name: one for stage in self.stages for name, one in stage.checkpointable.items()}

    @property
    def settings(self) -> dict[str, object]:
        """Values, by name, that must be equal for a resumed run to keep its trace."""
        parts = [self.batches.settings, *(stage.settings for stage in self.stages)]
        return {name: value for part in parts for name, value in part.items()} | asdict(self.rates)

    def at(self, share: float) -> Part:
        """Return the part of the run at a share of it."""
        left = (p for p in self.parts if share < p.until - 1e-9 and not p.stage.done)
        return next(left, self.parts[-1])

    @property
    def estimate(self) -> str:
        """A name for the mean of the last values of `bound`, where none is of all data."""
        return f"estimated {self.objective}" if self.objective == Plan.objective else self.objective

    def bound_on_all(self) -> float | None:
        """The bound on `whole` in nats, NaN if it fails; None where there are only estimates."""
        if self.whole is None:
            return None
        try:
            bound = self.bound(*self.whole)
        except UNSOUND:
            return float("nan")
        return None if bound is None else float(bound)

    def soundness(self, X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Return `probe`, or else `bound`; zero where neither exists."""
        if self.probe is not None:
            return self.probe(X, Y, seed)
        bound = self.bound(X, Y)
        return tf.zeros([]) if bound is None else bound


# ---


class Taken(NamedTuple):
    """The report of a sound turn of K steps, and its numbers as arrays [K]."""

    report: Report
    elbo: np.ndarray
    shortened: np.ndarray
    clipped: np.ndarray
    refreshed: bool
    """True if values held fixed for many steps were updated before it."""


class _Turn(NamedTuple):
    stage: Stage
    before: Snapshot
    budget: Budget


class Turns:
    """Takes the turns of a run, and undoes them; a step that fails raises an error with its cause.

    :param model: as callbacks and evaluations see it.
    """

    def __init__(self, model: GPModel | FactorGraph, plan: Plan, options: Options) -> None:
        self.model, self.plan, self.options = model, plan, options
        self.limits = options.limits
        self.variables = plan.variables
        self._first: Batch | None = None
        self._last: _Turn | None = None
        self._stage: Stage | None = None
        self._singly_until = 0
        self._began: tuple[int, float] | None = None

    @property
    def last_batch(self) -> Batch | None:
        """Batch of the last sound step: X [B, D], Y [B, P]; None before the first."""
        return None if self._last is None else self._batch_of(self._last, -1)

    @property
    def is_in_last_stage(self) -> bool:
        """True once no other stage follows."""
        return self._stage is self.plan.parts[-1].stage

    def first_batch(self, done: int) -> Batch:
        """X [B, D] and Y [B, P] of the step after the first `done` ones, kept for it."""
        self._first = self._next(done)
        return self._first  # a stream cannot go back

    def take(self, done: int, clock: Clock, seconds: float) -> Taken:
        """Take one turn of the present stage.

        :param done: the number of steps of the run that are done.
        """
        turn = self._turn(self._part(clock.share), done, clock, seconds)
        try:
            with self.options.group.naming_lost_workers():
                taken = self._go(turn)
        except NumericalError as error:
            self._fail(self._batch_of(turn, 0), turn.before, done, error)
        except BaseException:  # an interrupt, or no memory
            go_back(turn.before)
            raise
        if np.all(taken.report.output.ok):
            self._last = turn
            return taken
        count = len(turn.budget.sizes)
        if count == 1:
            self._fail(self._batch_of(turn, 0), turn.before, done)
        go_back(turn.before)  # which of them fails, and where, is found one by one
        self._singly_until = done + count
        return self.take(done, clock, seconds)

    def undo(self) -> int | None:
        """Return to before the last sound step, with a finite bound.

        :return: the steps done there; None, without a change, if no step was sound.
        """
        if self._last is None:
            return None
        go_back(self._last.before)
        budget = self._last.budget
        if others := len(budget.sizes) - 1:
            self._go(self._last._replace(budget=budget.only(others)))
        return budget.first + others

    def check(self, done: int) -> None:
        """Raise the error of a failed step if the state is not sound."""
        if (batch := self.last_batch) is not None and not self.is_sound(done):
            self._fail(batch, snapshot(self.variables), done)

    def is_sound(self, done: int, bound: float | None = None) -> bool:
        """True if the model's variables and the bound are finite on all replicas.

        :param bound: the bound of the present state, in nats; if not given, of the last batch.
        """
        if (batch := self.last_batch) is None:
            return True
        # the state of an optimizer is no part of the result
        own = {variable.ref() for variable in self.model.variables}
        own -= {variable.ref() for variable in getattr(self.model, "variables_with_gaps", ())}
        moved = [v for v in self.variables if v.ref() in own and v.dtype.is_floating]
        found = bool(all_finite([tf.zeros([]), *moved]))
        try:
            if found:
                value = self.plan.soundness(*batch, self.seed(done)) if bound is None else bound
                found = bool(np.isfinite(float(value)))
        except UNSOUND:
            found = False
        return self.options.group.all(found)

    def seed(self, step: int) -> tf.Tensor:
        """Return [2], the seed of the run and the number of a step."""
        return tf.constant([self.options.seed, step], tf.int32)

    def _part(self, share: float) -> Part:
        """The part of the plan at a share of the run; a change of part reopens the later stages."""
        part = self.plan.at(share)
        if part.stage is not self._stage:
            self._stage = part.stage
            later = [one.stage for one in self.plan.parts]
            for stage in later[later.index(part.stage) :]:
                stage.reopen()
        return part

    def _next(self, step: int) -> Batch:
        batches, group = self.plan.batches, self.options.group
        if group.workers == 1 or isinstance(batches, ArrayBatches):  # arrays are checked before
            return batches(step)
        return group.together(lambda: batches(step))  # unusable data on one end the run on all

    def _turn(self, part: Part, done: int, clock: Clock, seconds: float) -> _Turn:
        count, batches = self._count(part, done, seconds), self.plan.batches
        steps = range(done, done + count)
        shares = [self.limits.share(step, seconds) for step in steps]
        sizes = [self.plan.rates.at(step, share, part.until) for step, share in zip(steps, shares)]
        if part.stage.most > 1:
            assert isinstance(batches, ArrayBatches)
            batch = batches.several(done, count)
        else:
            batch = self._first or self._next(done)
        self._first = None
        budget = Budget(clock, self.options.seed, done, sizes, batch, part.until)
        return _Turn(part.stage, snapshot(self.variables), budget)

    def _count(self, part: Part, done: int, seconds: float) -> int:
        """Number of steps of the next turn, up to the next evaluation or limit of the stage."""
        limits, began = self.limits, self._began
        self._began = done, seconds
        if part.stage.most == 1 or done < self._singly_until:
            return 1
        # evaluations, callbacks and checkpoints come between turns: none may reach beyond the next
        counts = [part.stage.most, *(every - done % every for every in self.options.due)]
        if limits.steps is not None:
            counts.append(math.ceil(part.until * limits.steps - 1e-6) - done)
        if limits.seconds is not None:
            # one step at first: its seconds tell how many fit the rest of the time
            pace = np.inf
            if began is not None and began[0] != done:
                pace = (seconds - began[1]) / (done - began[0])
            counts.append(int((part.until * limits.seconds - seconds) / max(pace, 1e-9)))
        return max(1, min(counts))

    def _batch_of(self, turn: _Turn, number: int) -> Batch:
        X, Y = turn.budget.batch
        return (X, Y) if turn.stage.most == 1 else (X[number], Y[number])

    def _go(self, turn: _Turn) -> Taken:
        refreshed = False
        if turn.budget.first % self.options.refresh_every == 0:
            refreshed = turn.stage.refresh()
            self.variables = self.plan.variables  # the first update may create one
            if self.options.group.replicas > 1:
                repair_drift(self.options.group, self.variables)
        report = turn.stage.run(turn.budget)
        elbo, shortened, clipped = (
            np.atleast_1d(part)
            for part in (report.output.elbo, report.output.shortened, report.output.clipped)
        )
        return Taken(report, elbo, shortened, clipped, refreshed)

    def _fail(
        self, batch: Batch, now: Snapshot, done: int, cause: NumericalError | None = None
    ) -> NoReturn:
        """Raise the error of a step that failed from the values `now`, which are restored."""
        go_back(now)
        cause = unusable_observation(self.model, batch) if cause is None and done == 0 else cause
        likelihood = getattr(self.model, "likelihood", None)
        if cause is None:
            error = explain(self.plan.matrices(), batch, done, likelihood)
        else:
            error = restored(cause, done)
        go_back(now)
        self.undo()
        raise error from cause
