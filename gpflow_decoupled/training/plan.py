"""What a run does beside its steps."""

from __future__ import annotations

__all__ = ["Plan"]

from dataclasses import dataclass

from ..replicas import Group
from .checkpoints import Checkpoints
from .evaluation import Evaluation
from .progress import Callbacks
from .schedules import Limits, Rates
from .steps import StepSizes


@dataclass(frozen=True)
class Plan:
    """The limits and step sizes of a run, and what happens between its steps."""

    limits: Limits
    rates: Rates
    refresh_every: int
    evaluation: Evaluation | None
    checkpoints: Checkpoints | None
    callbacks: Callbacks
    seed: int
    progress: bool
    group: Group

    @property
    def every(self) -> list[int]:
        """After how many steps something else is due, for each such thing."""
        others = [part.every for part in (self.evaluation, self.checkpoints) if part is not None]
        return [self.refresh_every, self.callbacks.every, *others]

    def sizes(self, step: int, seconds: float, end: float) -> StepSizes:
        """The step sizes of step 0, 1, ..., after so many seconds; from the share `end` of the run
        on they are low.
        """
        return self.rates.at(step, self.limits.share(step, seconds), end)
