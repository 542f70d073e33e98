"""Base distributions without shapes: normal, Laplace, logistic."""

from __future__ import annotations

__all__ = ["LaplaceBase", "LogisticBase", "NormalBase"]

import math

import tensorflow as tf

from ..probability import tfp
from ..special.hyperbolic import x_over_sinh
from ..special.normal import normal_cdf
from .base_density import Base, Seed, Transform

tfd = tfp.distributions


def _constant(theta: tf.Tensor, number: float) -> tf.Tensor:
    return tf.reduce_sum(theta, axis=-1) + number


class NormalBase(Base):
    """The standard normal density; affine-independent inference becomes Gaussian KL inference.

    Example::

        model = AffineIndependentGP(
            (X, Y), gpflow.kernels.Matern52(), BernoulliLogit(), base=NormalBase()
        )
    """

    name = "normal"

    def raw_moments(self, theta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return _constant(theta, 0.0), _constant(theta, 1.0)

    def raw_entropy(self, theta: tf.Tensor) -> tf.Tensor:
        return _constant(theta, 0.5 * math.log(2.0 * math.pi * math.e))

    def raw_log_prob(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        return -0.5 * (tf.square(r) + math.log(2.0 * math.pi))

    def raw_transform(self, omega: tf.Tensor, theta: tf.Tensor) -> Transform:
        return tf.exp(-0.5 * tf.square(omega)), None

    def raw_cdf(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        return normal_cdf(r)

    def raw_sample(self, shape: tf.Tensor, theta: tf.Tensor, seed: Seed) -> tf.Tensor:
        return tfd.Normal(tf.zeros([], theta.dtype), 1.0).sample(shape, seed=seed)

    def tail(self, theta: tf.Tensor) -> tf.Tensor:
        return _constant(theta, 6.5)


class LaplaceBase(Base):
    """The Laplace density: a kink at zero and exponential tails.

    Example::

        model = AffineIndependentGLM((X, Y), Laplace(0.5), base=LaplaceBase())
    """

    name = "laplace"

    def raw_moments(self, theta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return _constant(theta, 0.0), _constant(theta, math.sqrt(2.0))

    def raw_entropy(self, theta: tf.Tensor) -> tf.Tensor:
        return _constant(theta, 1.0 + math.log(2.0))

    def raw_log_prob(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        return -tf.abs(r) - math.log(2.0)

    def raw_transform(self, omega: tf.Tensor, theta: tf.Tensor) -> Transform:
        return 1.0 / (1.0 + tf.square(omega)), None

    def raw_cdf(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        half = 0.5 * tf.exp(-tf.abs(r))
        return tf.where(r < 0.0, half, 1.0 - half)

    def raw_sample(self, shape: tf.Tensor, theta: tf.Tensor, seed: Seed) -> tf.Tensor:
        return tfd.Laplace(tf.zeros([], theta.dtype), 1.0).sample(shape, seed=seed)

    def exponent(self, theta: tf.Tensor) -> tf.Tensor:
        """sqrt(2), [...]."""
        return self.raw_moments(theta)[1]

    def tail(self, theta: tf.Tensor) -> tf.Tensor:
        return _constant(theta, 15.0)


class LogisticBase(Base):
    """The logistic density: smooth, with exponential tails.

    Example::

        model = AffineIndependentGP(
            (X, Y), gpflow.kernels.Matern52(), BernoulliLogit(), base=LogisticBase()
        )
    """

    name = "logistic"

    def raw_moments(self, theta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return _constant(theta, 0.0), _constant(theta, math.pi / math.sqrt(3.0))

    def raw_entropy(self, theta: tf.Tensor) -> tf.Tensor:
        return _constant(theta, 2.0)

    def raw_log_prob(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        return -tf.abs(r) - 2.0 * tf.math.log1p(tf.exp(-tf.abs(r)))

    def raw_transform(self, omega: tf.Tensor, theta: tf.Tensor) -> Transform:
        return x_over_sinh(math.pi * omega), None

    def raw_cdf(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        return tf.sigmoid(r)

    def raw_sample(self, shape: tf.Tensor, theta: tf.Tensor, seed: Seed) -> tf.Tensor:
        return tfd.Logistic(tf.zeros([], theta.dtype), 1.0).sample(shape, seed=seed)

    def exponent(self, theta: tf.Tensor) -> tf.Tensor:
        """pi / sqrt(3), [...]."""
        return self.raw_moments(theta)[1]

    def tail(self, theta: tf.Tensor) -> tf.Tensor:
        return _constant(theta, 14.0)
