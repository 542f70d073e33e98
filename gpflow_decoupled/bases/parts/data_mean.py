"""A mean function sum_n k(x, x_n) a_n whose points are the training inputs themselves, however many
they are.
"""

from __future__ import annotations

__all__ = ["DataMean", "data_points", "mean_points", "refuse_streams", "refuse_white"]

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import Module, TensorType
from gpflow.config import default_float
from gpflow.inducing_variables import InducingVariables, SharedIndependentInducingVariables
from gpflow.kernels import Kernel, White

from ...covariances.latents import MULTIOUTPUT_INDUCING
from ...errors import DataError, ModelError, check_option
from ...inducing.variables import check_separate, fixed_points, input_dims
from ...inputs import check_whole
from ...summaries import short_repr
from .kernel_mean import KernelMean
from .scaling import SCALINGS, MeanScaling


def mean_points(
    gamma: InducingVariables | TensorType | str,
    beta: InducingVariables,
    num_latent_gps: int,
    scaling: str,
    subsample: int | None,
) -> KernelMean:
    """The mean points of an `OrthogonalBasis`: a `DataMean` for gamma = "data", else a
    `KernelMean`.

    :param gamma: points [M_gamma, D], inducing variables, or "data".
    :param beta: the inducing variables of the covariance.
    :param num_latent_gps: L.
    :param scaling: see `MeanScaling`.
    :param subsample: rows of the estimate (D25), or None.
    :raises UnknownOptionError: for another word than "data", or an unknown scaling.
    :raises DataError: for points that are not finite and distinct, a gamma that equals beta, and
        for "data" beside inducing variables that are not points of the input space, or with a
        subsample.
    """
    if not isinstance(gamma, str):
        points = KernelMean(gamma, "gamma", num_latent_gps, scaling, subsample)
        check_separate(points.points, beta)
        return points
    check_option("gamma", gamma, ("data",))
    dims = input_dims(beta)
    if dims is None:
        raise DataError(
            f'gamma="data" needs a beta of inducing points, and {type(beta).__name__} is none: pass'
            " points [M, D] as beta, or choose gamma by inducing.select(X, M, kernel)."
        )
    check_option("mean_scaling", scaling, SCALINGS)
    if subsample is not None:
        raise DataError(
            f'mean_subsample={short_repr(subsample)}: gamma="data" computes the norm of the mean in'
            " full; leave the option out."
        )
    return DataMean(dims, num_latent_gps, isinstance(beta, MULTIOUTPUT_INDUCING))


def data_points(X: TensorType, shared: bool) -> InducingVariables:
    """Inputs X [N, D] as points of a mean, which the latents of a multi-output kernel may share."""
    points = fixed_points(X)
    return SharedIndependentInducingVariables(points) if shared else points


def refuse_streams(data: object) -> None:
    """Raise `DataError` for data that come in batches: a `tf.data.Dataset`, or a function that
    returns them.
    """
    if isinstance(data, tf.data.Dataset) or callable(data):
        kind = "function" if callable(data) else "tf.data.Dataset"
        raise DataError(
            f'gamma="data" needs all data in memory, and a {kind} is a stream: pass arrays (X, Y),'
            " or choose mean points by inducing.select(X, M, kernel, given=beta)."
        )


def refuse_white(kernel: Kernel) -> None:
    """Raise `ModelError` for a kernel with a `White` part: rows of the data have it in their own
    entry of K a, others not.
    """
    if any(isinstance(part, White) for part in (kernel, *kernel.submodules)):
        raise ModelError(
            'gamma="data" takes no White kernel, which the mean would have at the training rows and'
            " not where the model is evaluated, so that the bound would not be that of the model:"
            " leave White out, and add its variance to the noise variance of a Gaussian likelihood,"
            " or choose gamma by inducing.select(X, M, kernel, given=beta)."
        )


class DataMean(KernelMean):
    """The mean on all training inputs. It has no points, and adds nothing, until `set_data` is
    called.

    The coefficients are found by `optimizers.ConjugateGradients`,
    `optimizers.StochasticDualDescent` or `fit`, and never by the gradient steps of a Keras
    optimizer. The inputs may repeat: the coefficients of equal rows add up. Products with the
    kernel matrix are computed in blocks, and nothing of the size N x M is stored.

    :param num_dims: D, the columns of the inputs.
    :param num_latent_gps: L.
    :param shared: whether the latents of a multi-output kernel share the inputs.
    """

    stored = False

    def __init__(self, num_dims: int, num_latent_gps: int, shared: bool) -> None:
        Module.__init__(self)
        check_whole(1, num_latent_gps=num_latent_gps)
        self.shared, self.subsample = shared, None
        self.scaling = MeanScaling("none", 0)
        self._take(np.zeros((0, num_dims)), num_latent_gps)

    def set_data(self, X: np.ndarray) -> None:
        """Take the training inputs X [N, D] as mean points, with coefficients zero.

        Nothing is changed where these are the points already: their coefficients are a good start.
        """
        if not self.has_data(X):
            self._take(X, int(self.coefficients.shape[1]))

    def has_data(self, X: np.ndarray) -> bool:
        """Whether the rows of X [N, D] are the mean points."""
        return self.size == len(X) and np.array_equal(self.inputs.numpy(), X)

    @property
    def inputs(self) -> tf.Tensor:
        """The mean points [N, D]; N = 0 before `set_data`."""
        part = self.points.inducing_variables[0] if self.shared else self.points
        return tf.convert_to_tensor(part.Z)

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
