"""Times to an event, rising or falling hazard."""

from __future__ import annotations

__all__ = ["Weibull"]

import math

import tensorflow as tf
from gpflow import Parameter
from gpflow.base import MeanAndVariance, TensorType

from ...expectations.log_means import log_mean_exp
from ...expectations.peaked import peaked_mean
from ..parameters import positive_parameter
from .censored import CensoredLikelihood
from .log_normal import exp_moments

_LIMIT = 80.0
"""Exponents are clipped there: e^80 is finite in single precision."""
_LEAST = 1e-30
"""Below it e^z and 1 - exp(-e^z) are the same number."""
_BEND = (math.log(2.0 * math.pi), 0.5 * math.pi)
"""log(1 - exp(-e^z)) is singular where e^z = 2 pi i."""


class Weibull(CensoredLikelihood):
    """Positive observations of scale e^f and shape k, P(y > t) = exp(-(t / e^f)^k).

    The hazard grows with time for k > 1, falls for k < 1; k = 1 is exponential. Y [N, P + 1] ends
    with a column of codes: 0 observed, 1 true value above y, -1 below. Log-concave. Expected log
    densities are closed forms where y is observed or right-censored, accurate to 1e-9 where
    left-censored; log densities to 1e-8; moments are closed forms.

    :param shape: k, above 0.
    :param kwargs: of `gpflow.likelihoods.ScalarLikelihood`.

    Example::

        model = gd.build(X, months, "weibull", censored=np.where(died, 0, 1))
        gd.fit(model)
    """

    of_logarithms = True

    def __init__(self, shape: float = 1.0, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.shape: Parameter = positive_parameter(shape, "shape")

    def noise_scale(self) -> tf.Tensor:
        return 1.0 / tf.convert_to_tensor(self.shape)

    def log_terms(self, z: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        return z - _exp(z), -_exp(z), _log_below(z)

    def mean_terms(self, z: tf.Tensor, spread: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        hazard = _exp(z + 0.5 * tf.square(spread))  # cumulated until y
        centre, width = (tf.constant(number, z.dtype) for number in _BEND)
        return z - hazard, -hazard, peaked_mean(_log_below, z, spread, centre, width)

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self._predict_mean_and_var(X, F, tf.zeros_like(F))[0]

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self._predict_mean_and_var(X, F, tf.zeros_like(F))[1]

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        # E y^j given f is e^(j f) Gamma(1 + j / k)
        first, second = (tf.math.lgamma(1.0 + j / self.shape) for j in (1.0, 2.0))
        return exp_moments(Fmu + 0.5 * Fvar + first, Fvar + second - 2.0 * first)

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        centre = tf.math.log(self.split(Y)[0])
        found = log_mean_exp(
            lambda f: self._scalar_log_prob(X, f, Y),
            tf.convert_to_tensor(Fmu),
            Fvar,
            centre,
            1.0 / self.shape,
        )
        return tf.reduce_sum(found, axis=-1)


def _exp(z: tf.Tensor) -> tf.Tensor:
    return tf.exp(tf.minimum(z, _LIMIT))


def _log_below(z: tf.Tensor) -> tf.Tensor:
    hazard = tf.maximum(_exp(z), _LEAST)
    return tf.minimum(z, _LIMIT) + tf.math.log(-tf.math.expm1(-hazard) / hazard)
