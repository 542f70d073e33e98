"""The data term of the bound on inducing points."""

from __future__ import annotations

__all__ = ["DataTerm"]

import abc

import tensorflow as tf
from gpflow.base import RegressionData

from ..bases.base import EAGER_ROWS, Features, State
from ..likelihoods.parameters import single_noise_variance
from .basis_predictions import BasisPredictions
from .expectations import Resolution, sampled_expectations, variational_expectations
from .monte_carlo import MonteCarlo
from .residual_bound import gains_are_constant, left_variances, row_gains, shrunk_expectations


class DataTerm(BasisPredictions, abc.ABC):
    """A model on inducing points, with the expected log densities of its bound."""

    expectations: MonteCarlo | None
    bound: str

    def variational_expectations(
        self,
        mean: tf.Tensor,
        variance: tf.Tensor,
        data: RegressionData,
        left: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """E_q log p(y_n | f_n) [N] in nats, from means (less the mean function) and variances [N,
        L].

        With `expectations` an unbiased estimate, from new draws. For bound="tight" see
        `residual_bound`. X is [N, D], Y [N, P].

        :param left: `left_variances`, if known; else computed where needed, N M^2.
        """

        def expected(mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
            if self.expectations is None:
                return variational_expectations(self, mean, variance, data)
            draws = self.expectations.draw(mean)
            return sampled_expectations(self, mean, variance, data, draws)

        if self.bound == "classical":
            return expected(mean, variance)
        if gains_are_constant(self.kernel, self.likelihood):
            return expected(mean, variance) + self.row_gains(data[0], left)
        left = left_variances(self.kernel, self.basis, data[0]) if left is None else left
        return shrunk_expectations(expected, mean, variance, tf.cast(left, variance.dtype))

    def left_variances(
        self, features: Features, X: tf.Tensor, tangent: tf.Tensor | None = None
    ) -> tf.Tensor | None:
        """The variances [N, L] that the points leave at X [N, D]; None for the classical bound.

        :param features: of the basis at X.
        :param tangent: of the basis's state, if the features' is stopped.
        """
        if self.bound == "classical":
            return None
        return left_variances(self.kernel, self.basis, X, features, tangent)

    def row_gains(self, X: tf.Tensor, left: tf.Tensor | None = None) -> tf.Tensor:
        """Gain [N] in nats of bound="tight" per row X [N, D], for Gaussian noise of one variance;
        else zeros. `left` as in `variational_expectations`.
        """
        noise = single_noise_variance(self.likelihood)
        if self.bound == "classical" or noise is None:
            return tf.zeros(tf.shape(X)[:1], X.dtype)
        left = left_variances(self.kernel, self.basis, X) if left is None else left
        return row_gains(left, noise, self.num_latent_gps)

    @property
    def resolution(self) -> Resolution | None:
        return super().resolution if self.expectations is None else None

    def expectations_at(self, state: State, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        """E_q log p(y_n | f_n) [N] in nats, for a state of the basis, X [N, D] and Y [N, P]."""
        if self.bound == "classical":
            mean, variance = self.basis.marginals(state, self.kernel, X)
            return self.variational_expectations(mean, variance, (X, Y))
        if tf.executing_eagerly() and X.shape[0] > EAGER_ROWS:
            starts = range(0, X.shape[0], EAGER_ROWS)
            blocks = [(X[i : i + EAGER_ROWS], Y[i : i + EAGER_ROWS]) for i in starts]
            return tf.concat([self.expectations_at(state, *block) for block in blocks], axis=0)
        features = self.basis.features(state, self.kernel, X)
        variance = self.basis.variance(features, self.kernel, X)
        left = self.left_variances(features, X)
        return self.variational_expectations(features.mean, variance, (X, Y), left)
