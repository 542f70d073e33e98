"""The choice of a kernel by leave-one-out scores."""

from __future__ import annotations

__all__ = [
    "AUTO", "CANDIDATES", "KernelChoice", "PREDICTION_NEIGHBOURS", "SPREAD_NEIGHBOURS",
    "choose_kernel", "choose_label_kernel", "date_places", "with_seasons",
]  # fmt: skip

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import gpflow
import numpy as np
import numpy.typing as npt
from gpflow.kernels import Kernel, Matern12, Matern32, Matern52, SquaredExponential
from gpflow.likelihoods import Likelihood
from tqdm.auto import tqdm

from ..covariances.mixed import code_columns, kernel_of
from ..inputs import check_rate
from ..models.neighbours import GaussianNNGP
from ..optimizers.neighbours import NeighbourRounds
from ..optimizers.neighbours.judgement import CERTAIN
from ..training import NormalScores
from ..training.columns import Column
from ..training.tables import Season
from .label_runs import LabelRun, LabelRuns, started

# ---
# The default kernel of dates with seasons.


_SLOW = 10.0
"""Standard deviations of a date in which its season changes, at the start."""
_TREND, _SIZE = 3.0, 10.0
"""The same of its trend, and the trend's variance. On CO2 until 1990 a trend beside deviations had
36 nats more evidence than one function for both."""


def date_places(columns: Sequence[Column]) -> list[int]:
    """The column of X of the date of each season, in their order."""
    places, first = dict[object, int](), 0
    for column in columns:
        if column.kind == "date":
            places[column.name] = first
        first += len(column.names)
    return [places[c.name] for c in columns if isinstance(c, Season) and c.kind == "cosine"]


def with_seasons(kernel: Kernel, dates: Sequence[int], spread: np.ndarray) -> Kernel:
    """Add to a kernel of the first columns a smooth trend of each date, and its seasons.

    :param kernel: with a lengthscale for each of the D columns before the seasons' columns; perhaps
        over categories.
    :param dates: columns of the dates; the waves of the first are D and D + 1, and so on.
    :param spread: standard deviations [D] of the first columns, in units of X.
    """
    plain = len(spread)
    codes = code_columns(kernel)
    kernel = kernel_of(Matern52, kernel.lengthscales.numpy(), codes, active_dims=range(plain))
    parts: list[Kernel] = [kernel]
    parts += [
        SquaredExponential(_SIZE, _TREND * spread[place], active_dims=[place])
        for place in sorted(set(dates))
    ]
    for number, place in enumerate(dates):
        first = plain + 2 * number
        slow = Matern52(lengthscales=_SLOW * spread[place], active_dims=[place])
        gpflow.set_trainable(slow.variance, False)
        parts.append(Matern52(active_dims=[first, first + 1]) * slow)
    return gpflow.kernels.Sum(parts)


# ---


AUTO = "auto"
CANDIDATES: Mapping[str, type[Kernel]] = {
    "Matern 5/2": Matern52,
    "Matern 1/2": Matern12,
    "squared exponential": SquaredExponential,
    "Matern 3/2": Matern32,
}
"""In the order in which they are tried. On twelve regressions sums of a rough and a smooth kernel
were no better, and a rational quadratic by 0.005 nats at most."""
_ROUGH_FIRST = ("Matern 1/2", "Matern 3/2", "Matern 5/2", "squared exponential")
NORMAL_SCORES = "the same of normal scores"
"""The best of them on inputs that are replaced by their ranks."""
_ROWS, _EVALUATIONS, _NEIGHBOURS = 2000, 20, 30
_JUDGING_NEIGHBOURS = 64
"""Of the short run of each kernel, some five processor seconds. Few rows and neighbours are for
speed: close scores may change places in a longer run."""
PREDICTION_NEIGHBOURS, MOST_PREDICTION_NEIGHBOURS = 256, 400
"""A prediction is made once and can afford more neighbours than learning. The second number, four
times as slow, is for data of which more rows tell more."""
SPREAD_NEIGHBOURS = 64
"""The nearest rows that tell how large errors are there, see `NNGP`."""
_OTHER_SPREADS = (16, 128)
_TELLS_MORE = 0.05
"""Nats a row that twice the neighbours of judging must gain for that. On kin40k they gain 0.2, and
0.01 at most on most other sets; 400 in place of 256 lower its RMSE from 0.078 to 0.070."""
_NO_NOISE = 0.0
"""Of labels and counts."""
_LONGEST = 50.0
"""Lengthscale over range of a column, of the kernel that is handed on."""


