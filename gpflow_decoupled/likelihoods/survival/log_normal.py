"""Times whose logarithms have Gaussian noise."""

from __future__ import annotations

__all__ = ["LogNormal", "exp_moments"]

import tensorflow as tf
from gpflow.base import MeanAndVariance, TensorType

from .censored_normal import CensoredNormal

_LIMIT = 40.0
"""Exponents are clipped there: squares of e^40 are finite in single precision."""


class LogNormal(CensoredNormal):
    """Positive observations with log y = f + s N(0, 1), censored or not: e^f is the median.

    Y [N, P + 1] ends with a column of codes: 0 observed, 1 true value above y, -1 below.
    Log-concave; integrals as `CensoredNormal`, moments are closed forms.

    :param scale: s, the standard deviation of log y, above 0.
    :param kwargs: of `gpflow.likelihoods.ScalarLikelihood`.

    Example::

        model = gd.build(X, months, "log_normal", censored=np.where(died, 0, 1))
        gd.fit(model)
    """

    of_logarithms = True

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self._predict_mean_and_var(X, F, tf.zeros_like(F))[0]

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self._predict_mean_and_var(X, F, tf.zeros_like(F))[1]

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        total = Fvar + tf.square(self.scale)
        return exp_moments(Fmu + 0.5 * total, total)


def exp_moments(log_mean: tf.Tensor, growth: tf.Tensor) -> MeanAndVariance:
    """Mean and variance [...] of y > 0 from log E y, and log E y^2 - 2 log E y > 0."""
    mean = tf.exp(tf.minimum(log_mean, _LIMIT))
    return mean, tf.square(mean) * tf.math.expm1(tf.minimum(growth, _LIMIT))
