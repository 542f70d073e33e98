"""Sites and hyperparameters from neighbours, in turn."""

from __future__ import annotations

__all__ = ["MOST_ROUNDS", "NeighbourSites"]

import warnings

import numpy as np
import tensorflow as tf

from ...models.neighbours import SiteNNGP
from ...optimizers.ascent import INTERRUPTED
from ...optimizers.data_mean.system import TIME_IS_UP
from ...optimizers.neighbours import SiteRounds, SiteSweeps, choose_prediction_neighbours
from ...optimizers.neighbours.judgement import falls
from ...replicas import Group
from ...user_warnings import warn_user
from ..batches import Trackable
from ..snapshots import go_back, snapshot
from .mean_on_data import with_mean
from .neighbours import DONE
from .stage import ROUNDS_DONE, Budget, Climb, Clock, Report, StepOutput

NUM_ROUNDS = 5
"""After the start. On letter and cover types a sixth gained nothing beyond chance."""
MOST_ROUNDS = 2 * NUM_ROUNDS + 1
"""With the start, where rounds still gain: hyperparameters may begin far off."""
_MOST_ROWS = 100_000
"""Rows of the rounds. A search for the neighbours of a million rows takes minutes, and each round
needs one; a hundred thousand tell as much of a few dozen hyperparameters."""
_LAST_PASSES = 2
"""Passes over the sites at the end for which a limit of time leaves room, after a climb."""
_GAIN = 0.005
"""Nats per row that make a further round worth its time, and a fall worth a word."""
_FALL = (
    "The last {1} passes over the sites lowered the leave-one-out log density by {0:.2g} nats per"
    " row, beyond chance; {2}. A smaller step: optimizers.SiteSweeps(model, step_size=0.1).run()."
)


