"""Sites and hyperparameters of a `SiteNNGP` in turn, each from its nearest neighbours."""

# At fixed sites the log partition function (N10) is a sum over rows, so that a few thousand random
# ones teach the hyperparameters, whatever N is; at fixed hyperparameters two passes bring the sites
# near their optimum. A climb must be short, since its sites belong to the kernel at its start.

from __future__ import annotations

__all__ = ["SiteRound", "SiteRounds"]

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ...errors import NumericalError, WorkerError
from ...inputs import check_whole
from ...lbfgs import LBFGSRun
from ...models.families import require_model
from ...models.neighbours import SiteNNGP
from ...replicas import Group
from ..ascent import INTERRUPTED
from ..log_climb import climb_logarithms
from ..log_coordinates import LogCoordinates
from ..log_objective import LogObjective
from .judgement import falls, rise_of
from .row_densities import RowDensities
from .site_pace import SitePace
from .site_sweeps import SiteSweeps

ROWS, EVALUATIONS = 3000, 12
"""Of a climb. On letter, 15,000 rows, five rounds of 1,500 rows ended at a log loss of 0.078 and
four of 3,000 at 0.069, in the same time: the passes over the sites cost more than the climbs."""
_TERMS, _LEAST_ROWS = 24_000, 1000
"""Most terms of a climb, one for each row and latent: of many classes each row says more."""
_LEAST_EVALUATIONS = 3
"""After undone rounds, each of which halves the number."""
FIRST_SWEEPS, SWEEPS = 3, 2
"""Passes over the sites at the start and after a climb. They end the change of the means by a few
hundredths of a standard deviation; more are lost at the next climb."""
JUDGES = 1000
"""Rows whose leave-one-out log densities judge each round, and whose sites move with the others."""

Show = Callable[[str], object]


class SiteRound(NamedTuple):
    """The end of a round."""

    climbed: LBFGSRun | None
    """The climb, in nats of all rows; None at the start."""
    scores: np.ndarray
    """Leave-one-out log densities [B] of the judging rows, in nats."""
    kept: bool
    """False if they were worse than before, so that the round was undone."""
    rise: float = 0.0
    """Nats of all rows that the judging rows gained, beyond a standard error; infinite before the
    hyperparameters moved."""
    clipped: int = 0
    """Negative precisions that became zero, summed over the passes."""


