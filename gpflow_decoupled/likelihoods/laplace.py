"""Laplace noise: its likelihood, and its site loss in closed form."""

from __future__ import annotations

__all__ = ["Laplace", "LaplaceLoss"]

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods import ScalarLikelihood

from .parameters import constant_parameter, positive_parameter
from .sites.site_loss import Expansion, Maximiser, SiteLoss

_SQRT_2, _SQRT_2_PI = np.sqrt(2.0), np.sqrt(2.0 * np.pi)


class Laplace(ScalarLikelihood):
    """Laplace noise, p(y | f) = exp(-|y - f| / scale) / (2 scale): less moved by outliers than Gaussian noise, log-concave.

    Expectations and predictions are in closed form.

    :param scale: above 0; the noise has variance 2 scale^2. :param kwargs: as of `gpflow.likelihoods.ScalarLikelihood`.

    Raises `DataError` for a scale that is not a positive number.
    """

    def __init__(self, scale: float = 1.0, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.scale: Parameter = positive_parameter(scale, "scale")

    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return tfp.distributions.Laplace(tf.convert_to_tensor(F), self.scale).log_prob(Y)

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.identity(F)

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.fill(tf.shape(F), 2.0 * tf.square(self.scale))

    def _predict_mean_and_var(self, X: TensorType, Fmu: TensorType, Fvar: TensorType) -> MeanAndVariance:
        return tf.identity(Fmu), Fvar + 2.0 * tf.square(self.scale)

    def _predict_log_density(self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        """The density of a Gaussian variable plus a Laplace variable, from both sides of the kink."""
        scale = tf.convert_to_tensor(self.scale)
        sigma = tf.sqrt(tf.maximum(Fvar, _TINY**2))
        t, ratio, normal = (Y - Fmu) / sigma, sigma / scale, tfp.distributions.Normal(tf.zeros_like(scale), 1.0)
        left, right = -t * ratio + normal.log_cdf(t - ratio), t * ratio + normal.log_cdf(-t - ratio)
        density = (
            0.5 * tf.square(ratio) + tf.reduce_logsumexp(tf.stack([left, right]), axis=0) - tf.math.log(2.0 * scale)
        )
        return tf.reduce_sum(density, axis=-1)

    def _variational_expectations(self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType) -> tf.Tensor:
        return -tf.reduce_sum(
            _loss(Fmu - Y, tf.sqrt(tf.maximum(Fvar, _TINY**2)), tf.convert_to_tensor(self.scale)), axis=-1
        )


_TINY = 1e-10
"""Least sigma: below it the loss is |h - y| / b to all digits, and its second derivatives are large but finite."""


def _loss(residual: tf.Tensor, sigma: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
    """The loss for h - y = residual and sigma > 0."""
    t = tf.clip_by_value(residual / sigma, -40.0, 40.0)
    kink = 2.0 * sigma * tf.exp(-0.5 * tf.square(t)) / _SQRT_2_PI
    return tf.math.log(2.0 * scale) + (kink + residual * tf.math.erf(t / _SQRT_2)) / scale


class LaplaceLoss(SiteLoss):
    """f = log 2b + (2 sigma phi(t) + (h - y) (2 Phi(t) - 1)) / b, t = (h - y) / sigma, for Y [N, L] and the scale b.

    It is convex, but linear along rays from (y, 0): (V15) has a maximum for rho > 0 alone.
    """

    needs_penalty = True

    def __init__(self, likelihood: Laplace, Y: TensorType) -> None:
        super().__init__(Y)
        self._likelihood = likelihood
        constant_parameter(likelihood.scale, "The noise scale", positive=True)

    @property
    def _scale(self) -> tf.Tensor:
        return tf.convert_to_tensor(self._likelihood.scale)

    @property
    def lower(self) -> tf.Tensor:
        """Minus 1 / b [N, L]."""
        return -tf.ones_like(self.Y) / self._scale

    @property
    def upper(self) -> tf.Tensor:
        """1 / b [N, L]."""
        return tf.ones_like(self.Y) / self._scale

    def value(self, h: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
        """The loss f [N, L]."""
        return _loss(h - self.Y, tf.maximum(tf.abs(sigma), _TINY), self._scale)

    def expand(self, h: tf.Tensor, sigma: tf.Tensor) -> Expansion:
        """The loss and its derivatives, [N, L] each."""
        size, sign, scale = tf.maximum(tf.abs(sigma), _TINY), tf.sign(sigma), self._scale
        t = tf.clip_by_value((h - self.Y) / size, -40.0, 40.0)
        slope = 2.0 * tf.exp(-0.5 * tf.square(t)) / (_SQRT_2_PI * scale)  # f_sigma
        bend = slope / size
        d_h = tf.math.erf(t / _SQRT_2) / scale
        return Expansion(self.value(h, sigma), d_h, sign * slope, bend, -sign * t * bend, tf.square(t) * bend)

    def start(self, alpha: tf.Tensor) -> tf.Tensor:
        """The median Y [N, L] for each alpha [N, L]."""
        return self.Y + tf.zeros_like(alpha)

    def maximiser(self, alpha: tf.Tensor, lam: tf.Tensor, sigma_k: tf.Tensor, rho: tf.Tensor) -> Maximiser:
        """The maximum of (V15) over sigma >= sigma_k / 2, [N, L] each; rho must be above 0."""
        scale = self._scale
        edge = 1.0 - (1e-15 if alpha.dtype == tf.float64 else 1e-6)
        t = _SQRT_2 * tf.math.erfinv(tf.clip_by_value(scale * alpha, -edge, edge))
        slope = 2.0 * tf.exp(-0.5 * tf.square(t)) / (_SQRT_2_PI * scale)
        free = sigma_k + (lam * sigma_k - slope) / rho
        moves = tf.cast(free > 0.5 * sigma_k, free.dtype)
        sigma = tf.maximum(free, 0.5 * sigma_k)
        pull = lam * sigma_k * (sigma - 0.5 * sigma_k) - 0.5 * rho * tf.square(sigma - sigma_k)
        value = alpha * self.Y - tf.math.log(2.0 * scale) - slope * sigma + pull  # (V15), without cancellation
        d_h_d_alpha = sigma / slope + moves * tf.square(t) / rho  # (V17)
        return Maximiser(
            self.Y + sigma * t, sigma, value, d_h_d_alpha, moves * t * sigma_k / rho, moves * sigma_k / rho
        )
