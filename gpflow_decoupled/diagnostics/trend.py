"""Warnings of a bound that fell, or still rises."""

from __future__ import annotations

__all__ = ["final_evidence", "warn_of_fall", "warn_of_last_rise", "warn_of_rise"]

import time
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.models import GPModel

from ..covariances.latents import split_latents
from ..covariances.products import kernel_product
from ..errors import NumericalError
from ..models import BasisGP, Evidence, FactorGraph, FullGP
from ..models.evidence import EXACT_ROWS
from ..models.neighbours import GaussianNNGP
from ..models.neighbours.evidence import has_evidence
from ..user_warnings import warn_user

_FALL = 0.1
"""Nats per observation. Less is common in the first steps of Adam, and lost again soon."""
_FEWEST = 5
"""Estimates of the bound that tell how far they scatter."""
_WINDOW = 20
"""Steps over whose mean a bound is compared with the one at the end."""
_RISE = 0.01
"""Nats per observation in a hundred steps; less is hardly seen in predictions."""
_LAST, _LEAST = 100, 20
"""The last steps, whose halves are compared; of a shorter run half of its steps, at least 20, since
its beginning is steep."""


def warn_of_fall(
    elbos: Sequence[float],
    end: float,
    num_data: int,
    exact: bool,
    rising: bool = True,
    sampled_rows: int | None = None,
) -> None:
    """Warn if a run ends far below the bound of its start, or of its best steps.

    :param elbos: of the steps in nats, the first one at the start; `end` the last.
    :param exact: the bounds are exact, not estimates from minibatches or draws.
    :param rising: every step climbs this bound, so that steps in between count.
    :param sampled_rows: the model's `mean_subsample`, if any.
    """
    # Estimates must fall by three of their standard deviations more.
    if not len(elbos) or not (exact or len(elbos) >= _FEWEST):
        return
    # the scatter of estimates, from differences of neighbours: a slow fall is not in them
    noise = 0.0 if exact else float(np.median(np.abs(np.diff(elbos)))) / (0.6745 * np.sqrt(2.0))
    cause = (
        ""
        if sampled_rows is None
        else (
            f" Another cause may be mean_subsample={sampled_rows}, by which so few rows estimate"
            " the norm of the mean in each step: leave the option out, unless there are thousands"
            " of mean points."
        )
    )
    means = (
        np.convolve(elbos, np.full(_WINDOW, 1.0 / _WINDOW), "valid")
        if len(elbos) >= _WINDOW
        else np.array([])
    )
    if elbos[0] - end > _FALL * num_data + 3.0 * noise:
        warn_user(
            f"The bound fell from {elbos[0]:.6g} to {end:.6g} nats in {len(elbos)} steps: they were"
            " too long for the scales of the parameters. Standardise X and Y, as"
            " gpflow_decoupled.Standardized(build, (X, Y)) does, or lower the learning rates; the"
            f" model before training was the better one.{cause}",
        )
    elif rising and len(means) and np.max(means) - end > _FALL * num_data + 3.0 * noise:
        at = int(np.argmax(means)) + _WINDOW
        warn_user(
            f"The bound was {np.max(means):.6g} nats around step {at} and fell to {end:.6g} by step"
            f" {len(elbos)}: steps were too long for the parameters that were reached. Lower the"
            " learning rates, or keep the best Parameters by evaluation=Evaluation((X_val, Y_val),"
            f" patience=5).{cause}",
        )


