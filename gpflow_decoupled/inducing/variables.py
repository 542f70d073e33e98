"""Inducing variables from arrays."""

from __future__ import annotations

__all__ = [
    "as_inducing",
    "check_indices_of",
    "check_separate",
    "count_points",
    "fixed_points",
    "input_dims",
    "point_values",
]

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType
from gpflow.config import default_float
from gpflow.inducing_variables import (
    InducingPoints,
    InducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels import Kernel, MultioutputKernel
from numpy.typing import ArrayLike

from ..covariances.indices import check_indices
from ..errors import DataError
from ..inputs import as_array
from .point_checks import check_disjoint, check_inducing


def as_inducing(
    points: ArrayLike | TensorType | InducingVariables, name: str, kernel: Kernel | None = None
) -> InducingVariables:
    """Return inducing variables of an array, or checked inducing variables unchanged.

    :param points: an array [M, D], which becomes trainable inducing points, or inducing variables.
    :param kernel: a multi-output kernel's latents share the points.
    """
    if isinstance(points, InducingVariables):
        for values in point_values(points):
            check_inducing(values, name)
        return points
    if isinstance(points, str):
        raise DataError(
            f'{name}={points!r}: pass points [M, D]. A mean on all data is gamma="data" of'
            " ODVGP, or a MeanOnDataBasis(beta)."
        )
    check_inducing(points, name)
    variable = InducingPoints(as_array(points, name))
    return (
        SharedIndependentInducingVariables(variable)
        if isinstance(kernel, MultioutputKernel)
        else variable
    )


def fixed_points(X: ArrayLike) -> InducingPoints:
    """Return inputs [N, D] as points that are never trained, even by `gpflow.set_trainable`."""
    # With moved inputs the posterior would be of other data.
    values = tf.constant(np.asarray(X, default_float()))
    # no values, which workers would send around
    points = InducingPoints(tf.zeros([1, values.shape[1]], values.dtype))
    # a constant: `gpflow.set_trainable` would train a Parameter or a variable
    points.Z = values
    return points


def check_separate(gamma: InducingVariables, beta: InducingVariables) -> None:
    """Apply `check_disjoint` to the points of each latent."""
    for mean_points, points in zip(point_values(gamma), point_values(beta)):
        check_disjoint(mean_points, points)


def check_indices_of(variable: InducingVariables, name: str, kernel: Kernel) -> None:
    """Refuse points whose entries are no index where the kernel reads one.

    :param name: for the message, for example "gamma".
    """
    for points in point_values(variable):
        check_indices(tf.convert_to_tensor(points), name, kernel)


def point_values(variable: InducingVariables) -> list[TensorType]:
    """The inducing points [M, D], one array per latent or one shared; none for `Weights`."""
    parts = getattr(variable, "inducing_variables", (variable,))
    return [part.Z for part in parts if type(part) is InducingPoints]


def count_points(variable: InducingVariables) -> int:
    """The number M of inducing variables, a Python integer also inside a `tf.function`."""
    size = variable.shape[0]
    return int(variable.num_inducing) if size is None else int(size)


def input_dims(variable: InducingVariables) -> int | None:
    """The number D of input columns; None unless the variables are points of the input space."""
    points = point_values(variable)
    return int(points[0].shape[1]) if points else None