@dataclass(frozen=True)
class KernelChoice:
    """The kernel of the best score, with the hyperparameters of its short run."""

    name: str
    kernel: Kernel
    noise_variance: float
    scores: Mapping[str, float]
    """Mean leave-one-out log density of 1,000 rows in nats, by candidate."""
    normal_scores: bool = False
    """True for a kernel of inputs by their ranks, see `training.NormalScores`."""
    prediction_neighbours: int = PREDICTION_NEIGHBOURS
    """400 where twice the neighbours clearly predict better, else 256."""
    spread_neighbours: int = SPREAD_NEIGHBOURS
    """Of 16, 64 and, for as many neighbours, 128: the best by score."""

    def __str__(self) -> str:
        scores = ", ".join(f"{name} {score:.3f}" for name, score in self.scores.items())
        inputs = " of inputs by their ranks" if self.normal_scores else ""
        return (
            f"kernel {self.name}{inputs}, the roughest of those that score alike by leave-one-out"
            f" log density in nats ({scores});"
        )


_Run = TypeVar("_Run", NeighbourRounds, LabelRun)


def choose_kernel(
    X: np.ndarray,
    Y: np.ndarray,
    *,
    seed: int = 0,
    seconds: float | None = None,
    fixed: npt.ArrayLike = False,
    categories: Sequence[int] = (),
    progress: bool = False,
) -> KernelChoice:
    """Train a nearest-neighbour GP with each kernel for a few seconds, and compare their scores.

    The best kernel is then tried on the normal scores of the inputs.

    :param X: standardised inputs [N, D].
    :param Y: standardised observations [N, P].
    :param seconds: limit, after which no candidate and no iteration begins.
    :param fixed: [D], true for columns that normal scores leave alone.
    :param categories: columns of codes.
    :return: the choice. Cost: five short runs of `NeighbourRounds`, independent of N.
    """
    found, kept, best = _compared(
        lambda kind, inputs, deadline: _short_run(kind, (inputs, Y), categories, seed, deadline),
        X,
        seconds,
        fixed,
        progress,
    )
    model = found[best].model
    return KernelChoice(
        kept,
        _in_sight(model),
        _above_floor(model.likelihood),
        {name: rounds.best for name, rounds in found.items()},
        best == NORMAL_SCORES,
        *_numbers_of_neighbours(found[best]),
    )


def choose_label_kernel(
    X: np.ndarray,
    Y: np.ndarray,
    likelihood: Likelihood,
    *,
    seed: int = 0,
    seconds: float | None = None,
    fixed: npt.ArrayLike = False,
    categories: Sequence[int] = (),
    progress: bool = False,
) -> KernelChoice:
    """Compare kernels as `choose_kernel` does, for labels and counts: see `LabelRuns`.

    :param Y: [N, P], or labels of classes [N, 1].
    :param likelihood: of one latent function for each output or class.
    :return: the choice.

    Other parameters, errors and cost as in `choose_kernel`.
    """
    runs = LabelRuns(Y, likelihood, seed, categories)
    found, kept, best = _compared(runs.run, X, seconds, fixed, progress)
    scores = {name: run.best for name, run in found.items()}
    # least squares calls inputs irrelevant that tell classes apart, and from far away no climb
    # leads back: on letter its lengthscales led to a log loss of 0.178, the usual ones to 0.121
    kernel = started(CANDIDATES[kept], X, runs.targets, seed, categories)
    return KernelChoice(kept, kernel, _NO_NOISE, scores, best == NORMAL_SCORES)


