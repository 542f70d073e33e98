"""The stages of `gamma="data"`."""

from __future__ import annotations

__all__ = ["BY_NAME", "plan_on_data", "undo_of"]

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import numpy as np
import tensorflow as tf

from ...bases.parts.data_mean import DataMean, refuse_streams
from ...inputs import stays_on_disk
from ...models import BasisGP
from ...optimizers import ConjugateGradients
from ..batches import ArrayBatches, Data
from ..options import Options
from ..plan import Plan
from ..schedules import MeanSolver
from ..stages.solve_mean import MeanSolves
from ..workers import refuse_other_run
from .course import Course
from .minibatches import plan_on_minibatches

BY_NAME = "conjugate_gradients"
"""The `mean_solver` that stands for a `ConjugateGradients()`."""


def plan_on_data(model: BasisGP, mean: DataMean, data: Data, options: Options) -> Plan:
    """Return the plan; the data become the mean points, which `undo_of` reverts."""
    refuse_streams(data)
    if isinstance(data, (tuple, list)):
        data = [np.asarray(array) if stays_on_disk(array) else array for array in data]
    view = BasisGP(
        model.kernel,
        model.likelihood,
        model.basis.without_mean_points(),
        mean_function=model.mean_function,
        expectations=model.expectations,
        bound=model.bound,
    )
    coupled = plan_on_minibatches(view, data, replace(options, mean_solver=MeanSolver()))
    batches = cast(ArrayBatches, coupled.batches)
    # new coefficients are sent to all workers, and need the same rows
    refuse_other_run(options.group, lambda: batches.settings)
    mean.set_data(batches.X.numpy())
    view.num_data = batches.num_data
    solver = options.mean_solver
    solver = ConjugateGradients() if isinstance(solver, MeanSolver) else solver
    whole = batches.X, batches.Y
    solves = MeanSolves(model, whole, solver, options.group)
    course = Course(model, view, coupled, solves, options)

    def probe(X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        bound = solves.bound(X, Y)
        return coupled.soundness(X, Y, seed) if bound is None else bound

    return replace(
        coupled,
        parts=course.parts(),
        others=[course.rounds, *([] if course.climb is None else [course.climb])],
        whole=whole,
        bound=solves.bound,
        probe=probe,
        closing=solves.closing,
        timed=course.timed if options.seconds is not None else None,
    )


def undo_of(mean: DataMean) -> Callable[[], None]:
    """Return a callback that gives a mean its present points [N, D] and coefficients [N, L]."""
    points, size, coefficients = mean.points, mean.size, mean.coefficients

    def undo() -> None:
        mean.points, mean.size, mean.coefficients = points, size, coefficients

    return undo
