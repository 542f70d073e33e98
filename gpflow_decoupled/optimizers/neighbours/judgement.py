"""Leave-one-out predictions of rows that no round has seen."""

from __future__ import annotations

__all__ = ["CERTAIN", "Judged", "falls", "judge", "rise_of", "spread_of"]

import warnings
from functools import partial
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ...models.neighbours import GaussianNNGP, LeaveOneOut
from ...replicas import Group

CERTAIN = 2.0
"""Standard errors that count as evidence."""
_LARGEST, _LOWEST = 100.0, -10.0
"""Largest squared standardised error, and lowest log density in nats, that one row counts. A row
that contradicts its duplicate may be ten thousand standard deviations off, and would outvote a
thousand others; a Gaussian has none beyond ten."""


class Judged(NamedTuple):
    """Leave-one-out predictions of B judging rows.

    Example::

        print(NeighbourRounds(model).judge().score)
    """

    log_density: float
    """Mean, in nats per row."""
    spread: float
    """Mean squared standardised error, each at most 100: above 1 where intervals are too narrow."""
    error: float
    """Standard error of log(spread)."""
    scores: np.ndarray
    """Log densities [B] in nats, at least -10 each; with variances multiplied by the spread where
    calibration can do that."""
    squares: np.ndarray = np.zeros((0, 1))
    """Squared standardised errors [B, P], NaN where Y is missing."""
    local: np.ndarray = np.zeros((0, 1))
    """[B, P]: the factors of the variances by the errors nearby, `LeaveOneOut.spread`."""

    @property
    def score(self) -> float:
        """The mean of the scores in nats, by which rounds and kernels are compared."""
        return float(np.mean(self.scores))

    def is_worse(self, scores: np.ndarray) -> bool:
        """True if the score is below the mean of others [B] of the same rows, beyond chance."""
        return falls(self.scores - scores)


def judge(
    model: GaussianNNGP,
    rows: np.ndarray,
    calibrated: bool,
    num_neighbours: int | None = None,
    group: Group | None = None,
    local: bool = False,
) -> Judged:
    """Predict rows from all others; cost as `GaussianNNGP.leave_one_out`.

    :param model: at its present hyperparameters.
    :param rows: row numbers [B].
    :param calibrated: multiply variances by the spread, as calibration would.
    :param num_neighbours: of each row; by default the predictions'.
    :param group: the workers, which share the rows.
    :param local: with the model's local spread, which hides the errors of a worse mean: for the
        spread itself, not for hyperparameters.
    """
    predict = partial(model.leave_one_out, num_neighbours=num_neighbours)
    with warnings.catch_warnings():  # the noise of a round is not the last word
        warnings.filterwarnings("ignore", "The noise variance is at its floor")
        found = LeaveOneOut(*(group or Group()).over_rows(predict, rows))
    Y = tf.gather(model.data[1], rows).numpy()
    variance = found.variance if local else found.variance / found.spread
    squares = np.square(Y - found.mean) / variance
    there = np.isfinite(squares)
    spread, error = spread_of(squares)
    scale = spread if calibrated else 1.0
    terms = -0.5 * (np.log(2.0 * np.pi * variance * scale) + squares / scale)
    scores = np.sum(np.where(there, terms, 0.0), axis=1)
    # a variance that is not finite is no prediction
    scores = np.where(np.isfinite(found.log_density), np.maximum(scores, _LOWEST), _LOWEST)
    density = float(np.mean(found.log_density))
    return Judged(density, spread, error, scores, squares, found.spread)


def falls(gains: np.ndarray) -> bool:
    """True for gains [B] of rows whose mean is below zero beyond chance."""
    # A thousand rows with heavy tails leave a standard error of some 0.05 nats. A round sees many
    # more rows than judge it, so without such evidence the later round is the better guess.
    return bool(np.mean(gains) < -CERTAIN * np.std(gains) / np.sqrt(len(gains)))


def rise_of(gains: np.ndarray) -> float:
    """Nats per row by which the mean of gains [B] exceeds its standard error, or 0; infinite
    where there was no score to gain on.
    """
    if np.any(np.isinf(gains)):
        return np.inf
    return max(0.0, float(np.mean(gains) - np.std(gains) / np.sqrt(len(gains))))


def spread_of(squares: np.ndarray) -> tuple[float, float]:
    """The mean of squared standardised errors [B, P], at most 100 each and never zero, and the
    standard error of its logarithm.
    """
    there = squares[np.isfinite(squares)]
    bounded = np.minimum(there, _LARGEST) if there.size else np.ones(1)
    spread = float(np.mean(bounded))
    if spread < 1.0 and there.size:
        # no row outvotes the others for wider variances, but each speaks against narrower ones
        spread = min(1.0, float(np.mean(there)))
    spread = max(spread, float(np.finfo(float).tiny))
    return spread, float(np.std(bounded) / (spread * np.sqrt(bounded.size)))
