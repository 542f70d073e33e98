"""The number of neighbours of a prediction, by leave-one-out."""

from __future__ import annotations

__all__ = ["choose_prediction_neighbours"]

import time

import numpy as np

from ...models.neighbours import NNGP, GaussianNNGP
from ...replicas import Group
from .judgement import judge

_ROWS = 500
"""Rows that are predicted."""
_MANY = 2000
"""Rows that are predicted where neighbours are doubled and time allows: scores of labels differ by
0.1 from row to row, so that a gain of 0.01 nats is within the errors of 500 rows."""
_MOST = 256
"""Most neighbours: beyond, a prediction takes several milliseconds."""
_ENOUGH = 128
"""Fewest that halving leaves: with them a core makes a thousand predictions a second, and with 64
the error on protein grew by 0.7 %, of which log densities of 500 left-out rows say nothing."""
_TELLS_MORE = 0.002
"""Nats a row that twice the neighbours must gain, for up to eight times the work."""
_GROWTH = 8.0
"""Of the seconds, from a number of neighbours to twice as many."""
_ALWAYS = 2.0
"""Seconds that are taken for a comparison after the deadline, too."""


def choose_prediction_neighbours(
    model: NNGP,
    rows: np.ndarray,
    deadline: float = float("inf"),
    group: Group | None = None,
) -> int:
    """Find the smallest number of neighbours of predictions for which leave-one-out asks.

    :param model: at its final Parameters and sites; its `prediction_neighbours` are the start, and
        are set.
    :param rows: row numbers [B], of which some 500 are predicted; 2,000 of all rows where
        neighbours are doubled and time allows.
    :param deadline: a value of `time.perf_counter`, after which only short comparisons begin.
    :param group: the workers, which share the rows; the deadline is for a lone one, since all must
        come to the same number, whatever their clocks say.
    :return: the number: half of the start (or a quarter, ... but 128 at least) where the rows are
        not predicted better at the start by more than 0.002 nats and a standard error; else twice
        the start, four times, ... up to 256, until neither doubling nor doubling once more gains
        0.002 nats a row.

    Example::

        choose_prediction_neighbours(model, np.arange(500))
    """
    group = group or Group()
    limit = deadline if group.workers == 1 else float("inf")
    N, rows = int(model.data[0].shape[0]), rows[:: max(1, len(rows) // _ROWS)]
    start = min(model.prediction_neighbours, max(1, N - 1))
    count = _halved(model, rows, start, limit, group)
    if count == start:
        count = _doubled(model, rows, start, limit, group)
    model.prediction_neighbours = count
    return count


def _halved(model: NNGP, rows: np.ndarray, start: int, limit: float, group: Group) -> int:
    """The least of start / 2^k whose scores are level with the scores of `start`."""
    least = max(_ENOUGH, model.num_neighbours, model.spread_neighbours or 1)
    if start // 2 < least:
        return start
    fewer, seconds = _scores(model, rows, start // 2, group)
    if _GROWTH * seconds > limit - time.perf_counter():
        return start
    scores, _ = _scores(model, rows, start, group)
    count = start
    while not _falls_short(scores - fewer):
        count //= 2
        if count // 2 < least:
            break
        fewer, _ = _scores(model, rows, count // 2, group)
    return count


def _falls_short(behind: np.ndarray) -> bool:
    """True for scores that are `behind` [B] beyond chance, and by more than 0.002 nats."""
    error = float(np.std(behind)) / np.sqrt(len(behind))
    return float(np.mean(behind)) > max(_TELLS_MORE, error)


def _doubled(model: NNGP, rows: np.ndarray, start: int, limit: float, group: Group) -> int:
    """The last of start, 2 start, 4 start, ... that gains over the last one that did."""
    most = min(_MOST, int(model.data[0].shape[0]) - 1)
    best = tried = start
    if 2 * start > most:
        return start
    scores, seconds = _scores(model, rows, start, group)
    many = _MANY / len(rows)
    if many > 1.0 and many * _GROWTH * seconds <= limit - time.perf_counter():
        rows = np.unique(np.linspace(0, int(model.data[0].shape[0]) - 1, _MANY).astype(int))
        scores, seconds = _scores(model, rows, start, group)
    while 2 * tried <= most and tried <= 2 * best:
        if _GROWTH * seconds > max(_ALWAYS, limit - time.perf_counter()):
            break
        tried *= 2
        more, seconds = _scores(model, rows, tried, group)
        if np.mean(more - scores) >= _TELLS_MORE:
            best, scores = tried, more
    return best


def _scores(model: NNGP, rows: np.ndarray, count: int, group: Group) -> tuple[np.ndarray, float]:
    """Leave-one-out log densities [B] from `count` neighbours, and the seconds that they took."""
    began = time.perf_counter()
    if isinstance(model, GaussianNNGP):
        scores = judge(model, rows, False, count, group).scores
    else:
        (scores,) = group.over_rows(lambda some: [model.left_out_scores(some, count)], rows)
    return scores, time.perf_counter() - began
