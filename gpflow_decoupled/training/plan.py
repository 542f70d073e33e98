"""The plan of a run."""

from __future__ import annotations

__all__ = ["UNSOUND", "Part", "Plan"]

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import tensorflow as tf

from .batches import Batch, Batches, Trackable
from .schedules import Rates
from .stages.stage import Clock, Report, Stage

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
