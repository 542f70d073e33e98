"""Bases without a shape, whose every function is closed: normal, Laplace, logistic."""

from __future__ import annotations

__all__ = ["LaplaceBase", "LogisticBase", "NormalBase"]

import math
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from ..special.hyperbolic import x_over_sinh
from ..special.normal import normal_cdf
from .base import Base, Transform

tfd = tfp.distributions


def _constant(theta: tf.Tensor, number: float) -> tf.Tensor:
    """The number [...] for theta [..., 0], which still gives batch shape and dtype."""
    return tf.reduce_sum(theta, axis=-1) + number


class NormalBase(Base):
    """The standard normal: affine-independent inference is Gaussian KL inference."""

    name = "normal"

    def raw_moments(self, theta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """[...] each."""
        return _constant(theta, 0.0), _constant(theta, 1.0)

    def raw_entropy(self, theta: tf.Tensor) -> tf.Tensor:
        """[...]."""
        return _constant(theta, 0.5 * math.log(2.0 * math.pi * math.e))

    def raw_log_prob(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        """Of r [...]."""
        return -0.5 * (tf.square(r) + math.log(2.0 * math.pi))

    def raw_transform(self, omega: tf.Tensor, theta: tf.Tensor) -> Transform:
        """Of omega [...]."""
        return tf.exp(-0.5 * tf.square(omega)), None

    def raw_cdf(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        """Of r [...]."""
        return normal_cdf(r)

    def raw_sample(self, shape: Any, theta: tf.Tensor, seed: Any) -> tf.Tensor:
        """Draws [...]."""
        return tfd.Normal(tf.zeros([], theta.dtype), 1.0).sample(shape, seed=seed)

    def tail(self, theta: tf.Tensor) -> tf.Tensor:
        """6.5 [...]."""
        return _constant(theta, 6.5)


class LaplaceBase(Base):
    """The Laplace density: a kink at zero, exponential tails."""

    name = "laplace"

    def raw_moments(self, theta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """[...] each."""
        return _constant(theta, 0.0), _constant(theta, math.sqrt(2.0))

    def raw_entropy(self, theta: tf.Tensor) -> tf.Tensor:
        """[...]."""
        return _constant(theta, 1.0 + math.log(2.0))

    def raw_log_prob(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        """Of r [...]."""
        return -tf.abs(r) - math.log(2.0)

    def raw_transform(self, omega: tf.Tensor, theta: tf.Tensor) -> Transform:
        """Of omega [...]."""
        return 1.0 / (1.0 + tf.square(omega)), None

    def raw_cdf(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        """Of r [...]."""
        half = 0.5 * tf.exp(-tf.abs(r))
        return tf.where(r < 0.0, half, 1.0 - half)

    def raw_sample(self, shape: Any, theta: tf.Tensor, seed: Any) -> tf.Tensor:
        """Draws [...]."""
        return tfd.Laplace(tf.zeros([], theta.dtype), 1.0).sample(shape, seed=seed)

    def exponent(self, theta: tf.Tensor) -> tf.Tensor:
        """One raw unit: the standard deviation [...]."""
        return self.raw_moments(theta)[1]

    def tail(self, theta: tf.Tensor) -> tf.Tensor:
        """15 [...]."""
        return _constant(theta, 15.0)


class LogisticBase(Base):
    """The logistic density: smooth, exponential tails."""

    name = "logistic"

    def raw_moments(self, theta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """[...] each."""
        return _constant(theta, 0.0), _constant(theta, math.pi / math.sqrt(3.0))

    def raw_entropy(self, theta: tf.Tensor) -> tf.Tensor:
        """[...]."""
        return _constant(theta, 2.0)

    def raw_log_prob(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        """Of r [...]."""
        return -tf.abs(r) - 2.0 * tf.math.log1p(tf.exp(-tf.abs(r)))

    def raw_transform(self, omega: tf.Tensor, theta: tf.Tensor) -> Transform:
        """Of omega [...]."""
        return x_over_sinh(math.pi * omega), None

    def raw_cdf(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        """Of r [...]."""
        return tf.sigmoid(r)

    def raw_sample(self, shape: Any, theta: tf.Tensor, seed: Any) -> tf.Tensor:
        """Draws [...]."""
        return tfd.Logistic(tf.zeros([], theta.dtype), 1.0).sample(shape, seed=seed)

    def exponent(self, theta: tf.Tensor) -> tf.Tensor:
        """One raw unit: the standard deviation [...]."""
        return self.raw_moments(theta)[1]

    def tail(self, theta: tf.Tensor) -> tf.Tensor:
        """14 [...]."""
        return _constant(theta, 14.0)
