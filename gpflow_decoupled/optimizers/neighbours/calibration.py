"""Predictive variances that are right on average."""

from __future__ import annotations

__all__ = ["Calibration", "calibrate", "scales_of", "shrunk"]

from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel, Linear, Polynomial, Product, Static, Stationary, Sum
from gpflow.likelihoods import Gaussian

from ...models.neighbours import GaussianNNGP
from ...models.neighbours.ordering import most_neighbours
from .judgement import CERTAIN, Judged, spread_of

_PRIORS = tuple(4.0**power for power in range(10))
"""Observations that a spread of one counts for: at 1 variances follow the errors nearby, at 262,144
kernel and noise."""
_LOWEST = -1000.0
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
    return _Scored(spread, error, np.maximum(np.nansum(terms, axis=1), _LOWEST))


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
