"""Hyperparameters of a nearest-neighbour GP by L-BFGS on the likelihood of random rows.

The log likelihood of neighbours is a sum over rows, and a few thousand random ones tell as much of
a few dozen hyperparameters as all do. So the cost of learning does not depend on N. Three things go
wrong without care, and decide the schedule:

1. Neighbours are found in inputs divided by the lengthscales. Before lengthscales are known, and
   with many irrelevant inputs, they are random rows. The first climb therefore needs none: it is on
   the exact log density of a few hundred rows.
2. Rows that contradict each other are what tells of noise, and a small sample may hold none. So
   rows whose inputs stand earlier with another output belong to each sample, and the rest are
   drawn afresh in each round, many with few neighbours rather than few with many.
3. A round may still end at hyperparameters that predict badly. So it must raise the leave-one-out
   score of rows that no round has seen, or it is undone.
"""

from __future__ import annotations

__all__ = ["Calibration", "Judged", "NeighbourRounds", "RoundOutcome", "contradictions"]

from collections.abc import Callable
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel, Linear, Polynomial, Product, Static, Stationary, Sum

from ..compilation import Compiled
from ..inputs import check_whole
from ..lbfgs import LBFGSRun
from ..models import NNGP
from .data_mean.hyperparameters import climb

FIRST_ROWS = 500
"""Rows of the first climb, B^3 / 3 an evaluation: a second of one core for forty evaluations. With
1,000 rows it took three seconds more, and found nothing better on the sets tried."""
FIRST_EVALUATIONS = 40
ROWS, EVALUATIONS = 6000, 25
"""Of a round. With 2,000 rows the noise learned on one set ranged from 8e-4 to 4e-2 over five
rounds. Neighbours belong to the lengthscales at the start of a round: it must not be long."""
FINE_ROWS, FINE_EVALUATIONS, FINE_NEIGHBOURS = 3000, 20, 2
"""Of a round with twice the neighbours, for smooth data with little noise: see `wants_fine`."""
JUDGES = 1000
"""Rows whose leave-one-out score judges each round, the same rows for all."""
_BLOCK = 500
"""Rows of one call: all of 2,000 at once took a fifth longer than blocks, and 50 an eighth."""
_CONTRADICTIONS = 500
"""At most so many rows that contradict others are in each sample. On a set with 66 among 41,000,
without them the noise ended anywhere between 1e-3 and 2e-2."""
_LONGEST = 2.0
"""Largest log lengthscale after the first climb, in units of sqrt(D) standard deviations. Few rows
may call an input irrelevant that is not, and from far away the gradient does not lead back."""
_TOO_WIDE = 0.8
"""Mean squared standardised error below which more neighbours would sharpen the variances."""
_CERTAIN = 2.0
"""Standard errors by which the spread must differ from 1 to be corrected."""

Show = Callable[[str], object]


class Judged(NamedTuple):
    """Leave-one-out predictions of the judging rows, at the number of neighbours of predictions.

    Example::

        print(NeighbourRounds(model).judge().log_density)
    """

    log_density: float
    """Mean, in nats."""
    spread: float
    """Mean squared standardised error: above 1 where intervals are too narrow."""
    error: float
    """Standard error of log(spread)."""

    @property
    def calibrated(self) -> float:
        """The mean log density in nats once variances are multiplied by the spread."""
        return self.log_density + 0.5 * (self.spread - 1.0 - float(np.log(self.spread)))


class Calibration(NamedTuple):
    """The end of `NeighbourRounds.calibrate`.

    Example::

        print(NeighbourRounds(model).calibrate().done)
    """

    judged: Judged
    """Before it."""
    done: bool
    """Whether the variances were changed."""


