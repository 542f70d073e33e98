"""The skew-normal base distribution."""

from __future__ import annotations

__all__ = ["SkewNormalBase"]

import math

import tensorflow as tf

from ..special.normal import log_normal_cdf
from .base_density import Base, Seed, Transform
from .scalar.skew_normal import (
    SkewNormal,
    skew_normal_cdf,
    skew_normal_entropy,
    skew_normal_transform,
)


class SkewNormalBase(Base):
    """Azzalini's skew-normal density 2 phi(r) Phi(theta r), with one shape theta [..., 1].

    theta = 0 is normal, plus or minus infinity half-normal. Do not start at theta = 0, where the
    gradient of the bound vanishes.

    Example::

        base = SkewNormalBase()
        omega, theta = tf.constant([0.5, 1.0], tf.float64), tf.constant([2.0], tf.float64)
        base.characteristic(omega, theta)  # complex, [2]
        model = AffineIndependentGP(
            (X, Y), gpflow.kernels.Matern52(), BernoulliLogit(), base="skew_normal"
        )
    """

    name = "skew_normal"
    num_shapes = 1
    default = (1.0,)
    symmetric = False
    work = 14

    def raw_moments(self, theta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        shape = theta[..., 0]
        mean = math.sqrt(2.0 / math.pi) * shape / tf.sqrt(1.0 + tf.square(shape))
        return mean, tf.sqrt(1.0 - tf.square(mean))

    def raw_log_prob(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        return (
            0.5 * math.log(2.0 / math.pi) - 0.5 * tf.square(r) + log_normal_cdf(theta[..., 0] * r)
        )

    def raw_entropy(self, theta: tf.Tensor) -> tf.Tensor:
        return skew_normal_entropy(theta[..., 0])  # (A4)

    def raw_transform(self, omega: tf.Tensor, theta: tf.Tensor) -> Transform:
        return skew_normal_transform(omega, theta[..., 0])  # (A5)

    def raw_cdf(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        return skew_normal_cdf(r, theta[..., 0])

    def raw_sample(self, shape: tf.Tensor, theta: tf.Tensor, seed: Seed) -> tf.Tensor:
        n = tf.reduce_prod(shape) // tf.maximum(tf.size(theta), 1)
        zero = tf.zeros([], theta.dtype)
        return tf.reshape(SkewNormal(zero, 1.0 + zero, theta[..., 0]).sample(n, seed=seed), shape)

    def tail(self, theta: tf.Tensor) -> tf.Tensor:
        """6.5 for a normal density to 9.5 for a half-normal one, [...]."""
        mean, scale = self.raw_moments(tf.stop_gradient(theta))
        return (6.5 - tf.abs(mean)) / scale
