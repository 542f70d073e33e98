"""Counts that vary more than Poisson counts."""

from __future__ import annotations

__all__ = ["NegativeBinomial"]

from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods import ScalarLikelihood
from gpflow.quadrature import NDiagGHQuadrature

from .parameters import positive_parameter

_NODES = 40
_LIMIT = 80.0


class NegativeBinomial(ScalarLikelihood):
    """Counts of mean m = e^f and variance m + m^2 / size; as size grows, the Poisson likelihood. Log-concave in f.

    The mean and variance of predictions are in closed form, expected log densities and predictive densities by Gauss-Hermite
    quadrature with 40 nodes, or by the `quadrature` that is passed on; the 40 are right to 1e-8 for a standard deviation of f
    of 2, and to 1e-3 for 5.

    :param size: above 0; the smaller, the more the counts vary. :param kwargs: as of `gpflow.likelihoods.ScalarLikelihood`.

    Raises `DataError` for a size that is not a positive number.
    """

    def __init__(self, size: float = 1.0, **kwargs: Any) -> None:
        kwargs.setdefault("quadrature", NDiagGHQuadrature(1, _NODES))
        super().__init__(**kwargs)
        self.size: Parameter = positive_parameter(size, "size")

    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        size = self.size + tf.zeros_like(F)
        return tfp.distributions.NegativeBinomial(size, logits=F - tf.math.log(size)).log_prob(Y)

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return _exp(F)

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return _exp(F) + _exp(2.0 * F) / self.size

    def _predict_mean_and_var(self, X: TensorType, Fmu: TensorType, Fvar: TensorType) -> MeanAndVariance:
        mean = _exp(Fmu + 0.5 * Fvar)
        return mean, mean + tf.square(mean) * (tf.math.expm1(tf.minimum(Fvar, _LIMIT)) + _exp(Fvar) / self.size)


def _exp(exponent: tf.Tensor) -> tf.Tensor:
    """Without overflow, in single precision too."""
    return tf.exp(tf.minimum(exponent, _LIMIT))
