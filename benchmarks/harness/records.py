"""Copies of a model at set times of its training, evaluated afterwards, so that evaluation does not
count as training.

This module needs NumPy and nothing else, because a peer in another Python uses it too.
"""

from __future__ import annotations

__all__ = ["Record", "Recorder", "Snapshot", "times_up_to"]

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

State = TypeVar("State")


@dataclass
class Snapshot:
    """A model at one time of its training."""

    target: float
    """the time asked for, in seconds or steps"""
    seconds: float
    """wall-clock seconds of training at the end of the first step at or after `target`"""
    cpu_seconds: float
    """processor seconds of the process until then, summed over all cores"""
    step: int
    final: bool = False
    """whether a run that was given `target` seconds ended here"""
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass
class Record:
    """The training of one model on one task; the same for our models and for the peers."""

    task: str
    model: str
    library: str
    compile_seconds: float
    """not part of the training time"""
    ms_per_step: float
    """mean over the longest run"""
    snapshots: list[Snapshot]
    note: str = ""

    def __post_init__(self) -> None:
        """Take snapshots as JSON gives them back, too."""
        self.snapshots = [
            one if isinstance(one, Snapshot) else Snapshot(**one) for one in self.snapshots
        ]

    def at(self, budget: float) -> Snapshot:
        """The snapshot of `budget`; the end of a run that was given just that, if there was one."""
        return min(self.snapshots, key=lambda one: (abs(one.target - budget), not one.final))

    @property
    def processor_ms(self) -> float:
        """Processor milliseconds per step, mean over the longest run."""
        last = max(self.snapshots, key=lambda one: one.step)
        return 1e3 * last.cpu_seconds / max(last.step, 1)


class Recorder(Generic[State]):
    """Counts the time of training, and copies the model whenever a target is passed. Call it after
    every step.

    The clock starts with `start`, or with the first step.

    :param targets: times at which the model is copied.
    :param read: returns a copy of the model's state.
    :param write: puts such a copy back into the model.
    :param unit: unit of the targets, "seconds" or "steps".
    """

    def __init__(
        self,
        targets: Sequence[float],
        read: Callable[[], State],
        write: Callable[[State], object],
        unit: str = "seconds",
    ) -> None:
        self._targets, self._unit = sorted(set(targets)), unit
        self._read, self._write = read, write
        self._states: list[State | None] = []
        self._start: tuple[float, float] | None = None
        self._last = (0.0, 0.0)
        self.snapshots: list[Snapshot] = []
        self.step = 0

    def start(self) -> None:
        """Start the clock, once compilation is over."""
        self._start = (time.perf_counter(), time.process_time())

    @property
    def done(self) -> bool:
        """Whether the last target has been passed."""
        return len(self.snapshots) == len(self._targets)

    @property
    def elapsed(self) -> float:
        """How far the run is, in the unit of the targets."""
        return self.step if self._unit == "steps" else self._last[0]

    @property
    def ms_per_step(self) -> float:
        """Mean milliseconds per step until now."""
        return 1e3 * self._last[0] / max(self.step, 1)

    def __call__(self, *_: object) -> None:
        if self._start is None:
            self.start()
        self.step += 1
        self._last = (time.perf_counter() - self._start[0], time.process_time() - self._start[1])
        now = self.elapsed
        if not self.done and now >= self._targets[len(self.snapshots)]:
            state = self._read()
            while not self.done and now >= self._targets[len(self.snapshots)]:
                self._append(state)

    def finish(
        self,
        evaluate: Callable[[], dict[str, float]],
        seconds: Sequence[float] | None = None,
        failed: bool = False,
    ) -> list[Snapshot]:
        """Evaluate every copy, and return the snapshots.

        :param evaluate: the metrics of the model as it is.
        :param seconds: training time after each step, where the trainer has a clock of its own.
        :param failed: whether training failed. Targets that were not passed then have no metrics;
            otherwise they have those of the final state.
        """
        final = None if failed else self._read()
        while not self.done:
            self._append(final)
        for snapshot, state in zip(self.snapshots, self._states):
            if state is None:
                continue
            self._write(state)
            snapshot.metrics = evaluate()
            if seconds is not None:
                snapshot.seconds = float(seconds[snapshot.step - 1])
        return self.snapshots

    def _append(self, state: State | None) -> None:
        self.snapshots.append(Snapshot(self._targets[len(self.snapshots)], *self._last, self.step))
        self._states.append(state)


def times_up_to(budgets: Sequence[float], points: int = 6) -> list[float]:
    """The budgets, and `points` times that grow geometrically up to the largest, for the
    picture.
    """
    largest = max(budgets)
    return sorted(
        {round(float(t), 3) for t in [*np.geomspace(largest / 12, largest, points), *budgets]}
    )
