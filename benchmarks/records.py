"""What a training run leaves: copies of the variables at set times, evaluated afterwards off the clock."""

from __future__ import annotations

__all__ = ["Record", "Recorder", "Snapshot", "times_up_to"]

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Snapshot:
    """The state of a model at one time of its training."""

    target: float
    """the time asked for, seconds or steps"""
    seconds: float
    """wall-clock seconds of training when the first step at or after `target` ended"""
    cpu_seconds: float
    """processor seconds of the process until then, all cores"""
    step: int
    final: bool = False
    """whether a run that was given `target` seconds ended here"""
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass
class Record:
    """One (task, model); the same for our models and for the peers."""

    task: str
    model: str
    library: str
    compile_seconds: float
    """not part of the training time"""
    ms_per_step: float
    """mean of the longest run"""
    snapshots: list[Snapshot]
    note: str = ""

    @classmethod
    def read(cls, plain: dict[str, Any]) -> Record:
        """From `dataclasses.asdict` of one, as JSON gives it back."""
        return cls(**{**plain, "snapshots": [Snapshot(**one) for one in plain["snapshots"]]})

    def at(self, budget: float) -> Snapshot:
        """The snapshot of `budget`: of a run that was given just that, if there was one."""
        return min(self.snapshots, key=lambda one: (abs(one.target - budget), not one.final))

    @property
    def processor_ms(self) -> float:
        """Of a step, mean of the longest run."""
        last = max(self.snapshots, key=lambda one: one.step)
        return 1e3 * last.cpu_seconds / max(last.step, 1)


class Recorder:
    """Called after every step: keeps the clock and copies the model when a target is passed.

    `read` returns a copy of the state of the model, `write` puts one back. The clock starts with `start`, or
    with the first step. `unit`, of the targets: "seconds" or "steps".
    """

    def __init__(
        self,
        targets: Sequence[float],
        read: Callable[[], Any],
        write: Callable[[Any], None],
        unit: str = "seconds",
    ) -> None:
        self._targets, self._unit = sorted(set(targets)), unit
        self._read, self._write = read, write
        self._states: list[Any] = []
        self._start: tuple[float, float] | None = None
        self._last = (0.0, 0.0)
        self.snapshots: list[Snapshot] = []
        self.step = 0

    def start(self) -> None:
        """Compilation is over."""
        self._start = (time.perf_counter(), time.process_time())

    @property
    def done(self) -> bool:
        """Whether the last target has been passed."""
        return len(self.snapshots) == len(self._targets)

    @property
    def ms_per_step(self) -> float:
        """Until the last step."""
        return 1e3 * self._last[0] / max(self.step, 1)

    def __call__(self, *_: Any) -> None:
        if self._start is None:
            self.start()
        self.step += 1
        self._last = (time.perf_counter() - self._start[0], time.process_time() - self._start[1])
        now = self.step if self._unit == "steps" else self._last[0]
        if not self.done and now >= self._targets[len(self.snapshots)]:
            state = self._read()
            while not self.done and now >= self._targets[len(self.snapshots)]:
                self._append(state)

    def finish(
        self, evaluate: Callable[[], dict[str, float]], seconds: Sequence[float] | None = None, failed: bool = False
    ) -> list[Snapshot]:
        """Evaluate every copy; targets that were not passed get the final state, or no metrics if training `failed`.

        :param seconds: training time after each step, where the trainer kept a clock of its own.
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

    def _append(self, state: Any) -> None:
        self.snapshots.append(Snapshot(self._targets[len(self.snapshots)], *self._last, self.step))
        self._states.append(state)


def times_up_to(budgets: Sequence[float], points: int = 6) -> list[float]:
    """The budgets and a geometric grid below the largest, for the picture."""
    largest = max(budgets)
    return sorted({round(float(t), 3) for t in [*np.geomspace(largest / 12, largest, points), *budgets]})
