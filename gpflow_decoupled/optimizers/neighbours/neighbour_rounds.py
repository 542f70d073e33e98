"""Hyperparameters of a nearest-neighbour GP by L-BFGS on the likelihood of random rows."""

from __future__ import annotations

__all__ = [
    "NeighbourRounds", "Pace", "RoundOutcome", "RowDensities", "RowSamples", "most_rises",
    "shorten", "split",
]  # fmt: skip

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel

from ...covariances.mixed import spreads
from ...covariances.stationary import reads_scaled_inputs
from ...inputs import check_whole
from ...lbfgs import LBFGSRun
from ...models.families import require_model
from ...models.neighbours import GaussianNNGP, LabelNNGP
from ...replicas import Group
from ..ascent import INTERRUPTED
from ..log_climb import (
    SETTLED,
    Evaluated,
    LogCoordinates,
    LogObjective,
    climb_logarithms,
    with_gradients,
)
from .judgement import (
    Calibration,
    Judged,
    calibrate,
    contradictions,
    judge,
    scales_of,
    trust_duplicates,
)

# ---
# The record of a round of `NeighbourRounds`.


class RoundOutcome(NamedTuple):
    """The end of a round."""

    climbed: LBFGSRun
    """The climb; its values are estimates of the log likelihood of all rows, in nats."""
    judged: Judged
    """At the hyperparameters that the round proposes."""
    kept: bool
    """False if they predicted worse than those before, so that the round was undone."""


# ---
# The seconds that parts of a round take, so that a limit of time holds.


_JUDGED = 2
"""Candidates of a round that are judged."""
_LEAST = 3
"""Evaluations without which a round is not worth its search for neighbours."""


class Pace:
    """Measures judgements and rounds as they go, and says what the next ones will take."""

    def __init__(self) -> None:
        self._judgement = self._search = self._evaluation = 0.0  # the last two for each row

    @contextmanager
    def judging(self) -> Iterator[None]:
        """Time a judgement."""
        began = time.perf_counter()
        yield
        self._judgement = time.perf_counter() - began

    def climbed(self, rows: int, search: float, seconds: float, evaluations: int) -> None:
        """Note the seconds of a search for the neighbours of some rows, and of the climb."""
        self._search = search / max(1, rows)
        self._evaluation = seconds / max(1, rows * evaluations)

    @property
    def of_judgements(self) -> float:
        """Seconds of the judgements after a climb."""
        return _JUDGED * self._judgement

    def of_calibration(self, ratio: float) -> float:
        """Seconds of the judgement with all neighbours of a prediction, `ratio` times as many."""
        return self._judgement * ratio**2

    def of_round(self, rows: int) -> float:
        """The least seconds of a round of some rows; zero before the first one."""
        return rows * (self._search + _LEAST * self._evaluation) + self.of_judgements


# ---
# Lengthscales that must not become too long in a climb.


# Few rows may call an input irrelevant that is not, and from far away the gradient of its
# lengthscale does not lead back.


_LONGEST = 2.0
"""Largest log lengthscale after the first climb, in units of sqrt(D) standard deviations."""
_LONGER = 2.0
"""Most that the logarithm of a lengthscale grows in a round, whose neighbours belong to its start.
From a start with too little noise the first steps are long: one took a relevant input out of the
kernel."""


def most_rises(kernel: Kernel, coordinates: LogCoordinates) -> np.ndarray:
    """Return the most that each coordinate may grow in a round; infinite but for lengthscales."""
    parts = [one for one in (kernel, *kernel.submodules) if reads_scaled_inputs(one)]
    scales = {id(one.lengthscales.unconstrained_variable) for one in parts}
    each = [_LONGER if id(one) in scales else np.inf for one in coordinates.variables]
    return np.repeat(each, [int(tf.size(one)) for one in coordinates.variables])


def shorten(kernel: Kernel, X: tf.Tensor) -> None:
    """Bound the trainable lengthscales from above, in units of the spread of X [N, D]."""
    # the submodules of a kernel are its parts, without itself
    for one in (kernel, *kernel.submodules):
        if not reads_scaled_inputs(one) or not one.lengthscales.trainable:
            continue
        columns, _ = one.slice(X, None)
        longest = np.exp(_LONGEST) * np.sqrt(columns.shape[1]) * spreads(one, columns.numpy())
        longest = longest if one.ard else np.max(longest)
        one.lengthscales.assign(np.minimum(one.lengthscales.numpy(), longest))


