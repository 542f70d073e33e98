"""Binary labels with a probit link."""

from __future__ import annotations

__all__ = ["BernoulliProbit"]

import tensorflow as tf
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods import ScalarLikelihood
from gpflow.quadrature import NDiagGHQuadrature

from ..special.normal import log_normal_cdf

_NODES = 40  # twice GPflow's; accuracy in the docstring of the class


class BernoulliProbit(ScalarLikelihood):
    """Binary labels with a probit link: p(y = 1 | f) = Phi(f), Phi the standard normal cdf.

    Log-concave, unlike GPflow's `Bernoulli()`, whose probabilities stay in [0.001, 0.999].
    Predictions are closed forms. Expected log densities take 40 Gauss-Hermite nodes, accurate to
    1e-8 at a standard deviation of f of 2, 2e-4 at 5, 0.01 at 10.

    :param kwargs: of `gpflow.likelihoods.ScalarLikelihood`, for example `quadrature=` for more
        nodes.

    Example::

        model = gpflow.models.SVGP(gpflow.kernels.Matern52(), BernoulliProbit(), Z)
        probability, _ = model.predict_y(Xnew)
    """

    def __init__(self, **kwargs: object) -> None:
        kwargs.setdefault("quadrature", NDiagGHQuadrature(1, _NODES))
        super().__init__(**kwargs)

    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return log_normal_cdf((2.0 * Y - 1.0) * F)

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.exp(log_normal_cdf(F))

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.exp(log_normal_cdf(F) + log_normal_cdf(-F))

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        # E Phi(f) = Phi(mean / sqrt(1 + variance))
        scaled = Fmu / tf.sqrt(1.0 + Fvar)
        return self._conditional_mean(X, scaled), self._conditional_variance(X, scaled)

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return tf.reduce_sum(log_normal_cdf((2.0 * Y - 1.0) * Fmu / tf.sqrt(1.0 + Fvar)), axis=-1)