def warn_of_rise(elbos: Sequence[float], num_data: int, remedy: str) -> None:
    """Warn if a bound rose by more than 0.01 nats per observation in the last hundred steps.

    Shorter runs are judged by their second half, at whose pace a hundred steps would go on. The
    rise is twice the difference of the means of both halves of these steps; estimates from
    minibatches must rise by three standard errors more.

    :param elbos: of the steps in nats; fewer than 20 say nothing.
    :param remedy: how to go on, as it ends the sentence.
    """
    steps = len(elbos)
    window = _LAST if steps >= _LAST else max(_LEAST, steps // 2)
    last = np.asarray(elbos, np.float64)[-window:]
    if steps < _LEAST or not np.all(np.isfinite(last)):
        return
    half = window // 2
    longer = _LAST / window
    rise = 2.0 * longer * float(np.mean(last[-half:]) - np.mean(last[:half]))
    scatter = float(np.median(np.abs(np.diff(last)))) / (0.6745 * np.sqrt(2.0))
    error = 2.0 * longer * scatter * np.sqrt(2.0 / half)
    if rise > _RISE * num_data + 3.0 * error:
        where = f"the last {_LAST} steps"
        if window < _LAST:
            where = f"{_LAST} steps at the pace of the last {window}"
        warn_user(
            f"The bound still rises: by {rise:.3g} nats, {rise / num_data:.2g} per row, in {where}."
            f" {remedy}"
        )


def warn_of_last_rise(rise: float, num_data: int, remedy: str) -> None:
    """Warn if L-BFGS rises at the same rate in ten iterations, or rows that are left out did in the
    last round.

    :param rise: in nats; infinite if the hyperparameters have not moved.
    """
    if np.isinf(rise):
        warn_user(f"There was no time to move the hyperparameters. {remedy}")
    elif rise > 0.1 * _RISE * num_data:
        warn_user(
            f"The bound still rises: by {rise:.3g} nats, {rise / num_data:.2g} per row, in ten"
            " iterations of L-BFGS at their last pace, or by rows that are left out in the last"
            f" round. {remedy}"
        )


# ---
# The log evidence after a run.


_SHARE = 0.1
"""Largest share of the run's own seconds: the evidence was not asked for."""
_UNNOTICED = 0.1
"""Seconds that are spent after a run of any length."""
_PROBES = 16
"""Of the upper end. The certain one is often 100 times as far from the evidence."""
_LOOSE = 1e-4
"""Nats per row that the quadratic term may leave: neighbours leave a hundred times as many."""
_EXACT_SECONDS = 0.6
"""Of an exact evidence of 2,000 rows, for each covariance matrix."""
_ROW_SECONDS = 5e-4
"""Of the neighbours and the points of a row."""
_PRODUCTS = 120
"""With the kernel matrix, in products of single precision with one column."""
_TIMED = 2_048
"""Rows for a timed product."""


def final_evidence(
    model: GPModel | FactorGraph,
    data: RegressionData | None,
    seconds: float,
    left: float = float("inf"),
) -> Evidence | None:
    """Return `model.evidence` of the training data if it is affordable.

    :param data: X [N, D] and Y [N, P] if they are in memory; a model's own data come first.
    :param seconds: of the run; the evidence may take a tenth of them.
    :param left: seconds until the limit of the run, which the evidence keeps.
    :return: None for other likelihoods, mixed outputs, data not in memory, and too many rows for
        the time.
    """
    if not isinstance(model, (BasisGP, FullGP, GaussianNNGP)) or not has_evidence(model):
        return None
    data = data if isinstance(model, BasisGP) else model.data
    if data is None or _seconds(model, data[0]) > max(_UNNOTICED, min(_SHARE * seconds, left)):
        return None
    tolerance = max(0.1, _LOOSE * len(data[0]))
    try:
        if isinstance(model, BasisGP):
            return model.evidence(data, probes=_PROBES, tolerance=tolerance)
        return model.evidence(probes=_PROBES, tolerance=tolerance)
    except (NumericalError, KeyboardInterrupt):  # the run is over, and its result is not lost
        return None


def _seconds(model: GPModel, X: tf.Tensor) -> float:
    N, kernels = len(X), split_latents(model.kernel)
    if N <= EXACT_ROWS:
        return len(kernels) * _EXACT_SECONDS * (N / EXACT_ROWS) ** 3
    setup = len(kernels) * _ROW_SECONDS * N
    few = X[:_TIMED]
    column = tf.ones([len(few), 1], few.dtype)

    def product() -> None:
        kernel_product(kernels[0][0], few, None, column, dtype=tf.float32).numpy()

    product()  # compiles
    began = time.perf_counter()
    product()
    return setup + _PRODUCTS * len(kernels) * (time.perf_counter() - began) * (N / len(few)) ** 2
