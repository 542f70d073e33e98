"""Rounds of L-BFGS on the likelihood of neighbours."""

from __future__ import annotations

__all__ = ["MOST_CLIMBS", "NeighbourClimbs", "calibrated"]

import numpy as np
import tensorflow as tf

from ...models.neighbours import GaussianNNGP
from ...models.neighbours.row_checks import warn_at_floor
from ...optimizers.ascent import INTERRUPTED
from ...optimizers.data_mean.mean_solution import TIME_IS_UP
from ...optimizers.neighbours import NeighbourRounds, RoundOutcome
from ...optimizers.neighbours.neighbour_rounds import ROWS
from ...replicas import Group
from ...user_warnings import warn_user
from ..batches import Trackable
from .stage import ROUNDS_DONE, Budget, Clock, Report, Stage, StepOutput

NUM_ROUNDS = 2
"""After the start, and before a fine round, which gained up to 0.08 nats a row on smooth sets."""
MOST_CLIMBS = NUM_ROUNDS + 2
"""With the start and a fine round."""
_GAIN = 1e-3
"""Nats per row that other neighbours must gain for another climb on all rows."""
_SUSPECT = 1.5
"""The spread of leave-one-out errors, or its inverse, from which on a user should know."""
_TOO_WIDE = 0.8
"""Spread below which more neighbours would sharpen the variances."""
_CHOICE = 0.75
"""Seconds of the choice of neighbours in units of the calibration: half of its rows, and fewer
neighbours."""
DONE = "the rounds are done"


class NeighbourClimbs(Stage):
    """L-BFGS on the likelihood of neighbours, (N2), of random rows.

    A turn is one climb: the first on the exact density of a few hundred rows, others on fresh rows.
    Turns that lower the leave-one-out score beyond chance are undone. Up to 6,000 rows a turn
    climbs all of them to convergence, until new neighbours gain nothing.
    """

    def __init__(
        self, model: GaussianNNGP, seed: int, compile: bool = True, group: Group | None = None
    ) -> None:
        self.model = model
        whole = int(model.data[0].shape[0]) <= ROWS
        self.rounds = NeighbourRounds(model, seed=seed, compile=compile, group=group, whole=whole)
        self.spread = tf.Variable(1.0, trainable=False, dtype=tf.float64)
        """Of the leave-one-out errors at the present hyperparameters."""
        self.value = tf.Variable(np.nan, trainable=False, dtype=tf.float64)
        """The estimated log likelihood there, in nats."""

    @property
    def variables(self) -> list[tf.Variable]:
        return [*self.model.trainable_variables, self.rounds.scores, self.spread, self.value]

    @property
    def checkpointable(self) -> dict[str, Trackable]:
        return {"scores": self.rounds.scores, "spread": self.spread, "value": self.value}

    @property
    def settings(self) -> dict[str, object]:
        return {"rows": self.rounds.rows, "num_neighbours": self.model.num_neighbours}

    def run(self, budget: Budget) -> Report:
        clock, number = budget.clock, budget.first
        end = clock.deadline(budget.until)
        outcome = self._climbed(number, end - self._seconds_of_closing, clock)
        if outcome.kept:
            self.spread.assign(outcome.judged.spread)
            self.value.assign(outcome.climbed.value)
        elif number == 0:  # the given values stay, for instance from an earlier run
            self.value.assign(outcome.climbed.start)
        # how long that takes is known better by now
        reason = self._reason(outcome, number, end - self._seconds_of_closing)
        return Report(
            StepOutput.sound(float(self.value.numpy())),
            reason,
            converged=reason == DONE,
            is_long=True,
            scores={"leave_one_out": outcome.judged.score},
            rise=outcome.climbed.rise,
        )

    @property
    def _seconds_of_closing(self) -> float:
        """Of the calibration and of the choice of neighbours before it."""
        share = 1.0 + _CHOICE * self.model.chooses_neighbours
        return share * self.rounds.seconds_of_calibration

    def _climbed(self, number: int, deadline: float, clock: Clock) -> RoundOutcome:
        if number == 0:
            return self.rounds.start(deadline, clock.show, clock.shift)
        # one more where variances are too wide for the neighbours at hand
        fine = number > NUM_ROUNDS and self._wants_fine
        return self.rounds.run(number - 1, deadline, clock.show, fine, clock.shift)

    @property
    def _wants_fine(self) -> bool:
        return float(self.spread.numpy()) < _TOO_WIDE

    def _reason(self, outcome: RoundOutcome, number: int, deadline: float) -> str:
        if outcome.climbed.reason == INTERRUPTED:
            return INTERRUPTED
        if self.rounds.whole and number > 0:
            climbed = outcome.climbed
            few = climbed.value - climbed.start < _GAIN * len(self.rounds.samples.sample(0, 0)[0])
            if climbed.converged and (few or self.rounds.same_neighbours):
                return DONE
            if number >= MOST_CLIMBS - 1:
                return ROUNDS_DONE
            return "" if self.rounds.has_time(deadline) else TIME_IS_UP
        # the same rows again would end at the same place
        stuck = number > 0 and not (outcome.kept or self.rounds.draws_fresh_rows)
        usual = number >= NUM_ROUNDS or stuck
        if number > NUM_ROUNDS or (usual and not self._wants_fine):
            return DONE
        return "" if self.rounds.has_time(deadline) else TIME_IS_UP


def calibrated(rounds: NeighbourRounds, deadline: float = float("inf")) -> Report:
    """Calibrate the variances of a model, and warn where they were far off, or where the noise is
    at its floor.
    """
    judged, done = rounds.calibrate(deadline)
    spread = judged.spread
    local = rounds.model.spread_neighbours is not None  # wide ones are then narrowed for good
    if not (0.0 if local else 1.0 / _SUSPECT) < spread < _SUSPECT:
        width, kernels = ("narrow", "rougher") if spread > 1.0 else ("wide", "smoother")
        then = (
            (
                "were corrected"
                if local
                else "the variances of kernel and noise were multiplied by it"
            )
            if done
            else "stay so: they are the most likely ones, or at a bound, or not trainable"
        )
        warn_user(
            f"The mean squared standardised leave-one-out error is {spread:.2f}: intervals were"
            f" too {width}, and {then}. Compare a {kernels} kernel by model.leave_one_out(), or"
            ' let build(kernel="auto") choose.'
        )
    warn_at_floor(rounds.model.noise_at_floor())
    return Report(StepOutput.sound(0.0))
