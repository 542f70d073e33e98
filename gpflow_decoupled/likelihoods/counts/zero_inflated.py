"""Counts with more zeros than their law."""

from __future__ import annotations

__all__ = ["ZeroInflatedNegativeBinomial", "ZeroInflatedPoisson"]

import tensorflow as tf
from gpflow import Parameter
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods import ScalarLikelihood

from ...expectations.log_means import log_mean_exp
from ...expectations.peaked import peaked_mean
from ..parameters import positive_parameter, share_parameter
from .binomial import deviation_of
from .count_family import CountFamily


class ZeroInflatedPoisson(ScalarLikelihood):
    """Counts that are 0 with probability w, else Poisson of mean e^f (Lambert, 1992).

    p(0) = w + (1 - w) exp(-e^f). Not log-concave at y = 0. Expected log densities are closed forms
    for y > 0 and accurate to 1e-8 at y = 0, log densities to 1e-9, moments are closed forms.

    :param zero_share: w, between 0 and 1, learned with the other Parameters.
    :param kwargs: of `gpflow.likelihoods.ScalarLikelihood`.

    Example::

        model = CVIGP((X, counts), gpflow.kernels.Matern52(), ZeroInflatedPoisson())
        fit(model)
        mean, variance = model.predict_y(Xnew)
    """

    def __init__(self, zero_share: float = 0.1, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.zero_share: Parameter = share_parameter(zero_share, "zero_share")

    def _family(self) -> CountFamily:
        return CountFamily(None)

    def _logs(self) -> tuple[tf.Tensor, tf.Tensor]:
        share = tf.convert_to_tensor(self.zero_share)
        return tf.math.log(share), tf.math.log1p(-share)

    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        F, (_, log_rest) = tf.convert_to_tensor(F), self._logs()
        return tf.where(Y > 0.0, log_rest + self._family().log_prob(F, Y), self._log_zero(F))

    def _log_zero(self, f: tf.Tensor) -> tf.Tensor:
        log_share, log_rest = self._logs()
        return log_share + tf.nn.softplus(log_rest - log_share - self._family().surprise(f))

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return (1.0 - self.zero_share) * self._family().rate(tf.convert_to_tensor(F))

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self._moments(tf.convert_to_tensor(F), tf.zeros_like(F))[1]

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        return self._moments(tf.convert_to_tensor(Fmu), tf.convert_to_tensor(Fvar))

    def _moments(self, mean: tf.Tensor, variance: tf.Tensor) -> MeanAndVariance:
        # with m = e^f: Var y = (1 - w) [E m + E m^2 / size + Var m] + w (1 - w) (E m)^2
        family, share = self._family(), tf.convert_to_tensor(self.zero_share)
        m = family.rate(mean + 0.5 * variance)
        growth = family.rate(variance)
        spread = tf.square(m) * (tf.math.expm1(tf.math.log(growth)) + growth * family.excess)
        return (1.0 - share) * m, (1.0 - share) * (m + spread + share * tf.square(m))

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        family, (log_share, log_rest) = self._family(), self._logs()
        bend, peak = family.zero_bend(log_rest - log_share), family.peak(Y)
        centre, width = (tf.where(Y > 0.0, *pair) for pair in zip(peak, bend))
        found = log_mean_exp(
            lambda f: self._scalar_log_prob(X, f, Y), tf.convert_to_tensor(Fmu), Fvar, centre, width
        )
        return tf.reduce_sum(found, axis=-1)

    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        mean, variance = (tf.convert_to_tensor(part) for part in (Fmu, Fvar))
        family, (log_share, log_rest) = self._family(), self._logs()
        bend = family.zero_bend(log_rest - log_share)
        none = peaked_mean(self._log_zero, mean, deviation_of(variance), *bend)
        some = log_rest + family.mean_log_prob(mean, variance, Y)
        return tf.reduce_sum(tf.where(Y > 0.0, some, none), axis=-1)


class ZeroInflatedNegativeBinomial(ZeroInflatedPoisson):
    """Counts that are 0 with probability w, else negative binomial of mean m = e^f.

    The variance without the extra zeros is m + m^2 / size. As `ZeroInflatedPoisson` otherwise.

    :param zero_share: w, between 0 and 1.
    :param size: above 0; smaller means more dispersion.
    :param kwargs: of `gpflow.likelihoods.ScalarLikelihood`.

    Example::

        model = CVIGP((X, counts), gpflow.kernels.Matern52(), ZeroInflatedNegativeBinomial())
        fit(model)
    """

    def __init__(self, zero_share: float = 0.1, size: float = 1.0, **kwargs: object) -> None:
        super().__init__(zero_share, **kwargs)
        self.size: Parameter = positive_parameter(size, "size")

    def _family(self) -> CountFamily:
        return CountFamily(tf.convert_to_tensor(self.size))
