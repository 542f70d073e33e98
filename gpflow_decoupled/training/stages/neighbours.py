"""Rounds of L-BFGS on the likelihood of neighbours."""

from __future__ import annotations

__all__ = ["MOST_CLIMBS", "NeighbourClimbs", "NeighbourSteps", "calibrated"]

import numpy as np
import tensorflow as tf

from ...compilation import Compiled
from ...models.neighbours import GaussianNNGP
from ...models.neighbours.groups import warn_at_floor
from ...optimizers.ascent import INTERRUPTED
from ...optimizers.data_mean.system import TIME_IS_UP
from ...optimizers.neighbours import NeighbourRounds, RoundOutcome
from ...optimizers.neighbours.neighbour_rounds import ROWS
from ...replicas import Group
from ...user_warnings import warn_user
from ..batches import Trackable
from ..keras import KerasAscent, Optimizer
from .stage import ROUNDS_DONE, Budget, Climb, Clock, Report, Stage, StepOutput, all_finite

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


class NeighbourClimbs(Climb):
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

    def climb(self, budget: Budget) -> Report:
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

    def reached(self, report: Report) -> float:
        return super().reached(report) if self.rounds.whole else report.scores["leave_one_out"]

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


# ---
# Steps on minibatches of the likelihood of neighbours.


_PASSES = 4
"""Passes over a pool. A search costs as much as a few steps; after many, neighbours are old."""


class NeighbourSteps(Stage):
    """An optimizer on (N2) of random minibatches, for kernels with many parameters.

        log p(y) ~ sum_{i in batch} w_i (P / B) l_i

    Rows come from a pool of P = 6,000, replaced after four passes; weights w_i make it unbiased.
    L-BFGS is faster for some dozens of parameters.

    :param batch_size: B.

    Cost of a step: B (m^3 / 3 + m^2 D), whatever N is.
    """

    def __init__(
        self,
        model: GaussianNNGP,
        optimizer: Optimizer,
        batch_size: int,
        seed: int,
        compile: bool = True,
    ) -> None:
        self.model, self.seed = model, seed
        self.rounds = NeighbourRounds(model, seed=seed, compile=compile)
        self.ascent = KerasAscent(optimizer, model.trainable_variables)
        rows, weights = self.rounds.samples.sample(self.rounds.rows, 0)
        near = model.neighbours_of(rows)
        self.batch_size = min(batch_size, len(rows))
        self.rows = tf.Variable(rows.astype(np.int32), trainable=False)
        """[P]"""
        self.near = tf.Variable(near, trainable=False)
        """[G, P, m]"""
        self.weights = tf.Variable(weights.astype(model.data[1].dtype.as_numpy_dtype))
        """w [P]"""
        self.number = tf.Variable(0, trainable=False)
        """Of the pool."""
        self._step = Compiled(self._climb) if compile else self._climb

    @property
    def variables(self) -> list[tf.Variable]:
        return [*self.ascent.variables, *self._pool.values()]

    @property
    def checkpointable(self) -> dict[str, Trackable]:
        return {"optimizer": self.ascent.optimizer, **self._pool}

    @property
    def settings(self) -> dict[str, object]:
        sizes = {"batch_size": self.batch_size, "num_neighbours": self.model.num_neighbours}
        return {**sizes, "optimizer": self.ascent.name}

    @property
    def _pool(self) -> dict[str, tf.Variable]:
        return {
            "pool_rows": self.rows,
            "pool_neighbours": self.near,
            "pool_weights": self.weights,
            "pool_number": self.number,
        }

    def run(self, budget: Budget) -> Report:
        count = int(self.rows.shape[0])
        number = budget.first // max(1, _PASSES * count // self.batch_size)
        if number != int(self.number.numpy()):
            self._draw(number)
        self.ascent.set_rate(budget.sizes[0].learning_rate)
        rng = np.random.default_rng([self.seed, 2, budget.first])
        chosen = rng.choice(count, self.batch_size, replace=False)
        over = budget.until < 1.0 and budget.clock.share >= budget.until
        return Report(self._step(tf.constant(chosen, tf.int32)), TIME_IS_UP if over else "")

    def _draw(self, number: int) -> None:
        rows, weights = self.rounds.samples.sample(self.rounds.rows, number)
        self.rows.assign(rows)
        self.near.assign(self.model.neighbours_of(rows))
        self.weights.assign(weights)
        self.number.assign(number)

    def _climb(self, chosen: tf.Tensor) -> StepOutput:
        rows, near = tf.gather(self.rows, chosen), tf.gather(self.near, chosen, axis=1)
        weights = tf.gather(self.weights, chosen) * (self.rows.shape[0] / self.batch_size)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self.ascent.moved)
            value = tf.reduce_sum(weights * self.model.log_likelihood(rows, near))
            value += self.model.log_prior_density()
        gradients = tape.gradient(value, self.ascent.moved)
        self.ascent.ascend(gradients)
        return StepOutput.sound(value, all_finite([value, *gradients]))
