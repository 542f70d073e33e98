"""Checks of held-out data, in GPs that own their rows."""

from __future__ import annotations

__all__ = ["OwnRows"]

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.models import InternalDataTrainingLossMixin

from ...inputs import as_array, as_pair
from ..checks import CheckedPredictions, as_observations, check_shapes_of_data, check_values


class OwnRows(CheckedPredictions, InternalDataTrainingLossMixin):
    """A GP on nearest neighbours, which owns its data X [N, D] and Y [N, P]."""

    data: tuple[tf.Tensor, tf.Tensor]

    @property
    def num_dims(self) -> int:
        """D of the data."""
        return int(self.data[0].shape[1])

    def checked(self, data: RegressionData) -> tuple[tf.Tensor, tf.Tensor]:
        """Held-out X [N, D] and Y [N, P] as tensors, values checked where known."""
        X, Y = (as_array(array, name, self.float_type) for array, name in zip(as_pair(data), "XY"))
        check_shapes_of_data(
            X, Y, self.likelihood, self.num_latent_gps, self.num_dims, self.float_type
        )
        x, y = (a if isinstance(a, np.ndarray) else tf.get_static_value(a) for a in (X, Y))
        if x is not None and y is not None:
            check_values(x, y, self.likelihood, self.kernel, self.mean_function)
        return tf.convert_to_tensor(X), as_observations(Y, self.likelihood, self.float_type)

    as_tensors = checked
    """Held-out data have values, so the checks are the same."""
