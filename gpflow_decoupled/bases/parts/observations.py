"""Fixed inputs, and a number per observation."""

from __future__ import annotations

__all__ = ["OnObservations", "observation_points", "per_observation"]

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from gpflow import Parameter
from gpflow.config import default_float
from gpflow.inducing_variables import SharedIndependentInducingVariables

from ...errors import DataError
from ...inducing.point_checks import check_finite
from ...inducing.variables import fixed_points
from ...inputs import check_whole


class OnObservations:
    """Members of a basis whose points are the inputs of the observations, a mixin."""

    points: SharedIndependentInducingVariables

    @property
    def X(self) -> tf.Tensor:
        """The inputs [N, D]."""
        return tf.convert_to_tensor(self.points.inducing_variable.Z)

    @property
    def sizes(self) -> dict[str, int | str]:
        """The number of observations N."""
        return {"N": self.num_data}

    @property
    def num_data(self) -> int:
        """The number of observations N."""
        return int(self.X.shape[0])


def observation_points(points: npt.ArrayLike) -> SharedIndependentInducingVariables:
    """Inputs X [N, D] as untrained inducing points; `DataError` unless finite and of rank 2."""
    points = np.asarray(points)
    if points.ndim != 2:
        raise DataError(
            f"points has shape {points.shape}; it must be [N, D], the inputs of the observations."
        )
    check_finite(points, "points")
    return SharedIndependentInducingVariables(fixed_points(points))


def per_observation(
    name: str, value: npt.ArrayLike | None, num_data: int, latents: int, neutral: str
) -> Parameter:
    """A Parameter [N, L] without gradient training, by default zero."""
    check_whole(1, num_latent_gps=latents)
    shape = (num_data, latents)
    value = np.zeros(shape) if value is None else np.asarray(value)
    if value.shape != shape:
        raise DataError(
            f"{name} has shape {value.shape}; it must be [N, L] = {list(shape)}, one row per"
            " observation."
        )
    if not np.all(np.isfinite(value)):
        raise DataError(f"{name} has entries that are not finite; {neutral}.")
    return Parameter(value, dtype=default_float(), trainable=False)
