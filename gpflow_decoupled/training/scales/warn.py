"""A warning where the data are on another scale than the model, before anything is trained."""

from __future__ import annotations

__all__ = ["look_at_scales", "warn_of_scales"]

import warnings
from collections.abc import Iterator

import numpy as np
from gpflow.models import GPModel

from ...models import FactorGraph
from ..batches import ArrayBatches, Batches, DatasetBatches, DiskBatches, FunctionBatches
from .inputs import complaints_of_inputs
from .outputs import complaints_of_outputs

_FEWEST, _SAMPLE = 10, 10_000
"""Rows below which nothing is typical; rows that Y is judged by."""
_REMEDY = (
    "Training may not find its way from there: standardise the data, as"
    " gpflow_decoupled.Standardized(build, (X, Y)) does, which predicts in their own units; or"
    " start from lengthscales, variances and a mean function of their size."
)


def look_at_scales(model: GPModel | FactorGraph, batches: Batches) -> None:
    """`warn_of_scales` for the data of a run: arrays now, a stream by its first batch, which is
    read once.

    :param model: that is to be trained; a `FactorGraph` has no kernel to compare with.
    :param batches: its data.

    Example::

        look_at_scales(model, ArrayBatches(X, Y, None, 0))
    """
    if isinstance(model, FactorGraph):
        return
    if isinstance(batches, ArrayBatches):
        warn_of_scales(model, batches.X.numpy(), batches.Y.numpy(), batches.num_data, stacklevel=5)
    elif isinstance(batches, DiskBatches):
        warn_of_scales(model, *batches.sample, batches.num_data, stacklevel=5)
    elif isinstance(batches, (DatasetBatches, FunctionBatches)):
        batches.look = lambda X, Y: warn_of_scales(model, X, Y, batches.num_data, stacklevel=7)


def warn_of_scales(
    model: GPModel, X: np.ndarray, Y: np.ndarray, num_data: int, stacklevel: int = 3
) -> None:
    """Warn where Y is far from what prior and noise can explain, or X from the lengthscales.

    :param model: before training.
    :param X: inputs [N, D] of all data, or of a minibatch.
    :param Y: observations [N, P].
    :param num_data: rows of the whole data set.
    :param stacklevel: of the warning.

    Data of fewer than 10 rows are not judged, and constant columns are left to other warnings. The
    cost is bounded: from large
    data a sample is taken. Example::

        warn_of_scales(model, X, 1000.0 * Y, len(X))
    """
    if len(X) < _FEWEST:
        return
    for complaint in _complaints(model, X, Y, num_data):
        warnings.warn(f"{complaint[0].upper()}{complaint[1:]}. {_REMEDY}", stacklevel=stacklevel)


def _complaints(model: GPModel, X: np.ndarray, Y: np.ndarray, num_data: int) -> Iterator[str]:
    rows = np.arange(len(X))
    if len(X) > _SAMPLE:
        rows = np.random.default_rng(0).choice(len(X), _SAMPLE, replace=False)
    yield from complaints_of_outputs(model, X[rows], Y[rows])
    yield from complaints_of_inputs(model.kernel, X, num_data)
