"""What bases on the data themselves hold: the inputs of the observations, and numbers for each of them."""

from __future__ import annotations

__all__ = ["observation_points", "per_observation"]

from typing import Any

import numpy as np
from gpflow import Parameter
from gpflow.config import default_float
from gpflow.inducing_variables import InducingPoints, SharedIndependentInducingVariables
from gpflow.utilities import set_trainable

from ...errors import DataError
from ...inducing.checks import check_finite


def observation_points(points: Any) -> SharedIndependentInducingVariables:
    """Inputs X [N, D] as points that stay fixed and serve kernels of every kind. Raises `DataError` for unusable ones."""
    points = np.asarray(points)
    if points.ndim != 2:
        raise DataError(f"points has shape {points.shape}; it must be [N, D], the inputs of the observations.")
    check_finite(points, "points")
    inputs = SharedIndependentInducingVariables(InducingPoints(points))
    set_trainable(inputs, False)
    return inputs


def per_observation(name: str, value: Any | None, num_data: int, latents: int, neutral: str) -> Parameter:
    """A fixed Parameter [N, L], zero if not given.

    :param neutral: in words, what says nothing of an observation. Raises `DataError` for another shape or what is not finite.
    """
    shape = (num_data, latents)
    value = np.zeros(shape) if value is None else np.asarray(value)
    if value.shape != shape:
        raise DataError(f"{name} has shape {value.shape}; it must be [N, L] = {list(shape)}, one an observation.")
    if not np.all(np.isfinite(value)):
        raise DataError(f"{name} has entries that are not finite; {neutral}.")
    return Parameter(value, dtype=default_float(), trainable=False)
