"""Successes in a known number of trials."""

from __future__ import annotations

__all__ = ["Binomial", "deviation_of", "log_choices", "logit_peak"]

import tensorflow as tf
from gpflow.base import MeanAndVariance, TensorType

from ...expectations.log_means import log_mean_exp
from ...expectations.logit_integrals import softplus_mean, softplus_moments
from ..numbered import NumberedLikelihood

_LEAST_VARIANCE = 1e-16  # keeps the derivative of the root finite


class Binomial(NumberedLikelihood):
    """Successes y in t trials of probability 1 / (1 + e^-f); Y [N, P + 1] ends with a column of t.

    Log-concave. Expected log densities are accurate to 1e-12 at every variance, log densities to
    1e-9. `predict_y` is of one trial: the mean is the probability.

    :param kwargs: of `gpflow.likelihoods.ScalarLikelihood`.

    Example::

        data = X, np.hstack([successes, trials])
        model = CVIGP(data, gpflow.kernels.Matern52(), Binomial())
        ConjugateComputation().run(model)
        probability, _ = model.predict_y(Xnew)
    """

    number = "trials"

    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        y, trials = self.split(Y)
        F = tf.convert_to_tensor(F)
        # y f - t log(1 + e^f) would cancel for large f
        failures = trials - y
        return log_choices(trials, y) - y * tf.nn.softplus(-F) - failures * tf.nn.softplus(F)

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.sigmoid(F)

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.sigmoid(F) * tf.sigmoid(-F)

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        # E sigmoid(f) is the derivative of E log(1 + e^f) in the mean of f
        h, sigma = tf.broadcast_to(Fmu, tf.shape(Fvar)), deviation_of(Fvar)
        p = tf.clip_by_value(softplus_moments(h, sigma).d_h, 0.0, 1.0)
        return p, p * (1.0 - p)

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        mean = tf.convert_to_tensor(Fmu)
        found = log_mean_exp(
            lambda f: self._scalar_log_prob(X, f, Y), mean, Fvar, *logit_peak(*self.split(Y))
        )
        return tf.reduce_sum(found, axis=-1)

    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        y, trials = self.split(Y)
        sigma = deviation_of(Fvar) + tf.zeros_like(Fmu)
        mean = Fmu + tf.zeros_like(sigma)
        # the rarer outcome takes the exact difference, E log(1 + e^-f) = E log(1 + e^f) - E f
        sign = tf.where(2.0 * y > trials, -tf.ones_like(mean), tf.ones_like(mean))
        less = tf.minimum(y, trials - y)
        loss = trials * softplus_mean(sign * mean, sigma) - less * sign * mean
        return tf.reduce_sum(log_choices(trials, y) - loss, axis=-1)


def deviation_of(variance: tf.Tensor) -> tf.Tensor:
    """The root of a variance [...], with a finite derivative at zero."""
    return tf.sqrt(tf.maximum(variance, _LEAST_VARIANCE))


def log_choices(trials: TensorType, y: TensorType) -> tf.Tensor:
    """Log of the binomial coefficient, y of `trials`, of the broadcast shape [...] of both."""
    return tf.math.lgamma(trials + 1.0) - tf.math.lgamma(y + 1.0) - tf.math.lgamma(trials - y + 1.0)


def logit_peak(y: tf.Tensor, trials: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Place and width [...] of the peak of the likelihood of y successes over the log odds f."""
    up, down = y + 0.5, trials - y + 0.5
    return tf.math.log(up / down), tf.sqrt(1.0 / up + 1.0 / down)
