"""A clock that only training steps and solves move: runs with a limit of seconds that do not depend
on the machine.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import pytest

from gpflow_decoupled.optimizers import ConjugateGradients
from gpflow_decoupled.training.routes import inducing as course
from gpflow_decoupled.training.stages.climbs import CollapsedClimb
from gpflow_decoupled.training.turns import Turns


class Clock:
    """Replaces `time.perf_counter`; every step of a run with a mean on all data takes the same
    time.

    :param patch: undoes it.
    :param step: seconds of a training step.
    :param product: seconds of a product with K in the plan, and of what a solve takes beside its
        products.
    :param evaluation: seconds of an evaluation of the collapsed bound in the plan; it is never
    climbed if that is infinite."""

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        step: float,
        product: float = 1e-9,
        evaluation: float = float("inf"),
    ) -> None:
        self.now = 0.0
        go = Turns._go

        def later(turns: Turns, turn: Any) -> Any:
            self.now += step * len(turn.budget.sizes)
            return go(turns, turn)

        patch.setattr(Turns, "_go", later)
        patch.setattr(course, "seconds_of_solves", lambda *model, **options: (product, product))
        patch.setattr(CollapsedClimb, "seconds", lambda climb: evaluation)
        patch.setattr(time, "perf_counter", lambda: self.now)


@dataclass(frozen=True)
class SlowSolver(ConjugateGradients):
    """Every solve takes a second of a clock."""

    clock: Clock | None = None

    def run_on(self, *arguments: Any, **options: Any) -> Any:
        """As that of the base class, and late."""
        assert self.clock is not None
        self.clock.now += 1.0
        return super().run_on(*arguments, **options)
