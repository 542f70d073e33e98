"""Parts of a model that are in units of Y, for a model of standardised Y."""

from __future__ import annotations

__all__ = ["StandardizedMean", "fixed_numbers_inside"]

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import TensorType
from gpflow.functions import MeanFunction
from gpflow.likelihoods import Gaussian, Likelihood, StudentT

from ...errors import DataError
from ...likelihoods import AsymmetricLaplace, CensoredNormal, Laplace, RowLikelihood
from ..standardization import Standardization


class StandardizedMean(MeanFunction):
    """A mean function of Y in its units, less the mean of Y, over its deviation.

    :param function: m(x) [N, P] in units of Y; its Parameters are trained.
    :param outputs: of Y [N, P].
    """

    def __init__(self, function: MeanFunction, outputs: Standardization) -> None:
        super().__init__()
        self.function = function
        self.shift, self.scale = outputs.mean.numpy(), outputs.scale.numpy()

    def __call__(self, X: TensorType) -> tf.Tensor:
        values = tf.convert_to_tensor(self.function(X))
        dtype = values.dtype
        return (values - tf.constant(self.shift, dtype)) / tf.constant(self.scale, dtype)


def fixed_numbers_inside(likelihood: Likelihood, outputs: Standardization) -> bool:
    """Divide a variance or scale of noise that does not train by that of Y.

    Others are starts, of standardised Y as the kernel's variance is.

    :param likelihood: changed in place.
    :param outputs: of Y [N, P].
    :return: True if it had such a number.
    :raises DataError: for outputs of different scale that share it, unless the noise is Gaussian.
    """
    if isinstance(likelihood, RowLikelihood):
        return fixed_numbers_inside(likelihood.likelihood, outputs)
    if not isinstance(likelihood, (Gaussian, StudentT, Laplace, AsymmetricLaplace, CensoredNormal)):
        return False
    squared = isinstance(likelihood, Gaussian) and likelihood.variance is not None
    name = "variance" if squared else "scale"
    old = getattr(likelihood, name)
    if not isinstance(old, gpflow.Parameter) or old.trainable:
        return False
    scale = outputs.scale.numpy()
    scale = scale[:1].reshape(()) if np.ptp(scale) == 0.0 else scale
    kind = type(likelihood).__name__
    if scale.ndim and not isinstance(likelihood, Gaussian):
        raise DataError(
            f"the {name} of your {kind} does not train, and outputs of different scale share it:"
            ' pass scale="X", so that Y stays in its units.'
        )
    factor = 1.0 / (np.square(scale) if squared else scale)
    bound = f"{name}_lower_bound"
    least = getattr(likelihood, bound, 0.0) * float(np.min(factor))
    if hasattr(likelihood, bound):
        setattr(likelihood, bound, least)
    value = gpflow.Parameter(
        old.numpy() * factor,
        transform=gpflow.utilities.positive(lower=least),
        trainable=False,
        dtype=old.dtype,
    )
    setattr(likelihood, name, value)
    return True
