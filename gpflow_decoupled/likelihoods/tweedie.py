"""Amounts with exact zeros, such as rain or claims."""

from __future__ import annotations

__all__ = ["Tweedie"]

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import MeanAndVariance, TensorType
from gpflow.config import default_float
from gpflow.likelihoods import ScalarLikelihood

from ..errors import DataError
from ..expectations.log_means import log_mean_exp
from ..probability import tfp
from ..summaries import short_repr
from .counts import deviation_of
from .parameters import positive_parameter

_LIMIT = 80.0
"""Exponents are clipped there: e^80 is finite in single precision."""
_LOWEST, _HIGHEST = 1.01, 1.99
"""Of the power: at 1 and 2 the density is a sum of points, or has no mass at zero."""
_HALF, _REACH = 64, 9.0
"""Terms of the series on each side of its greatest one, and the deviations that they reach."""


class Tweedie(ScalarLikelihood):
    """y >= 0 of mean m = e^f and variance phi m^p, 1 < p < 2: a Poisson number of gamma amounts.

    Log-concave; the normaliser is a series (Dunn & Smyth, 2005), accurate to 1e-8 nats for y^(2 -
    p) / phi up to 1e5.

    :param dispersion: phi, above 0.
    :param power: p, between 1.01 and 1.99.
    :param kwargs: of `gpflow.likelihoods.ScalarLikelihood`.

    Example::

        model = gd.build(X, claims, "tweedie")
        gd.fit(model)
        mean, variance = model.predict_y(Xnew)
    """

    def __init__(self, dispersion: float = 1.0, power: float = 1.5, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.dispersion: Parameter = positive_parameter(dispersion, "dispersion")
        if isinstance(power, Parameter):
            self.power = power
            return
        if not isinstance(power, float) or not _LOWEST < power < _HIGHEST:
            raise DataError(
                f"power={short_repr(power)} must be a number between {_LOWEST} and {_HIGHEST}, for"
                " example 1.5."
            )
        low, high = (np.array(end, default_float()) for end in (_LOWEST, _HIGHEST))
        self.power = Parameter(power, transform=tfp.bijectors.Sigmoid(low, high))

    def expected_log_prob(self, mean: tf.Tensor, spread: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        """E log p(y | f), f ~ N(mean, spread^2), in nats [..., P]; spread of either sign."""
        p, phi = tf.convert_to_tensor(self.power), tf.convert_to_tensor(self.dispersion)
        half = 0.5 * tf.square(spread)
        number = _exp((2.0 - p) * mean + tf.square(2.0 - p) * half) / (2.0 - p)
        amounts = Y * _exp(-(p - 1.0) * mean + tf.square(p - 1.0) * half) / (p - 1.0)
        return -(number + amounts) / phi + _log_normaliser(Y, phi, p)

    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        F = tf.convert_to_tensor(F)
        return self.expected_log_prob(F, tf.zeros([], F.dtype), Y)

    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        mean = tf.convert_to_tensor(Fmu)
        return tf.reduce_sum(self.expected_log_prob(mean, deviation_of(Fvar), Y), axis=-1)

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self._predict_mean_and_var(X, F, tf.zeros_like(F))[0]

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self._predict_mean_and_var(X, F, tf.zeros_like(F))[1]

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        p, half = tf.convert_to_tensor(self.power), 0.5 * _LIMIT
        mean = tf.exp(tf.minimum(Fmu + 0.5 * Fvar, half))
        own = self.dispersion * _exp(p * Fmu + 0.5 * tf.square(p) * Fvar)
        return mean, own + tf.square(mean) * tf.math.expm1(tf.minimum(Fvar, half))

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        p, phi = tf.convert_to_tensor(self.power), tf.convert_to_tensor(self.dispersion)
        zero, some = Y == 0.0, tf.where(Y == 0.0, tf.ones_like(Y), Y)
        centre = tf.where(zero, tf.math.log(phi * (2.0 - p)) / (2.0 - p), tf.math.log(some))
        width = tf.where(zero, 1.0 / (2.0 - p), tf.sqrt(phi * some ** (p - 2.0)))
        found = log_mean_exp(
            lambda f: self._scalar_log_prob(X, f, Y), tf.convert_to_tensor(Fmu), Fvar, centre, width
        )
        return tf.reduce_sum(found, axis=-1)


def _exp(exponent: tf.Tensor) -> tf.Tensor:
    return tf.exp(tf.minimum(exponent, _LIMIT))


def _log_normaliser(y: tf.Tensor, phi: tf.Tensor, p: tf.Tensor) -> tf.Tensor:
    """log a(y, phi, p), with p(y) = a exp(-(y m^(1 - p) / (p - 1) + m^(2 - p) / (2 - p)) / phi)."""
    # a = (1 / y) sum_j W_j over the numbers j >= 1 of amounts. Greatest at j = y^(2 - p) / (phi (2
    # - p)), deviation sqrt(j (p - 1)); if wide, every h-th term counts h times.
    zero = y == 0.0
    y = tf.where(zero, tf.ones_like(y), y)
    shape = (2.0 - p) / (p - 1.0)
    top = y ** (2.0 - p) / (phi * (2.0 - p))
    step = tf.maximum(_REACH * tf.sqrt(top * (p - 1.0)) / _HALF, 1.0)
    first = tf.where(step > 1.0, top - _HALF * step, tf.maximum(tf.floor(top) - _HALF, 1.0))
    steps = tf.constant(np.arange(2.0 * _HALF + 1.0).reshape([-1] + [1] * len(y.shape)), y.dtype)
    j, step = tf.stop_gradient(first + steps * step), tf.stop_gradient(step)
    # the amounts' rate is (p - 1) phi, at m = 1
    log_terms = j * (
        shape * (tf.math.log(y) - tf.math.log(p - 1.0)) - (1.0 + shape) * tf.math.log(phi)
        - tf.math.log(2.0 - p)
    ) - tf.math.lgamma(j + 1.0) - tf.math.lgamma(j * shape)  # fmt: skip
    total = tf.reduce_logsumexp(log_terms, axis=0) + tf.math.log(step) - tf.math.log(y)
    return tf.where(zero, tf.zeros_like(total), total)
