"""Training steps that leave the Parameters as they were where they fail."""

from __future__ import annotations

__all__ = ["Advance", "Taken"]

from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn

import numpy as np
import tensorflow as tf

from ..errors import NumericalError
from .batches import ArrayBatches, Batch, Batches
from .plan import Plan
from .states import Snapshot, go_back, snapshot
from .steps import Step, StepOutput, StepSizes
from .together import next_batch, repair_drift

Fail = Callable[[Batch, Snapshot, int, NumericalError | None], NoReturn]
"""Raises the error of a failed step, for its batch, the values before it, its number, and a cause
that is known.
"""


class Taken(NamedTuple):
    """What K sound steps report: arrays [K], see `StepOutput`, and whether anything was brought up
    to date before them.
    """

    elbo: np.ndarray
    shortened: np.ndarray
    clipped: np.ndarray
    refreshed: bool


class _Steps(NamedTuple):
    """K steps with all that is needed to take them again."""

    before: Snapshot
    first: int
    """The number of the first one: 0, 1, ..."""
    batch: Batch
    """X [B, D] and Y [B, P], or of each step: [K, B, D] and [K, B, P]."""
    sizes: Sequence[StepSizes]


class Advance:
    """Takes the steps of a run, several in one call where the step of the model has a way to.

    :param step: one training step.
    :param batches: where the data of each step come from.
    :param plan: step sizes, and how often something happens between steps.
    :param fail: called for a step that failed, with the Parameters as they were before it.
    """

    def __init__(self, step: Step, batches: Batches, plan: Plan, fail: Fail) -> None:
        self.step, self.batches, self.plan, self._fail = step, batches, plan, fail
        self._several = step.several if isinstance(batches, ArrayBatches) else None
        self._first: Batch | None = None
        self._last: _Steps | None = None
        self._singly_until = 0
        self._began: tuple[int, float] | None = None

    @property
    def last_batch(self) -> Batch | None:
        """The batch of the last sound step: X [B, D], Y [B, P]; None before the first."""
        return None if self._last is None else self._batch_of(self._last, -1)

    def trace(self, done: int) -> None:
        """Compile what is called for the steps after the first `done` ones."""
        batch = self._batches(done, 1)
        if self._several is not None:
            return self._several.trace(*batch)
        self._first = batch  # a stream cannot go back
        return self.step.trace(*batch, self.seed(done))

    def __call__(self, done: int, seconds: float) -> Taken:
        """One step or more; what is not whole and sound leaves the Parameters as they were before.

        :param done: how many steps of the run are done.
        :param seconds: how long they took.
        """
        count = self._count(done, seconds)
        sizes = [
            self.plan.sizes(step, seconds, self.step.end) for step in range(done, done + count)
        ]
        batch, self._first = self._first or self._batches(done, count), None
        steps = _Steps(self._snapshot(), done, batch, sizes)
        try:
            with self.plan.group.naming_lost_workers():
                output, refreshed = self._take(steps, count)
                ok = bool(np.all(output.ok))
        except NumericalError as error:
            self._fail(self._batch_of(steps, 0), steps.before, done, error)
        except BaseException:  # an interrupt, or no memory
            go_back(steps.before)
            raise
        if ok:
            self._last = steps
            elbo, shortened, clipped = map(
                np.atleast_1d, (output.elbo, output.shortened, output.clipped)
            )
            return Taken(elbo, shortened, clipped, refreshed)
        if count == 1:
            self._fail(self._batch_of(steps, 0), steps.before, done, None)
        go_back(steps.before)  # which of them fails, and where, is found one by one
        self._singly_until = done + count
        return self(done, seconds)

    def undo(self) -> int | None:
        """Go back to before the last sound step, where the bound is known to be finite.

        :return: how many steps are done there; None, and nothing changes, if no step was sound.
        """
        if self._last is None:
            return None
        go_back(self._last.before)
        if others := len(self._last.sizes) - 1:
            self._take(self._last, others)
        return self._last.first + others

    def seed(self, step: int) -> tf.Tensor:
        """[2], see `Step.run`."""
        return tf.constant([self.plan.seed, step], tf.int32)

    def _snapshot(self) -> Snapshot:
        return snapshot(self.step.variables)

    def _count(self, done: int, seconds: float) -> int:
        """How many steps the next call takes: up to what is due next, and not longer than the run
        may.
        """
        limits, began = self.plan.limits, self._began
        self._began = done, seconds
        if self._several is None or done < self._singly_until:
            return 1
        counts = [self._several.most, *(every - done % every for every in self.plan.every)]
        if limits.steps is not None:
            counts.append(limits.steps - done)
        if limits.seconds is not None:
            pace = (
                np.inf
                if began is None or began[0] == done
                else (seconds - began[1]) / (done - began[0])
            )
            counts.append(int((limits.seconds - seconds) / max(pace, 1e-9)))
        return max(1, min(counts))

    def _batches(self, done: int, count: int) -> Batch:
        if self._several is None:
            return next_batch(self.plan.group, self.batches, done)
        assert isinstance(self.batches, ArrayBatches)
        return self.batches.several(done, count)

    def _batch_of(self, steps: _Steps, number: int) -> Batch:
        X, Y = steps.batch
        return steps.batch if self._several is None else (X[number], Y[number])

    def _take(self, steps: _Steps, count: int) -> tuple[StepOutput, bool]:
        """The first `count` of the steps, after what is due before them; and whether anything
        was.
        """
        first, refreshed = steps.first, False
        if self._several is None:
            self.step.set_step_sizes(steps.sizes[0])
        if first % self.plan.refresh_every == 0:
            refreshed = self.step.refresh()
            repair_drift(self.plan.group, self.step.variables)
        if self._several is None:
            return self.step.run(*steps.batch, self.seed(first)), refreshed
        seeds = [(self.plan.seed, step) for step in range(first, first + count)]
        X, Y = (part[:count] if count < len(steps.sizes) else part for part in steps.batch)
        return self._several.run(X, Y, seeds, steps.sizes[:count]), refreshed
