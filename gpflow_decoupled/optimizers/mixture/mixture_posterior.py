"""Predictions of a mixture."""

from __future__ import annotations

__all__ = ["MixturePosterior"]

import numpy as np
import tensorflow as tf
from gpflow.base import InputData, MeanAndVariance, RegressionData, TensorType

from ...covariances.latents import prior_variance
from ...errors import DataError
from ...expectations.projections import tiny
from ...inducing.weights import Weights
from ...inputs import as_array
from ...likelihoods import observation_moments
from ...models import AffineIndependentGP
from ...probability import tfp
from ...summaries import one_line

tfd = tfp.distributions


class MixturePosterior:
    """q(w) = sum_j pi_j N(w | m_j, S_j) of a model's whitened w, with predictions of f and labels.

    Under each component f(x) is normal, so a prediction is a sum over J Gaussian ones.

    :param model: provides prior, data and likelihood; its q is neither read nor changed.
    :param log_weights: log pi [J], normalised.
    :param means: m [J, D].
    :param roots: lower triangular roots of S, [J, D, D].

    Example::

        posterior = MixtureAscent(components=3).run(model).posterior
        mean, variance = posterior.predict_f(Xnew)
        density = posterior.predict_f_density(Xnew, np.linspace(-5.0, 5.0, 101))  # [N, 101]
    """

    def __init__(
        self,
        model: AffineIndependentGP,
        log_weights: TensorType,
        means: TensorType,
        roots: TensorType,
    ) -> None:
        self.model = model
        self._log_weights, self.means, self.roots = (
            tf.convert_to_tensor(part) for part in (log_weights, means, roots)
        )

    def __repr__(self) -> str:
        return one_line(
            self, components=int(self.means.shape[0]), coordinates=int(self.means.shape[1])
        )

    @property
    def weights(self) -> tf.Tensor:
        """The weights pi of the components, [J]."""
        return tf.exp(self._log_weights)

    @property
    def covariances(self) -> tf.Tensor:
        """The covariances S of the components, [J, D, D]."""
        return tf.matmul(self.roots, self.roots, transpose_b=True)

    @property
    def distribution(self) -> tfp.distributions.Distribution:
        """q(w) of the whitened w [D] in TensorFlow Probability."""
        components = tfd.MultivariateNormalTriL(self.means, self.roots)
        return tfd.MixtureSameFamily(tfd.Categorical(logits=self._log_weights), components)

    def log_prob(self, w: TensorType) -> tf.Tensor:
        """The log density [...] in nats of whitened w [..., D]."""
        return self.distribution.log_prob(tf.cast(as_array(w, "w"), self.means.dtype))

    def sample(self, n: int, seed: int | None = None) -> tf.Tensor:
        """Draws of the whitened w, [n, D]."""
        return self.distribution.sample(n, seed=seed)

    def _moments(self, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        model = self.model
        phi = model.basis.whitened_features(
            model.basis.factor(model.kernel, with_kl=False), model.kernel, X
        )
        offset = tf.cast(model.mean_function(X), X.dtype)[:, 0]
        mean = offset + tf.matmul(self.means, phi, transpose_b=True)
        projected = tf.einsum("nd,jde->jne", phi, self.roots)
        variance = tf.reduce_sum(tf.square(projected), axis=2)
        if not isinstance(model.basis.inducing, Weights):
            rest = prior_variance(model.kernel, X, full_cov=False)[0] - tf.reduce_sum(
                tf.square(phi), axis=1
            )
            variance += tf.maximum(rest, 0.0)
        return mean, tf.maximum(variance, tiny(variance))

    def predict_f(self, Xnew: InputData) -> MeanAndVariance:
        """Mean and variance of f at Xnew [N, D], [N, 1] each."""
        return self._of_all(*self._moments(self.model.inputs(Xnew)))

    def predict_f_density(self, Xnew: InputData, grid: TensorType) -> tf.Tensor:
        """Density of f(x) [N, G] at Xnew [N, D] for values [G], or [N, G] with a row per input."""
        mean, variance = self._moments(self.model.inputs(Xnew))
        values = tf.cast(as_array(grid, "grid"), mean.dtype)
        if values.shape.rank not in (1, 2) or (
            values.shape.rank == 2 and values.shape[0] != mean.shape[1]
        ):
            raise DataError(
                f"grid has shape {values.shape}; it must be [G], or [N, G] with a row for each row"
                " of Xnew."
            )
        each = tfd.Normal(mean[:, :, None], tf.sqrt(variance)[:, :, None]).prob(values)
        return tf.einsum("j,jng->ng", self.weights, each)

    def predict_y(self, Xnew: InputData) -> MeanAndVariance:
        """Mean and variance of labels at Xnew [N, D], [N, 1]; the mean of binary labels is P(y =
        1).
        """
        X, likelihood = self.model.inputs(Xnew), self.model.likelihood
        each = [
            observation_moments(likelihood, X, m[:, None], v[:, None])
            for m, v in zip(*self._moments(X))
        ]
        mean, variance = (tf.stack([part[:, 0] for part in column]) for column in zip(*each))
        return self._of_all(mean, variance)

    def predict_log_density(self, data: RegressionData) -> tf.Tensor:
        """The log densities [N] of labels in nats, at X [N, D] and Y [N, 1]."""
        X, Y = self.model.checked(data)
        densities = [
            self.model.likelihood.predict_log_density(X, m[:, None], v[:, None], Y)
            for m, v in zip(*self._moments(X))
        ]
        return tf.reduce_logsumexp(self._log_weights[:, None] + tf.stack(densities), axis=0)

    def _of_all(self, mean: tf.Tensor, variance: tf.Tensor) -> MeanAndVariance:
        weights = self.weights[:, None]
        whole = tf.reduce_sum(weights * mean, axis=0)
        spread = tf.reduce_sum(weights * (variance + tf.square(mean - whole)), axis=0)
        return whole[:, None], spread[:, None]

    def numpy(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Weights [J], means [J, D] and covariances [J, D, D] as NumPy arrays."""
        return self.weights.numpy(), self.means.numpy(), self.covariances.numpy()
