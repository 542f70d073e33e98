"""Class labels with a softmax link."""

from __future__ import annotations

__all__ = ["CategoricalLogit"]

import numpy as np
import tensorflow as tf
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods import Likelihood

from ..errors import DataError
from ..expectations.log_sum_exp import tilted_bound
from ..expectations.softmax import expected_softmax
from ..summaries import short_repr


class CategoricalLogit(Likelihood):
    """Classes with a softmax link: p(y = c | f) = exp(f_c) / sum_k exp(f_k), C latents.

    Deterministic, unlike GPflow's `Softmax`: natural gradients, sites and L-BFGS apply. Expected
    log densities are a closed-form lower bound (Knowles & Minka, NIPS 2011), for equal means 0.04
    nats low at variance 1, 0.26 at 3, 1.3 at 10. Predictive probabilities are exact to 1e-8 for
    variances up to 300.

    :param num_classes: C, at least 2; labels are 0 to C - 1.
    :param kwargs: of `gpflow.likelihoods.Likelihood`.

    Example::

        # Y [N, 1] of zeros, ones and twos
        model = ODVGP(gpflow.kernels.Matern52(), CategoricalLogit(3), gamma, beta)
        fit(model, (X, Y))
        probabilities, _ = model.predict_y(Xnew)  # [N, 3]
    """

    def __init__(self, num_classes: int, **kwargs: object) -> None:
        whole = isinstance(num_classes, (int, np.integer)) and not isinstance(num_classes, bool)
        if not whole or num_classes < 2:
            raise DataError(
                f"num_classes={short_repr(num_classes)}: pass the number of classes, a whole number"
                " from 2."
            )
        super().__init__(
            input_dim=None, latent_dim=int(num_classes), observation_dim=None, **kwargs
        )
        self.num_classes = int(num_classes)

    def _log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self._of_class(tf.nn.log_softmax(tf.convert_to_tensor(F), axis=-1), Y)

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.nn.softmax(tf.convert_to_tensor(F), axis=-1)

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        p = self._conditional_mean(X, F)
        return p * (1.0 - p)

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        p = tf.exp(self._log_probabilities(Fmu, Fvar))
        # they sum to one up to rounding and the bounds
        p /= tf.reduce_sum(p, axis=-1, keepdims=True)
        return p, p * (1.0 - p)

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return self._of_class(self._log_probabilities(Fmu, Fvar), Y)

    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        mean, variance = _same_shape(Fmu, Fvar)
        return self._of_class(mean, Y) - tilted_bound(mean, variance)

    def _of_class(self, values: tf.Tensor, Y: TensorType) -> tf.Tensor:
        labels = tf.cast(Y, values.dtype)[..., 0]
        chosen = tf.one_hot(tf.cast(labels, tf.int32), self.num_classes, dtype=values.dtype)
        known = (labels >= 0.0) & (labels < self.num_classes) & (labels == tf.floor(labels))
        nothing = tf.constant(np.nan, values.dtype)
        return tf.reduce_sum(chosen * values, axis=-1) + tf.where(
            known, tf.zeros_like(nothing), nothing
        )

    def _log_probabilities(self, Fmu: TensorType, Fvar: TensorType) -> tf.Tensor:
        """log E softmax(f) [..., C], by (V34); where too small, its lower bound by (V33)."""
        mean, variance = _same_shape(Fmu, Fvar)
        rows = (tf.reshape(part, [-1, self.num_classes]) for part in (mean, variance))
        p = tf.cast(tf.reshape(expected_softmax(*rows), tf.shape(mean)), mean.dtype)
        tiny = tf.constant(np.finfo(mean.dtype.as_numpy_dtype).tiny, mean.dtype)
        return tf.maximum(
            tf.math.log(tf.maximum(p, tiny)), mean - tilted_bound(mean, variance)[..., None]
        )


def _same_shape(mean: TensorType, variance: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
    mean, variance = tf.convert_to_tensor(mean), tf.convert_to_tensor(variance)
    return mean + tf.zeros_like(variance), variance + tf.zeros_like(mean)
