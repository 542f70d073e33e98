"""Successes of a probability that varies from row to row."""

from __future__ import annotations

__all__ = ["BetaBinomial"]

import math

import tensorflow as tf
from gpflow import Parameter
from gpflow.base import TensorType

from ...expectations.log_means import log_mean_exp
from ...expectations.peaked import peaked_mean
from ..parameters import positive_parameter
from .binomial import Binomial, deviation_of, log_choices, logit_peak


class BetaBinomial(Binomial):
    """Successes y in t trials of a probability that is Beta(c p, c (1 - p)), p = 1 / (1 + e^-f).

    The variance of y is t p (1 - p) (c + t) / (c + 1): overdispersed; `Binomial` as c grows. Y
    [N, P + 1] ends with a column of t. Not log-concave. Expected log densities are accurate to
    1e-8, log densities to 1e-9. `predict_y` is of one trial.

    :param concentration: c, above 0; smaller means more dispersion.
    :param kwargs: of `gpflow.likelihoods.ScalarLikelihood`.

    Example::

        data = X, np.hstack([successes, trials])
        model = CVIGP(data, gpflow.kernels.Matern52(), BetaBinomial(concentration=5.0))
        fit(model)
    """

    def __init__(self, concentration: float = 10.0, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.concentration: Parameter = positive_parameter(concentration, "concentration")

    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        y, trials = self.split(Y)
        F, c = tf.convert_to_tensor(F), tf.convert_to_tensor(self.concentration)
        rising = _log_rising(F, c, y) + _log_rising(-F, c, trials - y)
        return log_choices(trials, y) + rising - _log_rise(c, trials)

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        y, trials = self.split(Y)
        c = tf.convert_to_tensor(self.concentration)
        centre, width = logit_peak(y, trials)
        width *= tf.sqrt((c + trials) / (c + 1.0))
        mean = tf.convert_to_tensor(Fmu)
        found = log_mean_exp(lambda f: self._scalar_log_prob(X, f, Y), mean, Fvar, centre, width)
        return tf.reduce_sum(found, axis=-1)

    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        # log (c p)_y bends where c p = i for a number i < y, at f = log(i / (c + i)) +- pi i, and
        # log (c (1 - p))_(t - y) at the mirror images: each part has nodes about its own bends
        y, trials = self.split(Y)
        c = tf.convert_to_tensor(self.concentration)
        bend = -0.5 * tf.math.log1p(c)
        width = tf.constant(math.pi, bend.dtype)
        mean, spread = tf.convert_to_tensor(Fmu), deviation_of(Fvar)
        up = peaked_mean(lambda f: _log_rising(f, c, y), mean, spread, bend, width)
        down = peaked_mean(lambda f: _log_rising(-f, c, trials - y), mean, spread, -bend, width)
        return tf.reduce_sum(log_choices(trials, y) + up + down - _log_rise(c, trials), axis=-1)


def _log_rise(a: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    return tf.math.lgamma(a + n) - tf.math.lgamma(a)


def _log_rising(f: tf.Tensor, c: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    """log a (a + 1) ... (a + n - 1), a = c / (1 + e^-f), also where a underflows; 0 for n = 0."""
    a = c * tf.sigmoid(f)
    some = n > 0.0
    rest = tf.math.lgamma(a + tf.where(some, n, tf.ones_like(n))) - tf.math.lgamma(a + 1.0)
    value = rest + tf.math.log(c) - tf.nn.softplus(-f)
    return tf.where(some, value, tf.zeros_like(value))
