"""The step and the batches of a model with a mean on all data."""

from __future__ import annotations

__all__ = ["BY_NAME", "parts_on_data", "undo_of"]

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import numpy as np

from ....bases.parts.data_mean import DataMean, refuse_streams
from ....inputs import stays_on_disk
from ....models import BasisGP
from ....optimizers import ConjugateGradients
from ...batches import ArrayBatches, Batches
from ...steps import Step
from ...together import refuse_other_run
from ..all_rows.batches import AllRows
from ..route import Choices, Data, MeanSolver
from .step import DataMeanStep

BY_NAME = "conjugate_gradients"
"""The `mean_solver` that stands for a `ConjugateGradients()`."""

Parts = Callable[[BasisGP, Data, Choices], tuple[Step, Batches]]
"""What makes the step and the batches of a model without mean points."""


def parts_on_data(
    model: BasisGP, mean: DataMean, data: Data, choices: Choices, coupled_parts: Parts
) -> tuple[DataMeanStep, AllRows]:
    """A `DataMeanStep` and its batches; the data become the mean points, which `undo_of` takes
    back.

    :param model: the model with the mean on all data.
    :param mean: its mean.
    :param data: as they were passed to `fit`.
    :param choices: the options of the run.
    :param coupled_parts: makes the parts of a model with the same Parameters and no mean points.
    :raises DataError: for a dataset, and for unusable data.
    """
    refuse_streams(data)
    if isinstance(data, (tuple, list)):
        data = [np.asarray(array) if stays_on_disk(array) else array for array in data]
    view = BasisGP(
        model.kernel,
        model.likelihood,
        model.basis.without_mean_points(),
        mean_function=model.mean_function,
        num_data=model.num_data,
        expectations=model.expectations,
    )
    solver = choices.mean_solver
    coupled, found = coupled_parts(view, data, replace(choices, mean_solver=MeanSolver()))
    arrays = cast(ArrayBatches, found)
    batches = AllRows(arrays.X, arrays.Y, arrays.batch_size, choices.seed)
    refuse_other_run(
        choices.group, lambda: batches.settings
    )  # new coefficients are sent to all, and need the same rows
    mean.set_data(batches.X.numpy())
    view.num_data = batches.num_data
    solver = ConjugateGradients() if isinstance(solver, MeanSolver) else solver
    step = DataMeanStep(
        model,
        mean,
        view,
        coupled,
        batches.whole,
        arrays.batch_size,
        solver,
        choices.limits,
        choices.group,
    )
    return step, batches


def undo_of(mean: DataMean) -> Callable[[], None]:
    """What gives a mean the points [N, D] and coefficients [N, L] back that it has now."""
    points, size, coefficients = mean.points, mean.size, mean.coefficients

    def undo() -> None:
        mean.points, mean.size, mean.coefficients = points, size, coefficients

    return undo
