"""Site losses by quadrature with derivatives by hand: probit, Student-t, negative binomial; Khan 2014, section 3."""

from __future__ import annotations

__all__ = ["jittered_probit_loss", "negative_binomial_loss", "probit_loss", "student_t_loss"]

from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import likelihoods as gl
from gpflow.base import TensorType
from scipy.optimize import minimize_scalar
from scipy.stats import norm

from ...special.normal import inverse_mills, log_normal_cdf
from ..parameters import constant_parameter
from .quadrature_loss import Pointwise, QuadratureLoss
from .site_loss import site_labels

JITTER = 1e-3
"""What GPflow's `inv_probit` keeps probabilities away from 0 and 1 by."""
_SQRT_2 = np.sqrt(2.0)
_FAR = 1e3
"""Where phi / Phi is replaced by its expansion."""


def probit_loss(likelihood: gl.ScalarLikelihood, Y: TensorType) -> QuadratureLoss:
    """The loss -log Phi(u), u = eta for a label 1 and -eta for 0, in Y [N, L]; log-concave, without jitter."""
    y = site_labels(Y)
    t = 2.0 * y - 1.0

    def loss(eta: tf.Tensor) -> tf.Tensor:
        return -log_normal_cdf(t * eta)

    def slopes(eta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        u = t * eta
        r = inverse_mills(u)
        far = tf.minimum(u, -_FAR)
        return -t * r, tf.where(u < -_FAR, 1.0 - 1.0 / tf.square(far), r * (r + u))

    def start(alpha: tf.Tensor) -> tf.Tensor:
        """Three Newton steps for log r(u) = log m, from where r is about m."""
        m = tf.maximum(-t * alpha, 1e-30)
        right = tf.sqrt(tf.maximum(-2.0 * tf.math.log(m * np.sqrt(2.0 * np.pi)), 0.0))
        u = tf.where(m < 0.8, right, 1.0 / m - m)
        for _ in range(3):
            r = inverse_mills(u)
            u += tf.clip_by_value(
                (tf.math.log(tf.maximum(r, 1e-35)) - tf.math.log(m)) / tf.maximum(r + u, 1e-6), -1.0, 1.0
            )
        return t * u

    zero, infinite = tf.zeros_like(y), np.inf * tf.ones_like(y)
    lower, upper = tf.where(t > 0.0, -infinite, zero), tf.where(t > 0.0, zero, infinite)
    return QuadratureLoss(likelihood, y, lower, upper, pointwise=Pointwise(loss, slopes), start=start)


def jittered_probit_loss(likelihood: gl.Bernoulli, Y: TensorType) -> QuadratureLoss:
    """The loss of GPflow's default Bernoulli for Y [N, L], p = Phi (1 - 2 jitter) + jitter, which is not log-concave."""
    y = site_labels(Y)
    t = 2.0 * y - 1.0
    steepest, curvature = _jittered_extremes()
    share = 1.0 - 2.0 * JITTER

    def probability(u: tf.Tensor) -> tf.Tensor:
        return 0.5 * tf.math.erfc(-u / _SQRT_2) * share + JITTER

    def loss(eta: tf.Tensor) -> tf.Tensor:
        return -tf.math.log(probability(t * eta))

    def slopes(eta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        u = tf.clip_by_value(t * eta, -1e3, 1e3)
        r = share * tf.exp(-0.5 * tf.square(u)) / np.sqrt(2.0 * np.pi) / probability(u)
        return -t * r, r * (r + u)

    zero, ones = tf.zeros_like(t), tf.ones_like(t)
    lower, upper = tf.where(t > 0.0, -steepest * ones, zero), tf.where(t > 0.0, zero, steepest * ones)
    return QuadratureLoss(likelihood, y, lower, upper, curvature, pointwise=Pointwise(loss, slopes))


@cache
def _jittered_extremes() -> tuple[float, float]:
    """The largest |l'|, and the largest -l'', of the probit with jitter."""

    def slope(u: float) -> float:
        return (1.0 - 2.0 * JITTER) * norm.pdf(u) / (norm.cdf(u) * (1.0 - 2.0 * JITTER) + JITTER)

    grid = np.linspace(-8.0, 8.0, 1601)

    def largest(function: Any) -> float:
        at = grid[np.argmax([function(u) for u in grid])]
        found = minimize_scalar(
            lambda u: -function(u), bounds=(at - 0.01, at + 0.01), options={"xatol": 1e-10}, method="bounded"
        )
        return float(-found.fun) * (1.0 + 1e-12)

    return largest(slope), largest(lambda u: -slope(u) * (slope(u) + u))


def student_t_loss(likelihood: gl.StudentT, Y: TensorType) -> QuadratureLoss:
    """The loss of Student-t noise for Y [N, L], which is not log-concave; S is the range of the derivative alone."""
    y = site_labels(Y)
    df = tf.cast(constant_parameter(likelihood.df, "The degrees of freedom df", positive=True), y.dtype)
    constant_parameter(likelihood.scale, "The noise scale", positive=True)

    def scale() -> tf.Tensor:
        return tf.convert_to_tensor(likelihood.scale)

    def steepest() -> tf.Tensor:
        return (df + 1.0) / (2.0 * scale() * tf.sqrt(df))

    def lowest() -> tf.Tensor:
        return -steepest()

    def loss(eta: tf.Tensor) -> tf.Tensor:
        constant = tf.math.lgamma(0.5 * df) - tf.math.lgamma(0.5 * (df + 1.0)) + 0.5 * tf.math.log(df * np.pi)
        ratio = tf.square((eta - y) / scale()) / df
        return constant + tf.math.log(scale()) + 0.5 * (df + 1.0) * tf.math.log1p(ratio)

    def slopes(eta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        precision = (df + 1.0) / (df * tf.square(scale()))
        weight = 1.0 / (1.0 + tf.square((eta - y) / scale()) / df)
        return precision * (eta - y) * weight, precision * (2.0 * tf.square(weight) - weight)

    def start(alpha: tf.Tensor) -> tf.Tensor:
        """The residual of the smaller size that has this slope."""
        root = tf.sqrt(tf.maximum(tf.square(df + 1.0) - 4.0 * df * tf.square(alpha * scale()), 0.0))
        return y + 2.0 * alpha * df * tf.square(scale()) / (df + 1.0 + root)

    def curvature() -> tf.Tensor:
        return (df + 1.0) / (8.0 * df * tf.square(scale()))  # (V20)

    pointwise = Pointwise(loss, slopes)
    return QuadratureLoss(likelihood, y, lowest, steepest, curvature, pointwise=pointwise, start=start)


def negative_binomial_loss(likelihood: Any, Y: TensorType) -> QuadratureLoss:
    """The loss of counts Y [N, L] with mean exp(eta) and variance mean + mean^2 / size; log-concave.

    :param likelihood: a `NegativeBinomial`.
    """
    y = site_labels(Y)
    constant_parameter(likelihood.size, "The size of the negative binomial", positive=True)

    def size() -> tf.Tensor:
        return tf.convert_to_tensor(likelihood.size)

    def loss(eta: tf.Tensor) -> tf.Tensor:
        r = size() * tf.ones_like(y)
        x = eta - tf.math.log(r)
        return (y + r) * tf.nn.softplus(x) - y * x + tf.math.log(y + r) + tfp.math.lbeta(y + 1.0, r)

    def slopes(eta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        x = eta - tf.math.log(size())
        p = tf.sigmoid(x)
        return (y + size()) * p - y, (y + size()) * p * tf.sigmoid(-x)

    def start(alpha: tf.Tensor) -> tf.Tensor:
        tiny = 1e-12
        up, down = tf.maximum(y + alpha, tiny), tf.maximum(size() - alpha, tiny)
        return tf.math.log(size()) + tf.math.log(up) - tf.math.log(down)

    return QuadratureLoss(likelihood, y, -y, size, pointwise=Pointwise(loss, slopes), start=start)
