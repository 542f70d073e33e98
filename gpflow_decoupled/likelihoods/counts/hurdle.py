"""Counts with a separate probability of zeros."""

from __future__ import annotations

__all__ = ["HurdleNegativeBinomial", "HurdlePoisson"]

import tensorflow as tf
from gpflow import Parameter
from gpflow.base import MeanAndVariance, TensorType

from ...expectations.log_means import log_mean_exp
from ...expectations.peaked import peaked_mean, peaked_rule
from ..parameters import positive_parameter
from .binomial import deviation_of
from .count_family import CountFamily
from .zero_inflated import ZeroInflatedPoisson

_LIMIT = 40.0
"""Of logarithms of moments, as in `count_family`."""


class HurdlePoisson(ZeroInflatedPoisson):
    """Counts that are 0 with probability w, else Poisson of rate e^f given that they are above 0.

    Mullahy (1986). Zeros, more or fewer than Poisson, say nothing of f. Log-concave. Expected log
    densities and moments are accurate to 1e-8, log densities to 1e-9.

    :param zero_share: w, between 0 and 1.
    :param kwargs: of `gpflow.likelihoods.ScalarLikelihood`.

    Example::

        model = CVIGP((X, counts), gpflow.kernels.Matern52(), HurdlePoisson(0.3))
        fit(model)
    """

    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        F, family = tf.convert_to_tensor(F), self._family()
        log_share, log_rest = self._logs()
        some = log_rest + family.log_prob(F, Y) - family.log_some(F)
        return tf.where(Y > 0.0, some, log_share + tf.zeros_like(some))

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        family, F = self._family(), tf.convert_to_tensor(F)
        log_mean = tf.minimum(F - family.log_some(F), _LIMIT)
        return (1.0 - self.zero_share) * tf.exp(log_mean)

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        # of counts above zero mean / p and E y^2 / p, p = 1 - p(0); 1 / p - 1 without cancellation
        family, F = self._family(), tf.convert_to_tensor(F)
        log_some, rate, share = family.log_some(F), family.rate(F), self.zero_share
        mean = tf.exp(tf.minimum(F - log_some, _LIMIT))
        more = rate * family.excess - tf.exp(tf.minimum(F - log_some, _LIMIT)) + rate
        exact = rate * family.excess - rate * tf.math.expm1(-log_some)
        spread = mean * (1.0 + tf.where(F < 0.0, more, exact))
        return (1.0 - share) * (tf.maximum(spread, 0.0) + share * tf.square(mean))

    def _moments(self, mean: tf.Tensor, variance: tf.Tensor) -> MeanAndVariance:
        # E[m^k / p] = E m^k times E[1 / p] under the Gaussian whose mean is moved by k variances
        family, share = self._family(), tf.convert_to_tensor(self.zero_share)
        first = mean + 0.5 * variance + self._log_mean_inverse(mean + variance, variance)
        pairs = 2.0 * (mean + variance) + self._log_mean_inverse(mean + 2.0 * variance, variance)
        pairs += tf.math.log(1.0 + family.excess + tf.zeros_like(pairs))
        second = tf.reduce_logsumexp(tf.stack([first, pairs]), axis=0)
        top = tf.exp(tf.minimum(first, _LIMIT))
        spread = tf.square(top) * tf.math.expm1(tf.clip_by_value(second - 2.0 * first, 0.0, _LIMIT))
        return (1.0 - share) * top, (1.0 - share) * (spread + share * tf.square(top))

    def _log_mean_inverse(self, mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
        family = self._family()
        spread = deviation_of(variance) + tf.zeros_like(mean)
        centre, width = (part + tf.zeros_like(spread) for part in family.some_bend())
        z, w = peaked_rule(mean + tf.zeros_like(spread), spread, centre, width, 40)
        return tf.reduce_logsumexp(tf.math.log(w) - family.log_some(mean + spread * z), axis=0)

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        found = log_mean_exp(
            lambda f: self._scalar_log_prob(X, f, Y),
            tf.convert_to_tensor(Fmu),
            Fvar,
            *self._family().peak(Y),
        )
        return tf.reduce_sum(found, axis=-1)

    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        mean, variance = (tf.convert_to_tensor(part) for part in (Fmu, Fvar))
        family, (log_share, log_rest) = self._family(), self._logs()
        log_some = peaked_mean(family.log_some, mean, deviation_of(variance), *family.some_bend())
        some = log_rest + family.mean_log_prob(mean, variance, Y) - log_some
        return tf.reduce_sum(tf.where(Y > 0.0, some, log_share + tf.zeros_like(some)), axis=-1)


class HurdleNegativeBinomial(HurdlePoisson):
    """Counts that are 0 with probability w, else negative binomial given that they are above 0.

    As `HurdlePoisson` otherwise; log-concave only where the size is at least 1.

    :param zero_share: w, between 0 and 1.
    :param size: above 0; smaller means more dispersion.
    :param kwargs: of `gpflow.likelihoods.ScalarLikelihood`.

    Example::

        model = CVIGP((X, counts), gpflow.kernels.Matern52(), HurdleNegativeBinomial(0.3))
        fit(model)
    """

    def __init__(self, zero_share: float = 0.1, size: float = 1.0, **kwargs: object) -> None:
        super().__init__(zero_share, **kwargs)
        self.size: Parameter = positive_parameter(size, "size")

    def _family(self) -> CountFamily:
        return CountFamily(tf.convert_to_tensor(self.size))
