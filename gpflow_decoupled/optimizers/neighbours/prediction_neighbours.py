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
_MOST = 256
"""Most neighbours: beyond, a prediction takes several milliseconds."""
_TELLS_MORE = 0.002
"""Nats a row that twice the neighbours must gain, for eight times the work."""
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
    """Double the neighbours of predictions while leave-one-out says that more of them tell more.

    :param model: at its final Parameters and sites; its `prediction_neighbours` are set.
    :param rows: row numbers [B], of which some 500 are predicted.
    :param deadline: a value of `time.perf_counter`, after which only short comparisons begin.
    :param group: the workers, which share the rows; the deadline is for a lone one, since all must
        come to the same number, whatever their clocks say.
    :return: the number, from the model's `num_neighbours` to 256. Doubling ends where the gain is
        below 0.002 nats a row.

    Example::

        choose_prediction_neighbours(model, np.arange(500))
    """
    group = group or Group()
    limit = deadline if group.workers == 1 else float("inf")
    N, rows = int(model.data[0].shape[0]), rows[:: max(1, len(rows) // _ROWS)]
    count = min(model.num_neighbours, max(1, N - 1))
    scores, seconds = _scores(model, rows, count, group)
    while 2 * count <= min(_MOST, N - 1):
        needed = _GROWTH * seconds
        if needed > max(_ALWAYS, limit - time.perf_counter()):
            break
        more, seconds = _scores(model, rows, 2 * count, group)
        gains = more - scores
        if np.mean(gains) < _TELLS_MORE:
            break
        count, scores = 2 * count, more
    model.prediction_neighbours = count
    return count


def _scores(model: NNGP, rows: np.ndarray, count: int, group: Group) -> tuple[np.ndarray, float]:
    """Leave-one-out log densities [B] from `count` neighbours, and the seconds that they took."""
    began = time.perf_counter()
    if isinstance(model, GaussianNNGP):
        scores = judge(model, rows, False, count, group).scores
    else:
        (scores,) = group.over_rows(
            lambda some: [model.leave_one_out(some, num_neighbours=count).log_density], rows
        )
    return scores, time.perf_counter() - began
