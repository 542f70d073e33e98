"""Censored Gaussian noise: Tobit."""

from __future__ import annotations

__all__ = ["CensoredNormal", "log_normal_terms"]

import math

import numpy.typing as npt
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import MeanAndVariance, TensorType

from ...expectations.peaked import peaked_mean
from ...special.normal import log_normal_cdf
from ..parameters import positive_parameter
from .censored import CensoredLikelihood

_BEND = (-1.92, 2.82)
"""Real part and distance from the real line of the nearest zeros of Phi."""


class CensoredNormal(CensoredLikelihood):
    """Gaussian noise with censored observations (Tobin, 1958): y = f + s N(0, 1).

    Y [N, P + 1] ends with a column of codes: 0 observed, 1 true value above y, -1 below.
    Log-concave. Expectations are closed forms where y is observed, and accurate to 1e-9 elsewhere;
    predictions are closed forms.

    :param scale: s, the standard deviation of the noise, above 0.
    :param kwargs: of `gpflow.likelihoods.ScalarLikelihood`.

    Example::

        model = gd.build(X, y, "tobit", censored=np.where(y <= detection_limit, -1, 0))
        gd.fit(model)
        mean, variance = model.predict_y(Xnew)  # of values that no limit hides
    """

    def __init__(self, scale: npt.ArrayLike = 1.0, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.scale: Parameter = positive_parameter(scale, "scale")

    def noise_scale(self) -> tf.Tensor:
        return tf.convert_to_tensor(self.scale)

    def log_terms(self, z: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        return log_normal_terms(z)

    def mean_terms(self, z: tf.Tensor, spread: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        centre, width = (tf.constant(number, z.dtype) for number in _BEND)
        density = log_normal_terms(z)[0] - 0.5 * tf.square(spread)
        above = peaked_mean(lambda x: log_normal_cdf(-x), z, spread, -centre, width)
        return density, above, peaked_mean(log_normal_cdf, z, spread, centre, width)

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.identity(F)

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.square(self.scale) + tf.zeros_like(F)

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        return tf.identity(Fmu), Fvar + tf.square(self.scale)

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        # f plus noise is normal: the same three terms with both variances
        y, code = self.split(Y)
        scale = self.noise_scale()
        total = tf.sqrt(Fvar + tf.square(scale))
        density, above, below = log_normal_terms((self.transformed(y) - Fmu) / total)
        density -= tf.math.log(total / scale)  # `_chosen` subtracts log scale
        return tf.reduce_sum(self._chosen(y, code, (density, above, below)), axis=-1)


def log_normal_terms(z: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Logarithms of phi(z), Phi(-z) and Phi(z), of the shape [...] of z."""
    density = -0.5 * (tf.square(z) + math.log(2.0 * math.pi))
    return density, log_normal_cdf(-z), log_normal_cdf(z)
