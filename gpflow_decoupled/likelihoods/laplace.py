"""Laplace noise."""

from __future__ import annotations

__all__ = ["LEAST_DEVIATION", "Laplace", "expected_laplace_loss", "log_side"]

import math

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods import ScalarLikelihood

from ..probability import tfp
from ..special.normal import log_normal_cdf
from .parameters import positive_parameter

LEAST_DEVIATION = 1e-10
"""Least deviation of f: the expected loss is |h - y| / b to all digits, derivatives finite."""
_SQRT_2, _SQRT_2_PI = np.sqrt(2.0), np.sqrt(2.0 * np.pi)


class Laplace(ScalarLikelihood):
    """Laplace noise: p(y | f) = exp(-|y - f| / b) / (2 b) with the scale b.

    More robust to outliers than Gaussian noise, and log-concave. Expectations and predictions are
    closed forms.

    :param scale: b, above 0: a number, or one per observation [N, 1]; the noise variance is 2 b^2.
    :param kwargs: of `gpflow.likelihoods.ScalarLikelihood`.

    Example::

        model = LCLGP((X, Y), gpflow.kernels.Matern52(), Laplace(scale=0.3))
        LinearlyConstrainedLagrangian().run(model)
        mean, variance = model.predict_y(Xnew)
    """

    def __init__(self, scale: npt.ArrayLike = 1.0, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.scale: Parameter = positive_parameter(scale, "scale")

    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return tfp.distributions.Laplace(tf.convert_to_tensor(F), self.scale).log_prob(Y)

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.identity(F)

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return 2.0 * tf.square(self.scale) + tf.zeros_like(F)

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        return tf.identity(Fmu), Fvar + 2.0 * tf.square(self.scale)

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        # y is the sum of a Gaussian and a Laplace variable: one term for each side of the kink of
        # the Laplace density
        scale = tf.convert_to_tensor(self.scale)
        sigma = tf.sqrt(tf.maximum(Fvar, LEAST_DEVIATION**2))
        t, ratio = tf.abs(Y - Fmu) / sigma, sigma / scale
        near, far = log_side(-t, ratio), log_side(t, ratio)
        density = tf.reduce_logsumexp(tf.stack([near, far]), axis=0) - tf.math.log(2.0 * scale)
        return tf.reduce_sum(density, axis=-1)

    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        sigma = tf.sqrt(tf.maximum(Fvar, LEAST_DEVIATION**2))
        return -tf.reduce_sum(
            expected_laplace_loss(Fmu - Y, sigma, tf.convert_to_tensor(self.scale)), axis=-1
        )


def log_side(t: tf.Tensor, ratio: tf.Tensor) -> tf.Tensor:
    """log[exp(ratio^2 / 2 + t ratio) Phi(-t - ratio)] for ratio > 0, shapes [...] broadcast."""
    # Above t = -ratio: -t^2 / 2 + log[erfcx((t + ratio) / sqrt 2) / 2], without cancellation.
    x = t + ratio
    above = (
        -0.5 * tf.square(t) + tfp.math.logerfcx(tf.maximum(x, 0.0) * math.sqrt(0.5)) - math.log(2.0)
    )
    below = ratio * (0.5 * ratio + t) + log_normal_cdf(tf.maximum(-x, 0.0))
    return tf.where(x >= 0.0, above, below)


def expected_laplace_loss(residual: tf.Tensor, sigma: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
    """E[-log p(y | f)], f ~ N(h, sigma^2), in nats, h - y = `residual`; shapes [...] broadcast."""
    # With t = (h - y) / sigma, log 2 b + (2 sigma phi(t) + (h - y) (2 Phi(t) - 1)) / b.
    t = tf.clip_by_value(residual / sigma, -40.0, 40.0)
    kink = 2.0 * sigma * tf.exp(-0.5 * tf.square(t)) / _SQRT_2_PI
    return tf.math.log(2.0 * scale) + (kink + residual * tf.math.erf(t / _SQRT_2)) / scale