class RoundOutcome(NamedTuple):
    """The end of a round.

    Example::

        outcome = NeighbourRounds(model).run(0)
        print(outcome.judged, outcome.kept)
    """

    climbed: LBFGSRun
    """The climb; its values are estimates of the log likelihood of all rows, in nats."""
    judged: Judged
    """At the hyperparameters that the climb found."""
    kept: bool
    """False if an earlier round had a better score, so that this one was undone."""


class NeighbourRounds:
    """L-BFGS on the likelihood of random rows given their neighbours, (N2), in rounds.

        log p(y) ~ sum_{i in C} l_i + (N - |C|) / (B - |C|) sum_{i of B - |C| random rows} l_i
        l_i = log N(y_i; b_i^T y_c(i), tau_i)

    C are rows that contradict others, see above. The estimate is unbiased, but for the judging
    rows, which the others stand for.

    :param model: the model, whose trainable hyperparameters move.
    :param rows: B, fresh in each round; all but the judging rows where there are fewer.
    :param evaluations: of value and gradient in a round.
    :param seed: of the rows.
    :param compile: False evaluates eagerly.
    :raises DataError: for numbers that count nothing.

    Cost of an evaluation: B (m^3 / 3 + m^2 D), whatever N is, and one search a round. Example::

        rounds = NeighbourRounds(model)
        rounds.start()
        for number in range(2):
            print(rounds.run(number).judged.log_density)
        rounds.calibrate()
    """

    def __init__(
        self,
        model: NNGP,
        rows: int = ROWS,
        evaluations: int = EVALUATIONS,
        seed: int = 0,
        compile: bool = True,
    ) -> None:
        check_whole(1, rows=rows, evaluations=evaluations)
        check_whole(0, seed=seed)
        self.model, self.rows, self.evaluations, self.seed = model, rows, evaluations, seed
        N = int(model.data[0].shape[0])
        shuffled = np.random.default_rng([seed, 0]).permutation(N)
        judges = min(JUDGES, max(1, N // 5))
        self.judges, self.others = np.sort(shuffled[:judges]), shuffled[judges:]
        if len(self.others) == 0:  # a single row
            self.others = self.judges
        X, Y = (part.numpy() for part in model.data)
        found = contradictions(X, Y, model.order)
        self.certain = found[~np.isin(found, self.judges)][: rows // 2]
        """C, rows of every sample."""
        self.best = tf.Variable(-np.inf, trainable=False, dtype=tf.float64)
        """The best score so far, which the present hyperparameters have."""
        self.compile = compile
        self._terms: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] = model.log_likelihood
        if compile:
            self._terms = Compiled(model.log_likelihood)

    def __repr__(self) -> str:
        """One line, with the settings."""
        settings = f"rows={self.rows}, evaluations={self.evaluations}, seed={self.seed}"
        return f"{type(self).__name__}({self.model!r}, {settings})"

    def start(self, deadline: float = float("inf"), show: Show | None = None) -> RoundOutcome:
        """Climb the exact log density of a few hundred rows, which needs no neighbours.

        :param deadline: a value of `time.perf_counter` after which no iteration begins.
        :param show: shows a line after each iteration.
        :return: the outcome, in nats of all rows. An interrupt ends the climb with its best point.
        :raises NumericalError: if the density is not finite at the start.
        """
        self.best.assign(self.score(self.judge()))  # values may be good, of an earlier run say
        chosen = self._draw(FIRST_ROWS, 0)
        share = int(self.model.data[0].shape[0]) / len(chosen)

        def objective() -> tf.Tensor:
            return share * self.model.exact_log_likelihood(chosen)

        return self._judged_climb(
            Compiled(objective) if self.compile else objective,
            FIRST_EVALUATIONS,
            f"{len(chosen)} rows",
            deadline,
            show,
            after=lambda: _shorten(self.model.kernel, self.model.data[0]),
        )

    def run(
        self,
        number: int,
        deadline: float = float("inf"),
        show: Show | None = None,
        fine: bool = False,
    ) -> RoundOutcome:
        """Draw rows, find their neighbours at the present kernel, climb, and judge.

        :param number: of the round, 0, 1, ..., from which the rows follow.
        :param deadline: a value of `time.perf_counter` after which no iteration begins.
        :param show: shows a line after each iteration.
        :param fine: take half the rows and twice the neighbours, see `wants_fine`.
        :return: the outcome. An interrupt ends the climb with its best point.
        :raises NumericalError: if the likelihood is not finite at the start.
        """
        count, evaluations = self.rows, self.evaluations
        neighbours = self.model.num_neighbours
        if fine:
            count, evaluations = min(count, FINE_ROWS), min(evaluations, FINE_EVALUATIONS)
            neighbours *= FINE_NEIGHBOURS
        drawn = self._draw(count - len(self.certain), number + 1)
        chosen = np.concatenate([self.certain, drawn])
        near = self.model.neighbours_of(chosen, num_neighbours=neighbours)
        N, C = int(self.model.data[0].shape[0]), len(self.certain)
        weights = np.where(np.arange(len(chosen)) < C, 1.0, (N - C) / max(1, len(drawn)))
        weights = weights.astype(self.model.data[1].dtype.as_numpy_dtype)
        starts = range(0, len(chosen), _BLOCK)
        blocks = [
            (
                tf.constant(chosen[k : k + _BLOCK], tf.int32),
                near[:, k : k + _BLOCK],
                tf.constant(weights[k : k + _BLOCK]),
            )
            for k in starts
        ]

        def objective() -> tf.Tensor:
            return tf.add_n(
                [tf.reduce_sum(w * self._terms(rows, near)) for rows, near, w in blocks]
            )

        return self._judged_climb(
            objective,
            evaluations,
            f"round {number + 1}, {len(chosen)} rows",
            deadline,
            show,
        )

    def judge(self) -> Judged:
        """Predict the judging rows from the others; cost as `NNGP.leave_one_out`."""
        found = self.model.leave_one_out(self.judges)
        Y = tf.gather(self.model.data[1], self.judges).numpy()
        squares = np.square(Y - found.mean) / found.variance
        squares = squares[np.isfinite(squares)]
        tiny = np.finfo(float).tiny
        spread = max(float(np.mean(squares)), float(tiny)) if squares.size else 1.0
        error = float(np.std(squares) / (spread * np.sqrt(max(1, squares.size))))
        return Judged(float(np.mean(found.log_density)), spread, error)

    def score(self, judged: Judged) -> float:
        """The log density in nats by which rounds are compared; minus infinity if it is not finite.

        :param judged: of a round. It counts as calibrated where `calibrate` can do that.
        """
        value = judged.log_density if self._scales() is None else judged.calibrated
        return value if np.isfinite(value) else -np.inf

    @property
    def draws_fresh_rows(self) -> bool:
        """Whether a further round sees other rows than the last one."""
        return len(self.others) > self.rows

    @staticmethod
    def wants_fine(spread: float) -> bool:
        """Whether variances are so wide that a round with more neighbours pays."""
        return spread < _TOO_WIDE

    def calibrate(self) -> Calibration:
        """Multiply variances of kernel and noise by the spread of the leave-one-out errors.

        Predictive variances are then right on average, and means do not move (Allison et al. 2023).
        Left out where the spread is 1 within two standard errors, or the kernel or noise has no
        trainable variance of its own.

        :return: the judgement before, and whether anything was changed.
        """
        judged, scales = self.judge(), self._scales()
        wrong = abs(np.log(judged.spread)) > _CERTAIN * judged.error
        if scales is None or not wrong:
            return Calibration(judged, False)
        likelihood = self.model.likelihood
        least = 1.01 * float(likelihood.variance_lower_bound)
        for one in scales:
            value = one.numpy() * judged.spread
            one.assign(np.maximum(value, least) if one is likelihood.variance else value)
        return Calibration(judged, True)

    def _scales(self) -> list[gpflow.Parameter] | None:
        """The trainable variances of kernel and noise; None where they do not scale both."""
        noise = self.model.likelihood.variance
        if not isinstance(noise, gpflow.Parameter) or int(tf.size(noise)) != 1:
            return None
        variances = _variances_of(self.model.kernel)
        every = [noise, *(variances or [])]
        if variances is None or not all(one.trainable for one in every):
            return None
        return list({id(one): one for one in every}.values())  # parts may share a variance

    def _draw(self, count: int, number: int) -> np.ndarray:
        """Row numbers, other ones for each `number`, without judging and contradicting rows."""
        rng = np.random.default_rng([self.seed, 1 + number])
        free = np.setdiff1d(self.others, self.certain)
        return np.sort(rng.choice(free, min(max(count, 0), len(free)), replace=False))

    def _judged_climb(
        self,
        objective: Callable[[], tf.Tensor],
        evaluations: int,
        name: str,
        deadline: float,
        show: Show | None,
        after: Callable[[], None] = lambda: None,
    ) -> RoundOutcome:
        """Climb; undo it if the score of the judging rows is not better than ever."""
        variables = self.model.trainable_variables
        before = [variable.numpy() for variable in variables]
        climbed = climb(
            self.model,
            variables,
            objective,
            evaluations=evaluations,
            deadline=deadline,
            keep=True,
            show=show,
            name=f"L-BFGS on {name}",
        )
        after()
        judged = self.judge()
        score = self.score(judged)
        kept = score > float(self.best)
        if kept:
            self.best.assign(score)
        else:
            for variable, value in zip(variables, before):
                variable.assign(value)
        return RoundOutcome(climbed, judged, kept)


def contradictions(X: np.ndarray, Y: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The rows whose inputs stand earlier in an order with another output.

    :param X: inputs [N, D].
    :param Y: outputs [N, P], NaN where missing.
    :param order: row numbers [N].
    :return: row numbers, at most 500, those with the largest differences first. Cost: N log N.
    """
    _, group = np.unique(X, axis=0, return_inverse=True)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    by_group = np.lexsort([rank, np.ravel(group)])
    same = np.ravel(group)[by_group[1:]] == np.ravel(group)[by_group[:-1]]
    differences = np.abs(Y[by_group[1:]] - Y[by_group[:-1]])
    largest = np.max(np.nan_to_num(differences), axis=1, initial=0.0)
    found = np.flatnonzero(same & (largest > 0.0))
    found = found[np.argsort(-largest[found], kind="stable")]
    return by_group[1:][found[:_CONTRADICTIONS]]


def _shorten(kernel: Kernel, X: tf.Tensor) -> None:
    """Bound the trainable lengthscales from above, in units of the spread of X [N, D]."""
    for one in (part for part in kernel.submodules if isinstance(part, Stationary)):
        if not one.lengthscales.trainable:
            continue
        columns, _ = one.slice(X, None)
        spread = np.std(columns.numpy(), axis=0)
        longest = np.exp(_LONGEST) * np.sqrt(columns.shape[1]) * np.where(spread > 0, spread, 1.0)
        longest = longest if one.ard else np.max(longest)
        one.lengthscales.assign(np.minimum(one.lengthscales.numpy(), longest))


def _variances_of(kernel: Kernel) -> list[gpflow.Parameter] | None:
    """The variances that scale the whole kernel when multiplied; None if there are none."""
    if isinstance(kernel, Sum):
        parts = [_variances_of(one) for one in kernel.kernels]
        return None if None in parts else [one for part in parts for one in part or ()]
    if isinstance(kernel, Product):
        parts = [_variances_of(one) for one in kernel.kernels]
        return next((part for part in parts if part is not None), None)
    # the variance of a Polynomial is inside of its power
    scaled = isinstance(kernel, (Stationary, Static, Linear)) and not isinstance(kernel, Polynomial)
    return [kernel.variance] if scaled else None
