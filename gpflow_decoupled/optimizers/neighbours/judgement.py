"""Leave-one-out predictions of rows that no round has seen."""

from __future__ import annotations

__all__ = [
    "CERTAIN", "Calibration", "Judged", "calibrate", "contradictions", "falls", "judge",
    "noise_of_duplicates", "rise_of", "scales_of", "shrunk", "spread_of", "trust_duplicates",
]  # fmt: skip

import warnings
from functools import partial
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel, Linear, Polynomial, Product, Static, Stationary, Sum
from gpflow.likelihoods import Gaussian

from ...models.neighbours import GaussianNNGP, LeaveOneOut
from ...models.neighbours.groups import most_neighbours
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


# ---
# Predictive variances that are right on average.


_PRIORS = tuple(4.0**power for power in range(10))
"""Observations that a spread of one counts for: at 1 variances follow the errors nearby, at 262,144
kernel and noise."""
_CALIBRATION_LOWEST = -1000.0
"""Nats that one row counts: an error of 45 standard deviations."""
_LEAST_FACTOR = 1e-6
"""Of variances: outputs without any error have none, and a Parameter is above zero."""


class Calibration(NamedTuple):
    """The end of `NeighbourRounds.calibrate`.

    Example::

        print(NeighbourRounds(model).calibrate().done)
    """

    judged: Judged
    """Before it."""
    done: bool
    """True if the variances were changed."""


def calibrate(model: GaussianNNGP, judged: Judged) -> Calibration:
    """Multiply variances of kernel and noise by the spread of the leave-one-out errors.

    Means do not move (Allison et al. 2023). The spread is first shrunk towards 1 by its standard
    error, see `shrunk`. With a local spread its prior and factor are set instead; else skipped
    where nothing is left, or kernel or noise has no trainable variance.

    :param model: whose variances change.
    :param judged: at its present hyperparameters.
    """
    if model.spread_neighbours is not None:
        _calibrate_spread(model, model.spread_neighbours, judged)
        return Calibration(judged, True)
    scales = scales_of(model)
    factor = 1.0 if scales is None else _factor(model.likelihood, judged)
    if scales is None or factor == 1.0:
        return Calibration(judged, False)
    for one in scales:
        one.assign(one.numpy() * factor)
    return Calibration(judged, True)


def _calibrate_spread(model: GaussianNNGP, spread_neighbours: int, judged: Judged) -> None:
    """Set the prior and the factor of a local spread by the log densities of left-out rows."""
    # The largest prior, and so the most even variances, whose score is not below the best beyond
    # chance. Outliers that their neighbours do not foretell are dearest where the others lie close,
    # and speak for even variances; so rows count in full here.
    rows = most_neighbours(model.groups, model.data[0], before=False)
    count = max(1, min(spread_neighbours, model.prediction_neighbours, rows))
    prior, factor = (float(one.numpy()) for one in (model.spread_prior, model.spread_factor))
    # y_c^T K^_cc^-1 y_c, and the squared errors in units of the variances of the kernel and noise
    quadratic = np.maximum(judged.local / factor * (prior + count) - prior, 0.0)
    errors = judged.squares * judged.local
    found = {one: _scores(errors, (one + quadratic) / (one + count)) for one in _PRIORS}
    best = max(found.values(), key=lambda one: float(np.mean(one.scores)))

    def falls_short(other: _Scored) -> bool:
        behind = best.scores - other.scores
        return float(np.mean(behind)) > CERTAIN * float(np.std(behind)) / np.sqrt(len(behind))

    prior = max(one for one, scored in found.items() if not falls_short(scored))
    model.spread_prior.assign(prior)
    model.spread_factor.assign(max(shrunk(*found[prior][:2]), _LEAST_FACTOR))


class _Scored(NamedTuple):
    """Left-out rows with one prior of the spread."""

    spread: float
    error: float
    scores: np.ndarray
    """[B], up to terms that all priors share."""


def _scores(errors: np.ndarray, local: np.ndarray) -> _Scored:
    """Score squared errors [B, P] with variances [B, P]."""
    squares = errors / local
    spread, error = spread_of(squares)
    terms = -0.5 * (np.log(local * spread) + squares / spread)
    return _Scored(spread, error, np.maximum(np.nansum(terms, axis=1), _CALIBRATION_LOWEST))


def _factor(likelihood: Gaussian, judged: Judged) -> float:
    """The factor of all variances, which leaves the noise above its lower bound."""
    # Noise that stayed at its bound while the kernel's variance fell would be a larger share of it,
    # and means would move: on one set their error grew from 0.0005 to 0.006.
    factor = shrunk(judged.spread, judged.error)
    if factor >= 1.0:
        return factor
    least = 1.01 * float(likelihood.variance_lower_bound)
    return min(1.0, max(factor, least / float(likelihood.variance.numpy())))


