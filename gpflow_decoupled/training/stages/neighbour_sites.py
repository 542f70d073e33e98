"""Sites and hyperparameters from neighbours, in turn."""

from __future__ import annotations

__all__ = ["MOST_ROUNDS", "NeighbourSites"]

import time

import numpy as np
import tensorflow as tf

from ...models.neighbours import SiteNNGP
from ...optimizers.ascent import INTERRUPTED
from ...optimizers.data_mean.mean_solution import TIME_IS_UP
from ...optimizers.neighbours import SiteRounds, choose_prediction_neighbours
from ..batches import Trackable
from .mean_of_rows import with_mean
from .neighbours import DONE
from .stage import Budget, Clock, Report, Stage, StepOutput

NUM_ROUNDS = 5
"""After the start. On letter and cover types a sixth gained nothing beyond chance."""
MOST_ROUNDS = 2 * NUM_ROUNDS + 1
"""With the start, where rounds still gain: hyperparameters may begin far off."""
_GAIN = 0.01
"""Nats per row that make a further round worth its time."""


class NeighbourSites(Stage):
    """Passes over the sites and climbs of the hyperparameters: `optimizers.SiteRounds`.

    A turn is one round; the first only passes over the sites. Rounds that lower the leave-one-out
    score beyond chance are undone.

    :param model: whose sites and trainable Parameters move.
    """

    def __init__(self, model: SiteNNGP, seed: int, compile: bool = True) -> None:
        self.model = model
        self.rounds = SiteRounds(model, seed=seed, compile=compile)
        self.value = tf.Variable(np.nan, trainable=False, dtype=tf.float64)
        """The leave-one-out log density of all rows in nats, estimated by the judging rows."""

    @property
    def variables(self) -> list[tf.Variable]:
        return [*self.rounds.variables, self.rounds.scores, self.value]

    @property
    def checkpointable(self) -> dict[str, Trackable]:
        return {"scores": self.rounds.scores, "value": self.value}

    @property
    def settings(self) -> dict[str, object]:
        return {"rows": self.rounds.rows, "num_neighbours": self.model.gaussian.num_neighbours}

    def run(self, budget: Budget) -> Report:
        clock, number = budget.clock, budget.first
        deadline = clock.deadline(budget.until)
        moves = self.rounds.has_hyperparameters
        if number == 0 or not moves:
            outcome = self.rounds.start()
        else:
            outcome = self.rounds.run(number - 1, deadline, clock.show)
        before, per_row = float(self.value), float(np.mean(self.rounds.scores.numpy()))
        self.value.assign(int(self.model.data[0].shape[0]) * per_row)
        gains = float(self.value) - before > _GAIN * int(self.model.data[0].shape[0])
        enough = number >= NUM_ROUNDS and not gains
        reason = DONE if enough or number >= MOST_ROUNDS - 1 or not moves else ""
        if outcome.climbed is not None and outcome.climbed.reason == INTERRUPTED:
            reason = INTERRUPTED
        elif time.perf_counter() >= deadline:
            reason = TIME_IS_UP
        return Report(
            StepOutput.sound(float(self.value)),
            reason,
            converged=reason == DONE,
            is_long=True,
            scores={"leave_one_out": float(np.mean(outcome.scores))},
        )

    def closing(self, clock: Clock) -> Report:
        """Pass over the sites until they have converged; then find what predictions need: a number
        of neighbours that is left to `fit`, and a mean of all rows.
        """
        end = clock.deadline()
        self.rounds.sweeps.run(deadline=end)
        if self.model.chooses_neighbours:
            choose_prediction_neighbours(self.model, self.rounds.judges, end)
        return with_mean(self.model, Report(StepOutput.sound(0.0)), end, clock)
