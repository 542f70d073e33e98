"""A mean whose points are all training inputs."""

from __future__ import annotations

__all__ = ["DataMean", "data_points", "refuse_streams", "refuse_white"]

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import Module, TensorType
from gpflow.config import default_float
from gpflow.inducing_variables import InducingVariables, SharedIndependentInducingVariables
from gpflow.kernels import Kernel, White

from ...covariances.products import gram_product
from ...errors import DataError, ModelError
from ...inducing.variables import fixed_points
from ...inputs import check_whole


class DataMean(Module):
    """The mean sum_n k(x, x_n) a_n on all training inputs, zero until `set_data`.

    Solvers set the coefficients, which are not trainable.

    :param shared: the latents of a multi-output kernel share the inputs.
    """

    points: InducingVariables
    size: int
    coefficients: Parameter

    def __init__(self, num_dims: int, num_latent_gps: int, shared: bool) -> None:
        super().__init__()
        check_whole(1, num_latent_gps=num_latent_gps)
        self.shared = shared
        self._take(np.zeros((0, num_dims)), num_latent_gps)

    def set_data(self, X: np.ndarray) -> None:
        """Make X [N, D] the mean points, with zero coefficients; the same X keeps its own."""
        if not self.has_data(X):
            self._take(X, int(self.coefficients.shape[1]))

    def has_data(self, X: np.ndarray) -> bool:
        """True if the rows of X [N, D] are the mean points."""
        return self.size == len(X) and np.array_equal(self.inputs.numpy(), X)

    @property
    def inputs(self) -> tf.Tensor:
        """The mean points [N, D]; N = 0 before `set_data`."""
        part = self.points.inducing_variables[0] if self.shared else self.points
        return tf.convert_to_tensor(part.Z)

    def raw(self) -> tf.Tensor:
        """The coefficients a [N, L]."""
        return tf.convert_to_tensor(self.coefficients)

    def values(
        self, kernel: Kernel, a: tf.Tensor, X: tf.Tensor | InducingVariables | None
    ) -> tf.Tensor:
        """The mean [n, L] at inputs X [n, D], inducing variables, or the mean points; n N."""
        return gram_product(kernel, self.points, X, a)

    def _take(self, X: np.ndarray, latents: int) -> None:
        self.points = data_points(X, self.shared)
        self.size = len(X)
        empty = self.size == 0 and tf.distribute.has_strategy()
        # workers tell each other the value of a new variable, and TensorFlow crashes where that has
        # no entries
        values = np.zeros((1 if empty else self.size, latents))
        shape = (None, latents) if empty else None
        self.coefficients = Parameter(values, dtype=default_float(), trainable=False, shape=shape)
        if empty:
            self.coefficients.assign(values[:0])


def data_points(X: TensorType, shared: bool) -> InducingVariables:
    """Inputs X [N, D] as mean points, shared by the latents of a multi-output kernel or not."""
    points = fixed_points(X)
    return SharedIndependentInducingVariables(points) if shared else points


def refuse_streams(data: object) -> None:
    """Raise `DataError` for data in batches: a `tf.data.Dataset` or a function."""
    if isinstance(data, tf.data.Dataset) or callable(data):
        kind = "function" if callable(data) else "tf.data.Dataset"
        raise DataError(
            f'gamma="data" needs all data in memory, and a {kind} is a stream: pass arrays (X, Y),'
            " or choose mean points by inducing.select(X, M, kernel, given=beta)."
        )


def refuse_white(kernel: Kernel) -> None:
    """Raise `ModelError` for a kernel with a `White` part."""
    # K a would contain its variance at training rows, k(x, X) a nowhere else.
    if any(isinstance(part, White) for part in (kernel, *kernel.submodules)):
        raise ModelError(
            'gamma="data" takes no White kernel, which the mean would have at the training rows and'
            " not where the model is evaluated, so that another model would have this bound:"
            " leave White out, and add its variance to the noise variance of a Gaussian likelihood,"
            " or choose gamma by inducing.select(X, M, kernel, given=beta)."
        )
