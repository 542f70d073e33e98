"""Sites and hyperparameters of a `SiteNNGP` in turn, each from its nearest neighbours."""

from __future__ import annotations

__all__ = ["SitePace", "SiteRound", "SiteRounds", "SiteSweeps", "SweepReport"]

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ...compilation import Compiled
from ...errors import DataError, NumericalError, WorkerError
from ...inputs import check_whole
from ...lbfgs import LBFGSRun
from ...models.families import require_model
from ...models.neighbours import SiteNNGP
from ...replicas import Group
from ...user_warnings import warn_user
from ..ascent import INTERRUPTED
from ..log_climb import LogCoordinates, LogObjective, climb_logarithms
from .judgement import falls, rise_of
from .neighbour_rounds import RowDensities

# ---
# The seconds that parts of a round of sites take, so that a limit of time holds.


_LEAST = 3
"""Evaluations without which a round is not worth its passes."""
_CHOICE = 8.0
"""Seconds of the choice of prediction neighbours and of the confidence of classes, in units of a
judgement: half of its rows with as many neighbours and with twice as many, then all with those."""


class SitePace:
    """Notes what searches, passes, climbs and judgements take, and foretells the next ones.

    All zero before they were seen; the first pass, which compiles, is none of the last ones.
    """

    def __init__(self) -> None:
        self.judgement = 0.0
        """Seconds of the last one."""
        self._search = self._pass = self._evaluation = 0.0

    @contextmanager
    def judging(self) -> Iterator[None]:
        """Time a judgement."""
        began = time.perf_counter()
        yield
        self.judgement = time.perf_counter() - began

    def passed(self, search: float, seconds: float) -> None:
        """Note the seconds of a search for neighbours, and of the last pass after it."""
        self._search, self._pass = search, seconds

    def climbed(self, seconds: float, evaluations: int) -> None:
        """Note the seconds of a climb with its search."""
        self._evaluation = seconds / max(1, evaluations)

    @property
    def after_climb(self) -> float:
        """Seconds of a search, one pass and the judgement."""
        return self._search + self._pass + self.judgement

    @property
    def of_round(self) -> float:
        """The least seconds of a round."""
        return _LEAST * self._evaluation + self.after_climb

    def of_closing(self, passes: int, chooses: bool, times: float = 1.0) -> float:
        """Seconds of the last passes over some `times` as many rows, of their judgement, and of
        what predictions need.

        :param passes: over the sites.
        :param chooses: whether neighbours of predictions are chosen.
        """
        after = 1.0 + (_CHOICE if chooses else 0.0)
        return times * (self._search + passes * self._pass) + after * self.judgement


# ---
# Conjugate computation by neighbours: the sites of a `SiteNNGP`, in batches of rows.


_BATCH, _BATCHES = 1000, 4
"""Most rows whose sites move at once, and least batches of a pass: each sees the last one moved."""
_REGROWTH = 1.25
"""Growth of a step size that was halved, after a pass that changed less than the last."""
_SWEEPS = 30
"""Most passes over the rows."""


class SweepReport(NamedTuple):
    """The passes of a run."""

    changes: list[float]
    """Root mean squared change of the means of q(f) in each pass, in units of its deviations and of
    the step size; of the rows that it visited."""
    converged: bool
    """Whether the last change was below the tolerance."""
    seconds: float = 0.0
    """Of the last pass, or of a whole one at its pace if the deadline cut it."""
    search: float = 0.0
    """Seconds of the search for neighbours."""
    visited: float = 1.0
    """Share of the rows that the last pass visited, in a random order."""
    clipped: int = 0
    """Negative precisions that became zero, summed over the passes."""