def shrunk(spread: float, error: float) -> float:
    """Shrink a spread by its standard error: 1 within one error, itself far from 1.

    :param spread: s, above zero.
    :param error: e, the standard error of its logarithm.
    """
    #     log s -> (1 - (e / log s)^2)_+ log s
    #
    # Waiting for two standard errors left intervals of heavy-tailed outputs too narrow: there one
    # standard error of a thousand rows is some 0.1.
    log_spread = np.log(spread)
    if abs(log_spread) <= error:
        return 1.0
    return float(np.exp((1.0 - (error / log_spread) ** 2) * log_spread))


def scales_of(model: GaussianNNGP) -> list[gpflow.Parameter] | None:
    """The trainable variances of kernel and noise; None unless they scale both."""
    noise = model.likelihood.variance
    if not isinstance(noise, gpflow.Parameter) or int(tf.size(noise)) != 1:
        return None
    variances = _variances_of(model.kernel)
    every = [noise, *(variances or [])]
    if variances is None or not all(one.trainable for one in every):
        return None
    return list({id(one): one for one in every}.values())  # parts may share a variance


def _variances_of(kernel: Kernel) -> list[gpflow.Parameter] | None:
    """Variances whose multiplication scales the whole kernel; None if there are none."""
    if type(kernel) is Sum:
        parts = [_variances_of(one) for one in kernel.kernels]
        return None if None in parts else [one for part in parts for one in part or ()]
    if type(kernel) is Product:
        parts = [_variances_of(one) for one in kernel.kernels]
        return next((part for part in parts if part is not None), None)
    # the variance of a Polynomial is inside of its power
    scaled = isinstance(kernel, (Stationary, Static, Linear)) and not isinstance(kernel, Polynomial)
    return [kernel.variance] if scaled else None


# ---
# Rows that contradict others with the same inputs: only they show that there is noise.


_CONTRADICTIONS = 500
"""Most rows in each sample that contradict others. On a set with 66 among 41,000, without them the
noise ended anywhere between 1e-3 and 2e-2.
"""
_FAR_BELOW = 1e-2
"""Share of the noise that duplicates show: less is wrong, more may be a few outliers among them."""


def contradictions(X: np.ndarray, Y: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return pairs of rows with the same inputs and other outputs, which share their terms.

    :param X: inputs [N, D].
    :param Y: outputs [N, P], NaN where missing.
    :param order: row numbers [N].
    :return: at most 500 row numbers, those with the largest differences first. Cost: N log N.
    """
    later, earlier = _duplicates(X, order)
    largest = np.max(np.nan_to_num(np.abs(Y[later] - Y[earlier])), axis=1, initial=0.0)
    found = np.flatnonzero(largest > 0.0)
    found = found[np.argsort(-largest[found], kind="stable")]
    pairs = np.stack([earlier[found], later[found]], axis=1).reshape(-1)
    return pairs[np.sort(np.unique(pairs, return_index=True)[1])][:_CONTRADICTIONS]


def noise_of_duplicates(X: np.ndarray, Y: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Half the mean squared difference [P] of rows with the same inputs, whatever the kernel.

    :param X: inputs [N, D].
    :param Y: outputs [N, P], NaN where missing.
    :param order: row numbers [N].
    :return: zero without such rows. Cost: N log N.
    """
    later, earlier = _duplicates(X, order)
    squares = 0.5 * np.square(Y[later] - Y[earlier])
    there = np.isfinite(squares)
    return np.sum(np.where(there, squares, 0.0), axis=0) / np.maximum(1, np.sum(there, axis=0))


def trust_duplicates(model: GaussianNNGP) -> None:
    """Raise a noise variance far below what rows with the same inputs show, to that.

    Judges count a row at -10 nats at least. Where most such rows have equal outputs, they may
    prefer no noise to the noise of a few rows, which then are 1e5 nats off. For a trainable
    variance of all outputs, or one of each.
    """
    noise = model.likelihood.variance
    X, Y = (part.numpy() for part in model.data)
    if not (isinstance(noise, gpflow.Parameter) and noise.trainable):
        return
    shown, values = noise_of_duplicates(X, Y, model.order), noise.numpy()
    if values.size == 1:
        shown = np.mean(shown)
    elif values.size != Y.shape[1]:  # of groups of rows
        return
    shown = np.reshape(shown, values.shape)
    if np.any(values < _FAR_BELOW * shown):
        noise.assign(np.where(values < _FAR_BELOW * shown, shown, values))


def _duplicates(X: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose inputs stand earlier in the order, and the last row before with these inputs."""
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    kept = np.arange(len(X))
    for column in X.T:  # a row alone with its number in a column has no duplicate
        kept = kept[_repeated(column[kept])]
    by_group = kept[np.lexsort([rank[kept], *X[kept].T[::-1]])]  # the last key counts first
    same = np.all(X[by_group[1:]] == X[by_group[:-1]], axis=1)
    return by_group[1:][same], by_group[:-1][same]


def _repeated(values: np.ndarray) -> np.ndarray:
    order = np.argsort(values)
    equal = values[order[1:]] == values[order[:-1]]
    found = np.zeros(len(values), bool)
    found[order[1:][equal]] = found[order[:-1][equal]] = True
    return found
