"""The end of a nearest-neighbour GP's run."""

from __future__ import annotations

__all__ = ["closed", "share_of_climbs", "with_mean"]

import time

import numpy as np
import tensorflow as tf

from ...covariances.products import kernel_product
from ...errors import NumericalError
from ...models.neighbours import NNGP
from ...optimizers.ascent import INTERRUPTED
from ...optimizers.neighbours import NeighbourRounds, choose_prediction_neighbours
from ..schedules import Limits
from .neighbours import calibrated
from .stage import Clock, Report

_TIMED, _PRODUCTS = 4096, 20
"""Rows of a timed product, and the usual number of products of a solve."""
_MOST = 0.5
"""Of the run, that a solve may be given: a mean at hyperparameters that nobody learned is none."""


def closed(rounds: NeighbourRounds, clock: Clock) -> Report:
    """Calibrate the variances, then solve for a mean on all rows, if the model has one.

    First choose the neighbours of predictions, if left to `fit`.

    A limit of seconds cuts the solve short, with a warning, or leaves it to the first prediction,
    as an interrupt does.
    """
    end = clock.deadline()
    if rounds.model.chooses_neighbours:
        before = end - rounds.seconds_of_calibration
        choose_prediction_neighbours(rounds.model, rounds.judges, before, rounds.group)
    return with_mean(rounds.model, calibrated(rounds, end), end, clock)


def with_mean(model: NNGP, report: Report, end: float, clock: Clock) -> Report:
    """Solve for the mean at the end of a run if the model takes the mean of all rows: see `closed`.

    :param end: of the time, a value of `time.perf_counter`.
    """
    if model.mean != "data":
        return report
    left = end - time.perf_counter()
    if left <= 0.0:
        return report
    seconds = left if np.isfinite(left) else None
    try:
        model.solve_mean(seconds=seconds, show=clock.show)
    except KeyboardInterrupt:
        return report._replace(reason=INTERRUPTED)
    except NumericalError:  # no time for a product; a prediction says so if it fails again
        return report
    return report


def share_of_climbs(model: NNGP, limits: Limits) -> float:
    """The share of a run after which the hyperparameters stay, so that the solve has time.

    All of it where steps are limited too: they then tell the share.
    """
    seconds = limits.seconds
    if model.mean != "data" or seconds is None or limits.steps is not None:
        return 1.0
    X, Y = model.of_rows.data
    few = X[:_TIMED]
    columns = tf.ones([few.shape[0], Y.shape[1]], X.dtype)
    for _ in range(2):  # the first one compiles
        began = time.perf_counter()
        for group in model.of_rows.groups:
            kernel_product(group.kernel, few, None, columns, dtype=tf.float32).numpy()
        taken = time.perf_counter() - began
    needed = _PRODUCTS * taken * (int(X.shape[0]) / int(few.shape[0])) ** 2
    return 1.0 - min(_MOST, needed / seconds)
