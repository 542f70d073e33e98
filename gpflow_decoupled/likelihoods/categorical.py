"""Sites of class labels, by the tilted bound (V33)."""

from __future__ import annotations

__all__ = ["CategoricalLogit", "CategoricalLoss", "categorical_sites"]

import numpy as np
import tensorflow as tf
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods import Likelihood

from ..errors import DataError
from ..expectations.softmax import best_tilt, expected_softmax, tilted_bound
from ..summaries import short_repr
from .parameters import classes
from .site_loss import Expansion, SiteDescription, SiteLoss

# ---
# Class labels with a softmax link.


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


# ---


class CategoricalLoss(SiteLoss):
    """The upper bound (V33) of -E log softmax(f)_y, f_c ~ N(h_c, sigma_c^2) independent.

    :param Y: labels [N, 1], whole numbers from 0 to C - 1.
    """

    # Jointly convex in all h and sigma^2. Columns are classes, whose losses sum to the bound;
    # `expand` differentiates the sum. The Hessian in (h, sigma^2) of one observation is (V35)
    #
    #     Q^T (E - E 1 1^T E / 1^T E 1) Q,   E = diag(s / (1 + s sigma^2)),   Q = (I, diag(1/2 - s))
    #
    # with s the best tilt of (V33).

    couples = True

    def __init__(self, likelihood: CategoricalLogit, Y: TensorType) -> None:
        super().__init__(Y)
        if self.Y.shape[1] != 1:
            raise DataError(
                f"Y has {self.Y.shape[1]} columns; classes are one column of numbers 0, 1, 2, ...:"
                " of columns that are 0 or 1 make it by np.argmax(Y, axis=1)[:, None]."
            )
        labels = tf.cast(self.Y[:, 0], tf.int32)
        self.hot = tf.one_hot(labels, likelihood.num_classes, dtype=self.Y.dtype)

    @property
    def lower(self) -> tf.Tensor:
        return -self.hot

    @property
    def upper(self) -> tf.Tensor:
        return 1.0 - self.hot

    @property
    def curvature(self) -> tf.Tensor:
        return tf.zeros_like(self.hot)

    def value(self, h: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
        bound = tilted_bound(h, tf.square(sigma))[:, None]
        return bound / self.hot.shape[1] - self.hot * h  # (V33)

    def expand(self, h: tf.Tensor, sigma: tf.Tensor) -> Expansion:
        """The losses, and derivatives of their sums over a row, [N, C] each."""
        s, E = self.tilt_and_weight(h, sigma)
        bend = E - tf.square(E) / tf.reduce_sum(E, axis=1, keepdims=True)  # (V35)
        slope = s * (1.0 - s)
        across = sigma * (1.0 - 2.0 * s)
        return Expansion(
            self.value(h, sigma),
            s - self.hot,
            sigma * slope,
            bend,
            across * bend,
            tf.square(across) * bend + slope,
        )

    def tilt_and_weight(self, h: tf.Tensor, sigma: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The best tilt s of (V33) and the diagonal of E of (V35), [N, C] each."""
        variance = tf.square(sigma)
        s = best_tilt(h, variance)
        return s, s / (1.0 + s * variance)


def categorical_sites(likelihood: CategoricalLogit) -> SiteDescription:
    """The sites of a likelihood with its number of classes."""
    return SiteDescription(loss=CategoricalLoss, support=classes(likelihood.num_classes))
