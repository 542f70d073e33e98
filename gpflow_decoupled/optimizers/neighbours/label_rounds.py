"""Hyperparameters of a `LabelNNGP`, by L-BFGS on the log densities of left-out random rows."""

# Evidence of least squares finds the inputs that matter, but its Gaussian noise is no noise of
# labels: on letter it led to a log loss of 0.126, and what follows to 0.075 in less time. A few
# thousand random rows tell as much of a few dozen hyperparameters as all rows do, so the cost of
# learning depends neither on N nor on the number of classes.

from __future__ import annotations

__all__ = ["LabelRound", "LabelRounds"]

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ...errors import NumericalError, WorkerError, not_a_number
from ...inputs import check_whole
from ...lbfgs import LBFGSRun
from ...models.evidence import EXACT_ROWS
from ...models.families import require_model
from ...models.neighbours import LabelNNGP
from ...models.neighbours.conditionals import scaled
from ...models.neighbours.labels import log_densities_of_labels
from ...replicas import Group
from ..log_climb import FAR, LogCoordinates, LogObjective, climb_logarithms
from .judgement import rise_of
from .neighbour_rounds import NeighbourRounds, Pace, RowDensities, split

ROWS, LATER, EVALUATIONS = 2000, 2, 20
"""Rows of the first climb, of later ones in units of it, and evaluations of each."""
_FARTHEST = 1.5
"""Most that a logarithm moves in a round, whose neighbours belong to the lengthscales at its start.
"""

Show = Callable[[str], object]


class LabelRound(NamedTuple):
    """The end of a round."""

    climbed: LBFGSRun
    """The climb, in nats of all rows."""
    scores: np.ndarray
    """Log densities [B] of the judging rows, each left out, in nats."""
    kept: bool
    """False if they were no better than before, so that the round was undone."""
    rise: float = 0.0
    """Nats of all rows that the judging rows gained, beyond a standard error; at the start, of the
    climb."""