def _compared(
    run: Callable[[type[Kernel], np.ndarray, float], _Run],
    X: np.ndarray,
    seconds: float | None,
    fixed: npt.ArrayLike,
    progress: bool,
) -> tuple[dict[str, _Run], str, str]:
    """Run the candidates, and the kept one on normal scores of X [N, D], within the limit."""
    # returns the runs by name, the name of the kernel, and the name of its run.
    if seconds is not None:
        check_rate(seconds=seconds)
    deadline = float("inf") if seconds is None else time.perf_counter() + seconds
    found: dict[str, _Run] = {}

    def try_one(name: str, kind: type[Kernel], inputs: np.ndarray) -> None:
        if not found or time.perf_counter() < deadline:
            found[name] = run(kind, inputs, deadline)

    line = tqdm(CANDIDATES.items(), desc="comparing kernels", disable=not progress, leave=False)
    for name, kind in line:
        try_one(name, kind, X)
    kept = _roughest(found)
    if not np.all(fixed):
        ranked = NormalScores(X, "X", fixed).transform(X).numpy()
        try_one(NORMAL_SCORES, CANDIDATES[kept], ranked)
    ranks = found.get(NORMAL_SCORES)
    best = NORMAL_SCORES if ranks is not None and ranks.best > found[kept].best else kept
    return found, kept, best


def _short_run(
    kind: type[Kernel],
    data: tuple[np.ndarray, np.ndarray],
    categories: Sequence[int],
    seed: int,
    deadline: float,
) -> NeighbourRounds:
    model = GaussianNNGP(
        data,
        started(kind, *data, seed, categories),
        gpflow.likelihoods.Gaussian(0.1),
        num_neighbours=_NEIGHBOURS,
        prediction_neighbours=_JUDGING_NEIGHBOURS,
        spread_neighbours=SPREAD_NEIGHBOURS,
    )
    rounds = NeighbourRounds(model, rows=_ROWS, evaluations=_EVALUATIONS, seed=seed)
    rounds.start(deadline)
    rounds.run(0, deadline)
    return rounds


def _roughest(found: Mapping[str, _Run]) -> str:
    """The roughest kernel whose score is at most two standard errors below the best one."""
    # Among kernels that score alike, a rough one has the safer intervals: on protein, Matern 1/2
    # and 3/2 score alike after short runs, and after long ones 1/2 gains 0.05 nats on test rows. On
    # a split of house16h, 1/2 was 0.056 (0.037) behind 5/2, and after long runs had an error of
    # 0.55 for 0.67.
    scores = {name: found[name].scores.numpy() for name in _ROUGH_FIRST if name in found}
    best = max(scores, key=lambda name: float(np.mean(scores[name])))

    def falls_short(name: str) -> bool:
        behind = scores[best] - scores[name]
        return float(np.mean(behind)) > CERTAIN * float(np.std(behind)) / np.sqrt(len(behind))

    return next(name for name in scores if not falls_short(name))


def _numbers_of_neighbours(rounds: NeighbourRounds) -> tuple[int, int]:
    """Of a prediction and of its spread, by scores of the judging rows."""

    def score(spread: int) -> float:
        rounds.model.spread_neighbours = spread
        return rounds.judge(local=True).score

    few = rounds.judge().score
    rounds.model.prediction_neighbours = 2 * _JUDGING_NEIGHBOURS
    tells_more = rounds.judge().score - few > _TELLS_MORE
    predicting = MOST_PREDICTION_NEIGHBOURS if tells_more else PREDICTION_NEIGHBOURS
    return predicting, max((SPREAD_NEIGHBOURS, *_OTHER_SPREADS), key=score)


def _in_sight(model: GaussianNNGP) -> Kernel:
    # The lengthscale of an irrelevant column may be orders of magnitude beyond its range; at 50
    # ranges a gradient can still bring it back.
    kernel = gpflow.utilities.deepcopy(model.kernel)
    ranges = np.ptp(model.data[0].numpy(), axis=0)
    ranges[code_columns(kernel)] = 1.0
    longest = _LONGEST * np.where(ranges > 0.0, ranges, 1.0)
    kernel.lengthscales.assign(np.minimum(kernel.lengthscales.numpy(), longest))
    return kernel


def _above_floor(likelihood: gpflow.likelihoods.Gaussian) -> float:
    """The noise variance, slightly above its lower bound, which a Parameter cannot equal."""
    return max(float(likelihood.variance.numpy()), 1.01 * float(likelihood.variance_lower_bound))