class SiteSweeps:
    """Conjugate-computation VI in which every conditional is local (Khan & Lin 2017).

    With cavities from the sites of neighbours, and g and h the derivatives of E_q log p(y | f) in
    mean and variance of q(f), the sites of a batch become

        lambda <- (1 - rho) lambda - 2 rho h,   nu <- (1 - rho) nu + rho (g - 2 h mean)     (C13)

    Negative precisions, of likelihoods that are not log-concave, become zero, and are counted.

    :param model: whose sites move. With `expectations` pass k has the step size rho / k, which
        averages the draws of all passes.
    :param step_size: rho in (0, 1], halved after a pass that changed more than the last.
    :param batch_size: rows whose sites move at once; by default a quarter of all, at most 1,000.
    :param seed: of their order.
    :param compile: False runs eagerly.
    :param group: the workers, which share the rows of each batch; one message a batch.

    Cost of a pass: N L (m^3 / 3 + m^2 D); of a run also one search of neighbours. Example::

        SiteSweeps(model).run()
        mean, variance = model.predict_y(Xnew)
    """

    def __init__(
        self,
        model: SiteNNGP,
        step_size: float = 1.0,
        *,
        batch_size: int | None = None,
        seed: int = 0,
        compile: bool = True,
        group: Group | None = None,
    ) -> None:
        require_model("SiteSweeps", model, SiteNNGP)
        if batch_size is None:
            batch_size = min(_BATCH, -(-int(model.data[0].shape[0]) // _BATCHES))
        check_whole(1, batch_size=batch_size)
        check_whole(0, seed=seed)
        if not 0.0 < step_size <= 1.0:
            raise DataError(f"step_size={step_size} must be above 0 and at most 1.")
        self.model, self.step_size, self.batch_size, self.seed = model, step_size, batch_size, seed
        self.group = group or Group()
        step = model.move_sites if self.group.workers == 1 else model.moved_sites
        self._step = Compiled(step, reduce_retracing=True) if compile else step

    def __repr__(self) -> str:
        settings = f"step_size={self.step_size}, batch_size={self.batch_size}, seed={self.seed}"
        return f"{type(self).__name__}({self.model!r}, {settings})"

    def run(
        self,
        sweeps: int = _SWEEPS,
        *,
        rows: np.ndarray | None = None,
        tolerance: float = 1e-3,
        deadline: float = float("inf"),
    ) -> SweepReport:
        """Pass over the rows until the means of q(f) hardly move.

        :param sweeps: most passes.
        :param rows: row numbers [B] whose sites move, for instance new ones; all if not given.
        :param tolerance: of the last change, in deviations of q(f).
        :param deadline: a value of `time.perf_counter`. A pass ends at the first batch that ends
            later, with the remaining sites unchanged.
        :return: the changes. Warns if 30 passes or more, without draws, have not converged.
        :raises NumericalError: if the sites become infinite; the last pass is undone.
        """
        check_whole(1, sweeps=sweeps)
        N = int(self.model.data[0].shape[0])
        rows = np.arange(N) if rows is None else np.asarray(rows)  # checked with the neighbours
        start = time.perf_counter()
        near = self._neighbours(rows)
        search = time.perf_counter() - start
        rng, rho, changes = np.random.default_rng(self.seed), self.step_size, []
        clipped = 0
        for _ in range(sweeps):
            began = time.perf_counter()
            change, visited, negative = self._pass(rows, near, rng, rho, deadline)
            changes.append(change)
            clipped += negative
            seconds = (time.perf_counter() - began) / visited
            if visited < 1.0 or change < tolerance or self.group.is_over(deadline - seconds):
                break
            grew = len(changes) > 1 and changes[-1] > changes[-2]
            if self.model.expectations is not None:
                rho = self.step_size / (1 + len(changes))
            else:
                rho = 0.5 * rho if grew else min(self.step_size, _REGROWTH * rho)
        converged = visited == 1.0 and changes[-1] < tolerance
        exact = self.model.expectations is None  # changes by new draws do not end
        if exact and not converged and len(changes) >= _SWEEPS:
            warn_user(
                f"The sites have not converged in {len(changes)} passes: the last one moved the"
                f" means by {changes[-1]:.2g} standard deviations. Pass a smaller step_size, or"
                " more sweeps."
            )
        return SweepReport(changes, converged, seconds, search, visited, clipped)

    def _pass(
        self,
        rows: np.ndarray,
        near: tf.Tensor,
        rng: np.random.Generator,
        rho: float,
        deadline: float,
    ) -> tuple[float, float, int]:
        """The change of the means, the share of the rows that were visited in time, and how many
        precisions were clipped.
        """
        gaussian = self.model.gaussian
        before = gaussian.data[1].numpy(), gaussian.likelihood.variance.numpy()
        size, total = tf.constant(rho, self.model.float_type), np.zeros(2)
        places, visited = rng.permutation(len(rows)), 0
        while visited < len(rows):
            some = places[visited : visited + self.batch_size]
            total, visited = total + self._moved(rows, near, some, size), visited + len(some)
            if self.group.is_over(deadline):
                break
        if not np.all(np.isfinite(total)):
            gaussian.data[1].assign(before[0])
            gaussian.likelihood.variance.assign(before[1])
            raise NumericalError(
                "The sites became infinite, and the last pass was undone. Likely fixes: a smaller"
                " step_size, double precision, standardised inputs.",
                matrix="k(neighbours, neighbours)",
            )
        # of a full step: a short one changes little, however far the sites are from their goal
        change = float(np.sqrt(total[0] / (visited * self.model.num_latent_gps))) / rho
        return change, visited / len(rows), int(total[1])

    def _moved(
        self, rows: np.ndarray, near: tf.Tensor, some: np.ndarray, size: tf.Tensor
    ) -> np.ndarray:
        """[2]: the sum of the squared changes, and the number of clipped precisions."""

        def step(places: np.ndarray) -> Any:
            batch = tf.constant(rows[places], tf.int32)
            return self._step(batch, tf.gather(near, places, axis=1), size)

        if self.group.workers == 1:
            return np.array([float(part) for part in step(some)])
        nu, precision, *sums = self.group.over_rows(step, some)
        kind = self.model.float_type
        sites = tf.constant(nu, kind), tf.constant(precision, kind)
        self.model.assign_sites(tf.constant(rows[some], tf.int32), *sites)
        return np.array([np.sum(part) for part in sums])

    def _neighbours(self, rows: np.ndarray) -> tf.Tensor:
        """The neighbours of rows [B], [G, B, m]; each worker searches for its share of rows."""
        if self.group.workers == 1:
            return self.model.neighbours_of(rows)

        def found(some: np.ndarray) -> list[tf.Tensor]:
            return [tf.transpose(self.model.neighbours_of(some), [1, 0, 2])]

        (near,) = self.group.over_rows(found, rows)
        return tf.transpose(tf.constant(near, tf.int32), [1, 0, 2])


# ---


# At fixed sites the log partition function (N10) is a sum over rows, so that a few thousand random
# ones teach the hyperparameters, whatever N is; at fixed hyperparameters two passes bring the sites
# near their optimum. A climb must be short, since its sites belong to the kernel at its start.


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
