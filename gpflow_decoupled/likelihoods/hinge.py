"""The hinge loss of support vector machines."""

from __future__ import annotations

__all__ = ["Hinge", "expected_hinge_loss"]

import math

import tensorflow as tf
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods import ScalarLikelihood
from gpflow.quadrature import NDiagGHQuadrature

from .laplace import LEAST_DEVIATION, expected_laplace_loss

_NODES = 100  # of predictions, whose integrand has kinks


class Hinge(ScalarLikelihood):
    """The hinge loss max(0, 1 - s f), s = 2 y - 1, for generalised (Gibbs) posteriors.

    exp(-loss) does not sum to 1 over labels: bounds do not compare with other likelihoods, nor
    choose the scale. Log-concave, with closed-form expected losses. Predictions normalise
    exp(-loss) over both labels (Sollich 2002).

    :param kwargs: of `gpflow.likelihoods.ScalarLikelihood`.

    Example::

        # Y [N, 1] of zeros and ones
        model = LCLGP((X, Y), gpflow.kernels.Matern52(variance=100.0), Hinge())
        LinearlyConstrainedLagrangian().run(model)
        probability, _ = model.predict_y(Xnew)
    """

    def __init__(self, **kwargs: object) -> None:
        kwargs.setdefault("quadrature", NDiagGHQuadrature(1, _NODES))
        super().__init__(**kwargs)

    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return -tf.nn.relu(1.0 - (2.0 * Y - 1.0) * F)

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.sigmoid(tf.nn.relu(1.0 + F) - tf.nn.relu(1.0 - F))

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        p = self._conditional_mean(X, F)
        return p * (1.0 - p)

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        p = self.quadrature(lambda f: self._conditional_mean(None, f), Fmu, Fvar)
        return p, p * (1.0 - p)

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        # p(0 | f) is p(1 | -f)
        p = self.quadrature(lambda f: self._conditional_mean(None, f), (2.0 * Y - 1.0) * Fmu, Fvar)
        return tf.reduce_sum(tf.math.log(p), axis=-1)

    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        sigma = tf.sqrt(tf.maximum(Fvar, LEAST_DEVIATION**2))
        return -tf.reduce_sum(expected_hinge_loss(Fmu, sigma, 2.0 * Y - 1.0), axis=-1)


def expected_hinge_loss(h: tf.Tensor, sigma: tf.Tensor, sign: tf.Tensor) -> tf.Tensor:
    """E max(0, 1 - s f), f ~ N(h, sigma^2), s = `sign` of -1 or 1, sigma > 0; [...] broadcast."""
    # (1 - s h) Phi(t) + sigma phi(t), t = (1 - s h) / sigma, (V32).
    two = tf.constant(2.0, h.dtype)
    # (V32)
    return expected_laplace_loss(h - sign, sigma, two) - math.log(4.0) + 0.5 * (1.0 - sign * h)
