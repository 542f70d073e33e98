"""Classes by least squares from neighbours: rounds of L-BFGS on left-out labels."""

from __future__ import annotations

__all__ = ["MOST_CLIMBS", "NeighbourLabels"]

import numpy as np
import tensorflow as tf

from ...models.neighbours import LabelNNGP
from ...optimizers.ascent import INTERRUPTED
from ...optimizers.data_mean.system import TIME_IS_UP
from ...optimizers.neighbours import LabelRounds, choose_prediction_neighbours
from ...replicas import Group
from ..batches import Trackable
from .mean_on_data import with_mean
from .neighbours import DONE
from .stage import ROUNDS_DONE, Budget, Climb, Clock, Report, StepOutput

NUM_ROUNDS = 3
"""After the start."""
MOST_CLIMBS = 2 * NUM_ROUNDS + 1
"""With the start, where rounds still gain."""
_GAIN = 0.005
"""Nats per row that make a further round worth its time."""


class NeighbourLabels(Climb):
    """L-BFGS on the log densities of left-out labels: `optimizers.LabelRounds`.

    A turn is one climb, the first of the evidence of least squares. A later one that does not raise
    the score of the judging rows is undone, and is the last: the climbs then fit their own rows.
    """

    def __init__(
        self, model: LabelNNGP, seed: int, compile: bool = True, group: Group | None = None
    ) -> None:
        self.model = model
        self.rounds = LabelRounds(model, seed=seed, compile=compile, group=group)
        self.value = tf.Variable(np.nan, trainable=False, dtype=tf.float64)
        """The leave-one-out log density of all rows in nats, estimated by the judging rows."""

    @property
    def variables(self) -> list[tf.Variable]:
        return [*self.model.trainable_variables, self.rounds.scores, self.value]

    @property
    def checkpointable(self) -> dict[str, Trackable]:
        return {"scores": self.rounds.scores, "value": self.value}

    @property
    def settings(self) -> dict[str, object]:
        return {"rows": self.rounds.rows, "num_neighbours": self.model.num_neighbours}

    def climb(self, budget: Budget) -> Report:
        """Climb once, and judge; an interrupt keeps the best values that were found."""
        clock, number = budget.clock, budget.first
        deadline = clock.deadline(budget.until)
        if number == 0:
            outcome = self.rounds.start(deadline, clock.show)
        else:
            outcome = self.rounds.run(number - 1, deadline, clock.show)
        N, before = int(self.model.data[0].shape[0]), float(self.value.numpy())
        self._assign_value()
        gains = float(self.value.numpy()) - before > _GAIN * N
        reason, undone = "", number > 0 and not outcome.kept
        if outcome.climbed.reason == INTERRUPTED:
            reason = INTERRUPTED
        elif (number >= NUM_ROUNDS and not gains) or undone:
            reason = DONE
        elif number >= MOST_CLIMBS - 1:
            reason = ROUNDS_DONE
        elif not self.rounds.has_time(deadline):
            reason = TIME_IS_UP
        return Report(
            StepOutput.sound(float(self.value.numpy())),
            reason,
            converged=reason == DONE,
            is_long=True,
            scores={"leave_one_out": float(np.mean(outcome.scores))},
            rise=outcome.rise,
        )

    def closing(self, clock: Clock) -> Report:
        """Choose the neighbours of predictions if they are left to `fit`, solve for a mean of all
        rows if the model has one, and find the factors anew.
        """
        end, rounds, model = clock.deadline(), self.rounds, self.model
        if model.chooses_neighbours:
            choose_prediction_neighbours(model, rounds.judges, end, rounds.group)
        report = with_mean(model, Report(StepOutput.sound(0.0)), end, clock)
        if model.mean != "data" or model.mean_is_solved:
            rounds.calibrate()
            self._assign_value()
        return report

    def _assign_value(self) -> None:
        self.value.assign(int(self.model.data[0].shape[0]) * np.mean(self.rounds.scores.numpy()))
