"""Inducing variables of GPflow as models take them: made from arrays, checked, counted."""

from __future__ import annotations

__all__ = ["as_inducing", "check_separate", "count_points", "input_dims", "point_values"]

from typing import Any

from gpflow.inducing_variables import InducingPoints, InducingVariables, SharedIndependentInducingVariables
from gpflow.kernels import Kernel, MultioutputKernel

from .checks import check_disjoint, check_inducing


def as_inducing(points: Any, name: str, kernel: Kernel | None = None) -> InducingVariables:
    """Arrays [M, D] become trainable inducing points, shared by the latents of a multi-output kernel.

    Inducing variables pass through. Raises `DataError` for arrays that are not distinct finite points.
    """
    if isinstance(points, InducingVariables):
        for values in point_values(points):
            check_inducing(values, name)
        return points
    check_inducing(points, name)
    variable = InducingPoints(points)
    return SharedIndependentInducingVariables(variable) if isinstance(kernel, MultioutputKernel) else variable


def check_separate(gamma: InducingVariables, beta: InducingVariables) -> None:
    """Refuse a gamma that equals beta, warn of one that overlaps it: `check_disjoint` of each latent function."""
    for mean_points, points in zip(point_values(gamma), point_values(beta)):
        check_disjoint(mean_points, points)


def point_values(variable: InducingVariables) -> list[Any]:
    """The plain points [M, D] in an inducing variable: one array a latent function, or one for all."""
    parts = getattr(variable, "inducing_variables", (variable,))
    return [part.Z for part in parts if type(part) is InducingPoints]


def count_points(variable: InducingVariables) -> int:
    """M, as a number also while tracing."""
    size = variable.shape[0]
    return int(variable.num_inducing) if size is None else int(size)


def input_dims(variable: InducingVariables) -> int | None:
    """D where the inducing points live in the space of the inputs, else None."""
    points = point_values(variable)
    return int(points[0].shape[1]) if points else None