class NeighbourSites(Climb):
    """Passes over the sites and climbs of the hyperparameters: `optimizers.SiteRounds`.

    A turn is one round; the first only passes over the sites. Rounds that lower the leave-one-out
    score beyond chance are undone. Beyond 100,000 rows the rounds see a random sample of that size,
    with separate sites, and the sites of all rows are found at the end.
    """

    def __init__(
        self, model: SiteNNGP, seed: int, compile: bool = True, group: Group | None = None
    ) -> None:
        self.model, self.group = model, group or Group()
        self.compile = compile
        # workers have no sample, of which each would need sites
        alone = self.group.workers == 1
        self.sample = _sample(int(model.data[0].shape[0]), seed) if alone else None
        """Row numbers of the rounds' model; None for all rows."""
        of_rounds = model if self.sample is None else _of_rows(model, self.sample)
        self.rounds = SiteRounds(of_rounds, seed=seed, compile=compile, group=self.group)
        self.value = tf.Variable(np.nan, trainable=False, dtype=tf.float64)
        """The leave-one-out log density of all rows in nats, estimated by the judging rows."""

    @property
    def variables(self) -> list[tf.Variable]:
        return [*self.rounds.variables, self.rounds.scores, self.value]

    @property
    def checkpointable(self) -> dict[str, Trackable]:
        found: dict[str, Trackable] = {
            "scores": self.rounds.scores,
            "evaluations": self.rounds.most,
            "value": self.value,
        }
        return found if self.sample is None else found | {"sample": self.rounds.model}

    @property
    def settings(self) -> dict[str, object]:
        return {"rows": self.rounds.rows, "num_neighbours": self.model.gaussian.num_neighbours}

    def climb(self, budget: Budget) -> Report:
        clock, number = budget.clock, budget.first
        deadline = self._deadline(budget)
        moves = self.rounds.has_hyperparameters
        if number == 0 or not moves:
            outcome = self.rounds.start(deadline)
        else:
            outcome = self.rounds.run(number - 1, deadline, clock.show, clock.shift)
        before, per_row = float(self.value.numpy()), float(np.mean(self.rounds.scores.numpy()))
        self.value.assign(int(self.model.data[0].shape[0]) * per_row)
        gains = float(self.value.numpy()) - before > _GAIN * int(self.model.data[0].shape[0])
        enough = number >= NUM_ROUNDS and not gains
        reason = DONE if enough or not moves else ""
        if not reason and number >= MOST_ROUNDS - 1:
            reason = ROUNDS_DONE
        if outcome.climbed is not None and outcome.climbed.reason == INTERRUPTED:
            reason = INTERRUPTED
        elif not self.rounds.has_time(self._deadline(budget)):  # how long that takes is known
            reason = TIME_IS_UP
        return Report(
            StepOutput.sound(float(self.value.numpy()), clipped=outcome.clipped),
            reason,
            converged=reason == DONE,
            is_long=True,
            scores={"leave_one_out": float(np.mean(outcome.scores))},
            rise=outcome.rise,
        )

    def _deadline(self, budget: Budget) -> float:
        """Of the rounds, which leave time for the last passes and what predictions need."""
        clock = budget.clock
        times = 1.0
        if self.sample is not None:
            times = int(self.model.data[0].shape[0]) / len(self.sample)
        after = self.rounds.pace.of_closing(_LAST_PASSES, self.model.chooses_neighbours, times)
        return min(clock.deadline(budget.until), clock.deadline() - after)

    def closing(self, clock: Clock) -> Report:
        """Pass over the sites until they have converged; then find what predictions need: a number
        of neighbours that is left to `fit`, and a mean of all rows.

        Warns where passes that have not converged lower the leave-one-out score beyond chance. They
        are then undone, unless the rounds saw a sample and the sites of other rows are new. Sites
        that have converged are the posterior, whatever left-out rows say.
        """
        end, before = clock.deadline(), snapshot(self.variables)
        sweeps, judges = self.rounds.sweeps, self.rounds.judges
        if self.sample is not None:
            judges = self.sample[judges]
            self.model.assign_sites(tf.constant(self.sample, tf.int32), *self.rounds.model.sites)
            sweeps = SiteSweeps(self.model, compile=self.compile)
        chooses, pace = self.model.chooses_neighbours, self.rounds.pace
        report = sweeps.run(deadline=end - pace.of_closing(0, chooses, 0.0))
        gains = self._judge(judges) - self.rounds.scores.numpy()
        if not report.converged and np.mean(gains) < -_GAIN and falls(gains):
            then = "the rows beyond the sample have no other sites"
            if self.sample is None:
                go_back(before)
                then = "they were undone"
            warn_user(_FALL.format(-np.mean(gains), len(report.changes), then))
        if chooses:
            choose_prediction_neighbours(self.model, judges, end, self.group)
        output = StepOutput.sound(0.0, clipped=report.clipped)
        return with_mean(self.model, Report(output), end, clock)

    def _judge(self, rows: np.ndarray) -> np.ndarray:
        """Leave-one-out log densities [B] of rows, in nats."""
        (scores,) = self.group.over_rows(lambda some: [self.model.left_out_scores(some)], rows)
        return scores


def _sample(num_rows: int, seed: int) -> np.ndarray | None:
    if num_rows <= _MOST_ROWS:
        return None
    return np.sort(np.random.default_rng([seed, 3]).choice(num_rows, _MOST_ROWS, replace=False))


def _of_rows(model: SiteNNGP, rows: np.ndarray) -> SiteNNGP:
    with warnings.catch_warnings():  # of values, about which the model has warned
        warnings.simplefilter("ignore", UserWarning)
        return SiteNNGP(
            tuple(tf.gather(part, rows) for part in model.data),
            model.kernel,
            model.likelihood,
            num_neighbours=model.num_neighbours,
            prediction_neighbours=model.prediction_neighbours,
            mean_function=model.mean_function,
            num_latent_gps=model.num_latent_gps,
            expectations=model.expectations,
        )