class SiteRounds:
    """L-BFGS on the log partition function of the sites, and passes over the sites.

        log Z ~ N / B sum_{i of B random rows} log Z_i,   Z_i = int t_i(f) N(f; m_c, v_c) df

    with the earlier neighbours c of row i. A round is undone where the leave-one-out log density of
    the judging rows falls beyond chance.

    :param model: whose sites and trainable hyperparameters move.
    :param rows: B of a climb; by default 3,000, and fewer for more than eight latents.
    :param evaluations: in a climb; halved after an undone round.
    :param seed: of the rows.
    :param compile: False runs eagerly.
    :param group: the workers, which share the rows of climbs, passes and judgements.

    Cost of a round: about E B L (m^3 / 3 + m^2 D) for E evaluations, and a search and two passes
    over the sites, N L (m^3 / 3 + m^2 D) each. Example::

        rounds = SiteRounds(model)
        rounds.start()
        for number in range(4):
            print(rounds.run(number).scores.mean())
        rounds.sweeps.run()
    """

    def __init__(
        self,
        model: SiteNNGP,
        rows: int | None = None,
        evaluations: int = EVALUATIONS,
        seed: int = 0,
        compile: bool = True,
        group: Group | None = None,
    ) -> None:
        require_model("SiteRounds", model, SiteNNGP)
        if rows is None:
            rows = max(_LEAST_ROWS, min(ROWS, _TERMS // model.num_latent_gps))
        check_whole(1, rows=rows, evaluations=evaluations)
        check_whole(0, seed=seed)
        self.model, self.rows, self.seed = model, rows, seed
        self.most = tf.Variable(evaluations, trainable=False)
        """Evaluations in a climb, a part of checkpoints."""
        self.group = group or Group()
        self.sweeps = SiteSweeps(model, seed=seed, compile=compile, group=self.group)
        self.pace = SitePace()
        rng = np.random.default_rng([seed, 0])
        self.judges = np.sort(rng.choice(self._num_data, self._count(JUDGES), replace=False))
        self.scores = tf.Variable(np.full(len(self.judges), -np.inf), trainable=False)
        """Of the judging rows at the values that stand."""
        self._coordinates = LogCoordinates(model.gaussian.trainable_parameters)
        self._densities = RowDensities(model.gaussian, self._coordinates, compile, self.group)
        self._of_likelihood = model.likelihood.trainable_variables

    def __repr__(self) -> str:
        settings = f"rows={self.rows}, evaluations={self.evaluations}, seed={self.seed}"
        return f"{type(self).__name__}({self.model!r}, {settings})"

    @property
    def evaluations(self) -> int:
        """Evaluations in a climb."""
        return int(self.most.numpy())

    @property
    def variables(self) -> list[tf.Variable]:
        """Hyperparameters and sites."""
        sites = [self.model.gaussian.data[1], self.model.gaussian.likelihood.variance]
        return [*self._coordinates.variables, *self._of_likelihood, *sites]

    @property
    def has_hyperparameters(self) -> bool:
        """True if anything but sites is trainable."""
        return bool(self._coordinates.variables) or bool(self._of_likelihood)

    def start(self, deadline: float = float("inf")) -> SiteRound:
        """Pass over the sites at the given hyperparameters, and judge.

        :param deadline: a value of `time.perf_counter`, after which no second pass begins.
        """
        clipped = self._pass_over_sites(FIRST_SWEEPS, deadline)
        self.scores.assign(self.judge())
        rise = np.inf if self.has_hyperparameters else 0.0
        return SiteRound(None, self.scores.numpy(), True, rise, clipped)

    def run(
        self,
        number: int,
        deadline: float = float("inf"),
        show: Show | None = None,
        shift: float = 0.0,
    ) -> SiteRound:
        """Climb on fresh rows, pass over the sites, and judge; an interrupt undoes the round.

        Arguments as `NeighbourRounds.run`.

        :param deadline: iterations end in time for one pass and the judgement; a second pass takes
            place if time is left.
        :return: the outcome.
        """
        before = [variable.numpy() for variable in self.variables]
        try:
            climbed = self._climbed(number, deadline - self.pace.after_climb, show, shift)
            if climbed.reason != INTERRUPTED:
                clipped = self._pass_over_sites(SWEEPS, deadline - self.pace.judgement)
        except (KeyboardInterrupt, NumericalError, WorkerError):
            self._restore(before)
            raise
        if climbed.reason == INTERRUPTED:
            self._restore(before)
            return SiteRound(climbed, self.scores.numpy(), False)
        scores = self.judge()
        gains = scores - self.scores.numpy()
        if falls(gains):
            self._restore(before)
            # the climb left its sites too far behind, and so would the same one again
            self.most.assign(max(_LEAST_EVALUATIONS, self.evaluations // 2))
            return SiteRound(climbed, scores, False, clipped=clipped)
        self.scores.assign(scores)
        return SiteRound(climbed, scores, True, self._num_data * rise_of(gains), clipped)

    def has_time(self, deadline: float) -> bool:
        """True if a further round would end before a value of `time.perf_counter`."""
        return not self.group.is_over(deadline - self.pace.of_round)

    def _pass_over_sites(self, sweeps: int, deadline: float) -> int:
        """Returns the number of clipped precisions."""
        report = self.sweeps.run(sweeps, deadline=deadline)
        self.pace.passed(report.search, report.seconds)
        return report.clipped

    def _climbed(self, number: int, deadline: float, show: Show | None, shift: float) -> LBFGSRun:
        began = time.perf_counter()
        rng = np.random.default_rng([self.seed, 1 + number])
        chosen = np.sort(rng.choice(self._num_data, self._count(self.rows), replace=False))
        for objective, name in self._climbs(chosen):
            climbed = climb_logarithms(
                objective,
                objective.coordinates,
                self._num_data,
                evaluations=self.evaluations,
                deadline=deadline,
                show=show,
                shift=shift,
                group=self.group,
                name=f"L-BFGS on {name} of round {number + 1}, {len(chosen)} rows",
            )
            if climbed.reason == INTERRUPTED:
                break
        self.pace.climbed(time.perf_counter() - began, climbed.evaluations)
        return climbed

    def _climbs(self, chosen: np.ndarray) -> list[tuple[LogObjective, str]]:
        """The objectives of a round on some rows: E_q log p at the present q(f) for Parameters of
        the likelihood, and (N10) at the present sites for kernel and mean function.
        """
        share, climbs = self._num_data / len(chosen), []
        if self._of_likelihood:
            rows = tf.constant(chosen, tf.int32)
            cavity = self.model.cavities(rows, self.model.neighbours_of(chosen))
            q = self.model.at_sites(cavity, rows)
            data = tuple(tf.gather(part, rows) for part in self.model.data)
            draws = self.model.expectations
            number = 0 if draws is None else int(draws.calls.numpy())

            def expected_density() -> tf.Tensor:
                if draws is not None:
                    draws.calls.assign(number)  # L-BFGS needs the same draws in each evaluation
                return share * tf.reduce_sum(self.model.expected_log_densities(q, data))

            expected = LogObjective.of_model(
                self.model, self._of_likelihood, expected_density, group=self.group
            )
            climbs.append((expected, "the likelihood"))
        if self._coordinates.variables:
            weights = np.full(len(chosen), share)
            climbs.append((self._densities.near(chosen, weights), "the kernel"))
        return climbs

    def _restore(self, values: list[np.ndarray]) -> None:
        for variable, value in zip(self.variables, values):
            variable.assign(value)

    def judge(self) -> np.ndarray:
        """Leave-one-out log densities [B] of the judging rows, in nats."""
        with self.pace.judging():
            (scores,) = self.group.over_rows(
                lambda rows: [self.model.left_out_scores(rows)], self.judges
            )
        return scores

    def _count(self, most: int) -> int:
        return min(most, self._num_data)

    @property
    def _num_data(self) -> int:
        return int(self.model.data[0].shape[0])