# ---
# Random rows for climbs and judgements of hyperparameters.


_JUDGES = 1000
"""Rows that no climb sees, whose leave-one-out scores judge each round."""


def split(num_data: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers that judge, a fifth and at most 1,000, in order; and the others, in random order.

    A single row is both.
    """
    shuffled = np.random.default_rng([seed, 0]).permutation(num_data)
    count = min(_JUDGES, max(1, num_data // 5))
    return np.sort(shuffled[:count]), shuffled[count:] if num_data > 1 else shuffled


class RowSamples:
    """Rows that judge, and samples of the others, to which rows C that contradict others belong.

    :param model: whose rows are drawn.
    :param most: twice as many as C may have.
    :param seed: of the draws.
    :param whole: each sample has all rows, those that judge too.
    """

    def __init__(self, model: GaussianNNGP, most: int, seed: int, whole: bool = False) -> None:
        X, Y = (part.numpy() for part in model.data)
        self._num_data, self._seed, self.whole = len(X), seed, whole
        self.judges, self.others = split(len(X), seed)
        if whole and len(X) <= _JUDGES:
            self.judges = np.arange(len(X))
        found = contradictions(X, Y, model.order)
        self.certain = found[~np.isin(found, self.judges)][: most // 2]
        """C, rows of every sample: only they show the noise."""

    def draw(self, count: int, number: int) -> np.ndarray:
        """Some of the others but C, other ones for each number; all where there are fewer."""
        rng = np.random.default_rng([self._seed, 1 + number])
        free = np.arange(self._num_data) if self.whole else self.others
        free = np.setdiff1d(free, self.certain)
        return np.sort(rng.choice(free, min(max(count, 0), len(free)), replace=False))

    def sample(self, count: int, number: int) -> tuple[np.ndarray, np.ndarray]:
        """The rows of a round, other ones for each, and the weights of their log densities.

        :param count: B, with C.
        :param number: of the round.
        :return: row numbers [B] and weights [B]: of C one, of the others their share of the rows
            that C leaves.
        """
        N, C = self._num_data, len(self.certain)
        if self.whole:
            return np.arange(N), np.ones(N)
        drawn = self.draw(count - C, number + 1)
        chosen = np.concatenate([self.certain, drawn])
        return chosen, np.where(np.arange(len(chosen)) < C, 1.0, (N - C) / max(1, len(drawn)))


# ---
# Log densities of some rows and their gradients, for L-BFGS.


_BLOCK = 250
"""Most rows of one call: with more, matrices leave the cache; with fewer, calls take the time."""


class RowDensities:
    """Sums of log densities of rows, as functions of a vector of hyperparameters.

    :param model: its log prior density of the Parameters is added.
    :param coordinates: of the Parameters that move.
    :param group: the workers, which share the rows of `near`.
    """

    # The gradient of a block of rows is taken before the next block begins. So memory is one
    # block, and its matrices are still in the cache when the gradient needs them.

    def __init__(
        self,
        model: GaussianNNGP | LabelNNGP,
        coordinates: LogCoordinates,
        compile: bool = True,
        group: Group | None = None,
    ) -> None:
        self.model, self.coordinates, self.compile = model, coordinates, compile
        self.group = group or Group()
        self._near = self._gradients(self._weighted, compile)
        self._prior = self._gradients(model.log_prior_density)

    def near(
        self, rows: np.ndarray, weights: np.ndarray, num_neighbours: int | None = None
    ) -> LogObjective:
        """The likelihood of neighbours, (N2), of weighted rows; of classes left-out labels.

        Each worker searches the neighbours of its rows now, and computes their terms; one message.

        :param rows: row numbers [B].
        :param weights: [B].
        :param num_neighbours: m; by default the model's.
        :return: a function of the vector: nats, and their gradient.
        """
        chosen, shares = _in_blocks(rows, weights, self.group.workers)
        own = self.group.share(len(chosen))
        near = self.group.together(
            lambda: self.model.neighbours_of(chosen[own].ravel(), num_neighbours=num_neighbours)
        )
        near = tf.split(near, len(chosen[own]), axis=1)
        kind = self.model.data[1].dtype
        blocks = {
            number: (tf.constant(chosen[number], tf.int32), part, tf.constant(shares[number], kind))
            for number, part in zip(np.arange(len(chosen))[own], near)
        }

        def sums_of(numbers: np.ndarray) -> list[np.ndarray]:
            return [np.stack([_flat(self._near(*blocks[number])) for number in numbers])]

        def terms() -> list[Evaluated]:
            (sums,) = self.group.over_rows(sums_of, np.arange(len(chosen)))
            return [self._evaluated(part) for part in (np.sum(sums, axis=0), _flat(self._prior()))]

        return LogObjective(self.coordinates, terms, self.group)

    def exact(self, rows: np.ndarray, weight: float) -> LogObjective:
        """The exact log density of some rows, as if there were no others.

        :param rows: row numbers [B].
        :param weight: of their density.
        :return: a function of the vector: nats, and their gradient.
        """
        density = self._gradients(
            lambda: weight * self.model.exact_log_likelihood(rows), self.compile
        )
        return LogObjective(self.coordinates, lambda: [density(), self._prior()], self.group)

    def _gradients(
        self, density: Callable[..., tf.Tensor], compile: bool = False
    ) -> Callable[..., Evaluated]:
        return with_gradients(density, self.coordinates, compile=compile, group=self.group)

    def _weighted(self, rows: tf.Tensor, near: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(weights * self.model.log_likelihood(rows, near))

    def _evaluated(self, sums: np.ndarray) -> Evaluated:
        variables = self.coordinates.variables
        ends = 1 + np.cumsum([int(np.prod(one.shape)) for one in variables])
        value, *parts = np.split(sums, [1, *ends[:-1]])
        gradients = [
            tf.constant(part.reshape(one.shape), one.dtype) for part, one in zip(parts, variables)
        ]
        return [tf.constant(value[0]), *gradients]


def _in_blocks(
    rows: np.ndarray, weights: np.ndarray, workers: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rows and weights [B] in blocks of equal size, [n, size] each: as many for each worker."""
    # The last block is filled up with rows of weight zero, so that one graph serves all.
    number = workers * -(-len(rows) // (_BLOCK * workers))
    size = -(-len(rows) // number)
    number = -(-len(rows) // size)
    missing = number * size - len(rows)
    rows = np.concatenate([rows, np.full(missing, rows[0])])
    weights = np.concatenate([weights, np.zeros(missing)])
    return rows.reshape(number, size), weights.reshape(number, size)


def _flat(evaluated: Evaluated) -> np.ndarray:
    return np.concatenate([np.asarray(part, np.float64).ravel() for part in evaluated])


# ---


# A few thousand random rows tell as much of a few dozen hyperparameters as all rows do, so the
# cost of learning does not depend on N. Three dangers decide the schedule:
#
# 1. Neighbours are found in inputs divided by the lengthscales; before these are known, they are
#    random rows. So the first climb needs none: it is on the exact density of a few hundred rows.
# 2. A small sample may hold no rows that contradict each other, which alone show the noise. So
#    such rows are in each sample, and the rest are drawn afresh in each round, many with few
#    neighbours rather than few with many.
# 3. A round may end at hyperparameters that predict badly. So it is undone where it lowers the
#    leave-one-out score of rows that no round has seen, beyond chance.
#
# Where one sample holds all rows, none of them is a danger: rounds are then plain L-BFGS on the
# likelihood of all neighbours, each to convergence.


FIRST_ROWS, FIRST_ROWS_OF_INPUT, MOST_FIRST_ROWS = 500, 32, 1000
"""Rows of the first climb, at least, for each input, and at most: B^3 / 3 an evaluation, one to
four seconds for all forty. With few inputs 1,000 rows found nothing better. With 32, of which 28
are irrelevant, 500 rows fit some of these: the scores of three seeds were -0.05, 0.02 and 0.00, of
1,000 rows 0.05, 0.08 and 0.05."""
FIRST_EVALUATIONS = 40
MANY_ROWS = 100_000
"""From here on a round from the given values competes with that climb, since few rows are blind to
what near ones share. Flights to the same airport are alike: 1,000 rows make them noise, and the
test RMSE with Matern 1/2 was 0.78, from the given values 0.63."""
_OTHER = 99
"""The number of that round, which draws rows of its own."""
ROWS, EVALUATIONS = 6000, 25
"""Of the first round. With 2,000 rows the noise learned on one set ranged from 8e-4 to 4e-2 over
five rounds. Neighbours belong to the lengthscales at the start of a round: it must not be long."""
LATER = 2
"""Rows of later rounds, in units of the first: that one finds the lengthscales, which more rows
then make precise. 6,000 and 12,000 did better than three times 6,000 in the same time."""
ALL_EVALUATIONS, ALL_SETTLED = 200, 1e-6
"""Of a round on all rows, and nats per row at which it has converged."""
FINE_ROWS, FINE_EVALUATIONS, FINE_NEIGHBOURS = 3000, 20, 2
"""Of a round with twice the neighbours, for smooth data with little noise."""
UNCERTAIN, MORE_JUDGES = 0.05, 2000
"""Above this standard error of the log spread, calibration looks at this many more rows."""
# Gaussian errors leave 0.045; heavy tails on diamonds left 0.14, and intervals too narrow.
JUDGING_NEIGHBOURS = 128
"""Most neighbours of a judging row. With 256 a judgement took two seconds, five times in a run."""
_NONE = -1e9
"""Stands for a score where there is none yet."""

Show = Callable[[str], object]
_How = tuple[float, Show | None, float]
"""Deadline, what shows a line, and shift of a climb."""


class NeighbourRounds:
    """L-BFGS on the likelihood of random rows given their neighbours, in rounds.

        log p(y) ~ sum_{i in C} l_i + (N - |C|) / (B - |C|) sum_{i of B - |C| random rows} l_i
        l_i = log N(y_i; b_i^T y_c(i), tau_i)

    C are rows that contradict others.

    :param model: whose trainable hyperparameters move.
    :param rows: B of the first round; later ones draw twice as many, afresh.
    :param evaluations: of value and gradient in a round.
    :param seed: of the rows.
    :param compile: False runs eagerly.
    :param group: the workers, which share the rows of climbs and judgements.
    :param whole: climb all rows, to convergence, from the better of the first climb and the given
        values by that likelihood; no round is undone, and no variance calibrated.

    Cost of an evaluation: B (m^3 / 3 + m^2 D), independent of N, and one search a round, shared by
    the workers. Example::

        rounds = NeighbourRounds(model)
        rounds.start()
        for number in range(2):  # of 6,000 and 12,000 rows
            print(rounds.run(number).judged.log_density)
        rounds.calibrate()
    """

    def __init__(
        self,
        model: GaussianNNGP,
        rows: int = ROWS,
        evaluations: int = EVALUATIONS,
        seed: int = 0,
        compile: bool = True,
        group: Group | None = None,
        whole: bool = False,
    ) -> None:
        require_model("NeighbourRounds", model, GaussianNNGP)
        check_whole(1, rows=rows, evaluations=evaluations)
        check_whole(0, seed=seed)
        self.model, self.rows, self.evaluations, self.seed = model, rows, evaluations, seed
        self.group, self._pace = group or Group(), Pace()
        self.whole = whole
        self.samples = RowSamples(model, rows, seed, whole)
        self.judges, self.others = self.samples.judges, self.samples.others
        none = np.full(len(self.judges), _NONE)
        self.scores = tf.Variable(none, trainable=False, dtype=tf.float64)
        """Scores of the judging rows after the last round kept; the next must not lower them."""
        self._coordinates = LogCoordinates(model.trainable_parameters)
        self._densities = RowDensities(model, self._coordinates, compile, self.group)

    def __repr__(self) -> str:
        settings = f"rows={self.rows}, evaluations={self.evaluations}, seed={self.seed}"
        return f"{type(self).__name__}({self.model!r}, {settings})"

    def start(
        self, deadline: float = float("inf"), show: Show | None = None, shift: float = 0.0
    ) -> RoundOutcome:
        """Climb the exact log density of a few hundred rows, which needs no neighbours.

        Undone unless its score, or the likelihood of all rows, is better than at the given values.
        Arguments as `run`.

        :return: the outcome, in nats of all rows. An interrupt ends the climb with its best point.
        """
        self.scores.assign(self.judge().scores)
        before, value = self._coordinates.numbers(), self._value()
        wanted = FIRST_ROWS_OF_INPUT * int(self.model.data[0].shape[1])
        chosen = self.samples.draw(min(max(FIRST_ROWS, wanted), MOST_FIRST_ROWS), 0)
        if len(chosen) == 0:  # all rows contradict others
            chosen = self.samples.certain
        if self.whole and self._num_data <= MOST_FIRST_ROWS:
            chosen = np.arange(self._num_data)
        climbed = climb_logarithms(
            self._densities.exact(chosen, self._num_data / len(chosen)),
            self._coordinates,
            self._num_data,
            evaluations=FIRST_EVALUATIONS,
            deadline=deadline - self._pace.of_judgements,
            show=show,
            name=f"L-BFGS on {len(chosen)} rows",
            shift=shift,
            keep=self._keeps,
            group=self.group,
        )
        shorten(self.model.kernel, self.model.data[0])
        judged = self.judge()
        kept = self._value() > value if self.whole else judged.score > self.best
        if not kept:
            self._coordinates.restore(before)
        outcome = RoundOutcome(climbed, judged, kept)
        is_over = self._num_data < MANY_ROWS or climbed.reason == INTERRUPTED
        if is_over or self.group.is_over(deadline - self._pace.of_judgements):
            return outcome
        return self._better_start(outcome, before, (deadline, show, shift))

    def _better_start(
        self, outcome: RoundOutcome, given: list[np.ndarray], how: _How
    ) -> RoundOutcome:
        """The outcome of a first climb, or of a round from the given values if that is better."""
        after = self._coordinates.numbers()
        best = outcome.judged.score if outcome.kept else self.best
        self._coordinates.restore(given)
        size = self.rows, self.model.num_neighbours, self.evaluations
        climbed = self._climb(_OTHER, size, "a round from the given values", how)
        judged = self.judge()
        if judged.score > best:
            return RoundOutcome(climbed, judged, True)
        self._coordinates.restore(after)
        return outcome._replace(climbed=climbed) if climbed.reason == INTERRUPTED else outcome

    def run(
        self,
        number: int,
        deadline: float = float("inf"),
        show: Show | None = None,
        fine: bool = False,
        shift: float = 0.0,
    ) -> RoundOutcome:
        """Draw rows, find their neighbours at the present kernel, climb, and judge.

        A round that is worse than the last one beyond chance is undone.

        :param number: of the round, 0, 1, ...
        :param deadline: a value of `time.perf_counter`: iterations end in time for the judgement.
        :param show: shows a line before the search and after each iteration.
        :param fine: take fewer rows and twice the neighbours.
        :param shift: nats by which shown values are less, for data in other units.
        :return: the outcome. An interrupt ends the climb with its best point.
        """
        count = self.rows if number == 0 else LATER * self.rows
        evaluations, neighbours = self.evaluations, self.model.num_neighbours
        if self.whole:
            evaluations = ALL_EVALUATIONS
        if fine:
            count, evaluations = min(count, FINE_ROWS), min(evaluations, FINE_EVALUATIONS)
            neighbours *= FINE_NEIGHBOURS
        before, start = self._coordinates.numbers(), self._coordinates.pack()
        size = count, neighbours, evaluations
        climbed = self._climb(number, size, f"round {number + 1}", (deadline, show, shift))
        points = [climbed.x]
        if number > 0 and climbed.reason != INTERRUPTED and not self.whole:
            points.append(0.5 * (start + climbed.x))
        judged = self._move_to_best(points)
        kept = self.whole or not judged.is_worse(self.scores.numpy())
        if kept:
            self.scores.assign(judged.scores)
        else:
            self._coordinates.restore(before)
        return RoundOutcome(climbed, judged, kept)

    def _climb(self, number: int, size: tuple[int, int, int], name: str, how: _How) -> LBFGSRun:
        """Climb on random rows given their neighbours; `size`: rows, neighbours, evaluations."""
        (count, neighbours, evaluations), (deadline, show, shift) = size, how
        chosen, weights = self.samples.sample(count, number)
        if show is not None:
            show(f"neighbours of {name}, {len(chosen)} rows among {self._num_data}")
        began = time.perf_counter()
        objective = self._densities.near(chosen, weights, neighbours)
        found = time.perf_counter()
        climbed = climb_logarithms(
            objective,
            self._coordinates,
            self._num_data,
            evaluations=evaluations,
            rise=np.inf
            if self.same_neighbours
            else most_rises(self.model.kernel, self._coordinates),
            tolerance=ALL_SETTLED if self.whole else SETTLED,
            deadline=deadline - self._pace.of_judgements,
            show=show,
            name=f"L-BFGS on {name}, {len(chosen)} rows",
            shift=shift,
            keep=self._keeps,
            group=self.group,
        )
        seconds = time.perf_counter() - found
        self._pace.climbed(len(chosen), found - began, seconds, climbed.evaluations)
        return climbed

    def judge(self, local: bool = False) -> Judged:
        """Predict the judging rows from the others; cost as `GaussianNNGP.leave_one_out`.

        :param local: with the model's local spread.
        """
        neighbours = min(JUDGING_NEIGHBOURS, self.model.prediction_neighbours)
        with self._pace.judging():
            return self._judged(self.judges, neighbours, local)

    @property
    def seconds_of_calibration(self) -> float:
        """An estimate from the last judgement; zero before it."""
        predicting = self.model.prediction_neighbours
        return self._pace.of_calibration(predicting / min(JUDGING_NEIGHBOURS, predicting))

    def has_time(self, deadline: float) -> bool:
        """True if another round would move anything before a value of `time.perf_counter`."""
        rows = min(LATER * self.rows, self._num_data)
        return not self.group.is_over(deadline - self._pace.of_round(rows))

    @property
    def best(self) -> float:
        """The mean of `scores`, in nats."""
        return float(np.mean(self.scores.numpy()))

    @property
    def draws_fresh_rows(self) -> bool:
        """True if a further round sees other rows than the last one."""
        return len(self.others) > self.rows

    @property
    def same_neighbours(self) -> bool:
        """True if each row is given all earlier ones, whatever the lengthscales."""
        return self.model.num_neighbours >= self._num_data - 1

    def _value(self) -> float:
        """The likelihood of all rows given their neighbours at the present kernel, with priors, in
        nats; NaN where rows are sampled.
        """
        if not self.whole:
            return np.nan
        return self._densities.near(*self.samples.sample(0, 0))(self._coordinates.pack())[0]

    def calibrate(self, deadline: float = float("inf")) -> Calibration:
        """Multiply variances of kernel and noise by the spread of the leave-one-out errors.

        Means do not move (Allison et al. 2023): see `calibration`, also for when it is skipped.
        `trust_duplicates` may raise the noise first.

        :param deadline: a value of `time.perf_counter` after which no further rows are judged.
        :return: the judgement before, and whether anything was changed.
        """
        if not self.whole:
            trust_duplicates(self.model)
        began = time.perf_counter()
        judged = self._judged(self.judges, local=True)
        seconds = (time.perf_counter() - began) * MORE_JUDGES / len(self.judges)
        unsure = judged.error > UNCERTAIN and self._calibrates
        if unsure and not self.group.is_over(deadline - seconds):
            count = min(MORE_JUDGES, len(self.others))
            more = np.random.default_rng([self.seed, 0]).choice(self.others, count, replace=False)
            judged = self._judged(np.union1d(self.judges, more), local=True)
        if self.whole and self.model.spread_neighbours is None:
            return Calibration(judged, False)  # the variances are the most likely ones
        return calibrate(self.model, judged)

    def _judged(
        self, rows: np.ndarray, num_neighbours: int | None = None, local: bool = False
    ) -> Judged:
        return judge(self.model, rows, self._calibrates, num_neighbours, self.group, local)

    def _move_to_best(self, points: Sequence[np.ndarray]) -> Judged:
        found = []
        for x in points:
            self._coordinates.assign(x)
            found.append(self.judge())
        best = max(range(len(points)), key=lambda k: found[k].score)
        self._coordinates.assign(points[best])
        return found[best]

    @property
    def _keeps(self) -> bool:
        """True if an interrupt keeps the best point; several workers would wait for each other."""
        return self.group.workers == 1

    @property
    def _calibrates(self) -> bool:
        """True if `calibrate` can change variances; else scores use the variances found."""
        return self.model.spread_neighbours is not None or scales_of(self.model) is not None

    @property
    def _num_data(self) -> int:
        return int(self.model.data[0].shape[0])