class LabelRounds:
    """L-BFGS on the log densities of random labels, each given its nearest other rows.

        sum_i log p(y_i | others) ~ N / B sum_{i of B random rows} log p(y_i | its neighbours)

    (Rasmussen & Williams 2006, equation 5.11 and section 6.5). A round is undone unless the judging
    rows, which no climb sees, are predicted better.

    :param model: whose trainable Parameters move.
    :param rows: B of the first climb; later ones draw twice as many, afresh.
    :param evaluations: in a climb.
    :param seed: of the rows.
    :param compile: False runs eagerly.
    :param group: the workers, which share the rows of climbs and judgements.

    Cost of a round: about E B (m^3 / 3 + m^2 D) for E evaluations, and a search. Example::

        rounds = LabelRounds(model)
        rounds.start()
        for number in range(3):
            print(rounds.run(number).scores.mean())
    """

    def __init__(
        self,
        model: LabelNNGP,
        rows: int = ROWS,
        evaluations: int = EVALUATIONS,
        seed: int = 0,
        compile: bool = True,
        group: Group | None = None,
    ) -> None:
        require_model("LabelRounds", model, LabelNNGP)
        check_whole(1, rows=rows, evaluations=evaluations)
        check_whole(0, seed=seed)
        self.model, self.rows, self.evaluations, self.seed = model, rows, evaluations, seed
        self.compile, self.group, self._pace = compile, group or Group(), Pace()
        self.judges, self.others = split(self._num_data, seed)
        self.scores = tf.Variable(
            np.full(len(self.judges), -np.inf), trainable=False, dtype=tf.float64
        )
        """Of the judging rows at the values that stand."""
        self._coordinates = LogCoordinates(model.trainable_parameters)
        self._densities = RowDensities(model, self._coordinates, compile, self.group)

    def __repr__(self) -> str:
        settings = f"rows={self.rows}, evaluations={self.evaluations}, seed={self.seed}"
        return f"{type(self).__name__}({self.model!r}, {settings})"

    def start(self, deadline: float = float("inf"), show: Show | None = None) -> LabelRound:
        """Climb the exact evidence of least squares on a few hundred rows, and judge.

        Arguments as `run`.
        """
        gaussian = self.model.gaussian
        rounds = NeighbourRounds(gaussian, seed=self.seed, compile=self.compile, group=self.group)
        found = rounds.start(deadline, show)
        scores = self.judge()
        if np.any(np.isnan(scores)):
            raise not_a_number(self.model, "log density of rows that are left out")
        self.scores.assign(scores)
        return LabelRound(found.climbed, self.scores.numpy(), found.kept, found.climbed.rise)

    def run(
        self, number: int, deadline: float = float("inf"), show: Show | None = None
    ) -> LabelRound:
        """Draw rows, find their neighbours at the present kernel, climb, and judge.

        :param number: of the round, 0, 1, ..., from which the rows follow.
        :param deadline: a value of `time.perf_counter`: iterations end in time for the judgement.
        :return: the outcome. An interrupt ends the climb with its best point.
        """
        before = self._coordinates.numbers()
        try:
            climbed = self._climbed(number, deadline - self._pace.of_judgements, show)
        except (KeyboardInterrupt, NumericalError, WorkerError):
            self._coordinates.restore(before)
            raise
        scores = self.judge()
        gains = scores - self.scores.numpy()
        kept = bool(np.mean(gains) > 0.0)
        if kept:
            self.scores.assign(scores)
        else:
            self._coordinates.restore(before)
        return LabelRound(climbed, scores, kept, self._num_data * rise_of(gains))

    def judge(self) -> np.ndarray:
        """Log densities [B] of the judging rows, each left out, in nats."""
        with self._pace.judging():
            (scores,) = self.group.over_rows(
                lambda rows: [self.model.left_out_scores(rows)], self.judges
            )
        return scores

    def calibrate(self) -> LBFGSRun | None:
        """Make predictions less sure where the judging rows say so: factors a <= a_0, b >= b_0.

            sum_i log p(y_i | others) - 1/2 (log a / a_0)^2 - 1/2 (log b / b_0)^2

        is highest. Climbs fit a_0, b_0 and dozens of lengthscales to the same rows, and may be too
        sure of others. Never surer: on digits, that had a test log loss of 0.152 for 0.090. Beyond
        2,000 rows a left-out mean of all rows is approximate: on 60 rows it was off by 9 % of the
        deviation of the means with 5 neighbours, by 0.8 % with 20.

        :return: the climb, in nats of the judging rows; None if no factor is trainable.
        """
        model, rows = self.model, self.judges
        factors = [factor for factor in model.factors if factor.trainable]
        if not factors:
            return None
        data = tuple(tf.gather(part, rows) for part in model.data)
        # exact means of a thousand rows would take an hour where there are many
        exact = self._num_data <= EXACT_ROWS
        left_out = self.group.over_rows(
            lambda some: model.left_out(some, mean=model.mean, exact=exact),
            rows,
        )
        moments = [tf.constant(part, model.float_type) for part in left_out]
        before = [tf.math.log(factor) for factor in factors]

        def densities() -> tf.Tensor:
            return log_densities_of_labels(model.likelihood, data, *scaled(model.factors, *moments))

        def objective() -> tf.Tensor:
            moved = (tf.math.log(now) - was for now, was in zip(factors, before))
            return tf.reduce_sum(densities()) - 0.5 * tf.add_n([tf.square(one) for one in moved])

        variables = [factor.unconstrained_variable for factor in factors]
        both = LogObjective.of_model(model, variables, objective, self.compile, group=self.group)
        climbed = climb_logarithms(
            both,
            both.coordinates,
            len(rows),
            evaluations=self.evaluations,
            rise=np.array([0.0 if one is model.mean_factor else np.inf for one in factors]),
            fall=np.array([0.0 if one is model.variance_factor else FAR for one in factors]),
            group=self.group,
        )
        self.scores.assign(tf.cast(densities(), tf.float64))
        return climbed

    def has_time(self, deadline: float) -> bool:
        """True if a further round would end before a value of `time.perf_counter`."""
        rows = min(LATER * self.rows, self._num_data)
        return not self.group.is_over(deadline - self._pace.of_round(rows))

    def _climbed(self, number: int, deadline: float, show: Show | None) -> LBFGSRun:
        rng = np.random.default_rng([self.seed, 1 + number])
        count = min(self.rows if number == 0 else LATER * self.rows, len(self.others))
        chosen = np.sort(rng.choice(self.others, count, replace=False))
        began = time.perf_counter()
        objective = self._densities.near(chosen, np.full(count, self._num_data / count))
        found = time.perf_counter()
        climbed = climb_logarithms(
            objective,
            self._coordinates,
            self._num_data,
            evaluations=self.evaluations,
            rise=_FARTHEST,
            fall=_FARTHEST,
            deadline=deadline,
            show=show,
            keep=self.group.workers == 1,
            group=self.group,
            name=f"L-BFGS on round {number + 1}, {count} rows",
        )
        seconds = time.perf_counter() - found
        self._pace.climbed(count, found - began, seconds, climbed.evaluations)
        return climbed

    @property
    def _num_data(self) -> int:
        return int(self.model.data[0].shape[0])
