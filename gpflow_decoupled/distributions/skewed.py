"""The skew-normal base: a shape from minus to plus infinity, the half-normal density at either end."""

from __future__ import annotations

__all__ = ["SkewNormalBase"]

import math
from typing import Any

import tensorflow as tf

from ..special.normal import log_normal_cdf
from .base import Base, Transform
from .skew_normal import (
    SkewNormal,
    skew_normal_cdf,
    skew_normal_entropy,
    skew_normal_transform,
)


class SkewNormalBase(Base):
    """Azzalini's skew-normal, theta [..., 1]; zero is the normal base, where the gradient in theta vanishes."""

    name = "skew_normal"
    num_shapes = 1
    default = (1.0,)
    symmetric = False
    work = 14

    def raw_moments(self, theta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """[...] each."""
        shape = theta[..., 0]
        mean = math.sqrt(2.0 / math.pi) * shape / tf.sqrt(1.0 + tf.square(shape))
        return mean, tf.sqrt(1.0 - tf.square(mean))

    def raw_log_prob(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        """Of r [...]."""
        return 0.5 * math.log(2.0 / math.pi) - 0.5 * tf.square(r) + log_normal_cdf(theta[..., 0] * r)

    def raw_entropy(self, theta: tf.Tensor) -> tf.Tensor:
        """[...], by (A4)."""
        return skew_normal_entropy(theta[..., 0])

    def raw_transform(self, omega: tf.Tensor, theta: tf.Tensor) -> Transform:
        """Of omega [...], by (A5)."""
        return skew_normal_transform(omega, theta[..., 0])

    def raw_cdf(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        """Of r [...]."""
        return skew_normal_cdf(r, theta[..., 0])

    def raw_sample(self, shape: Any, theta: tf.Tensor, seed: Any) -> tf.Tensor:
        """Draws [...]."""
        n = tf.reduce_prod(shape) // tf.maximum(tf.size(theta), 1)
        zero = tf.zeros([], theta.dtype)
        return tf.reshape(SkewNormal(zero, 1.0 + zero, theta[..., 0]).sample(n, seed=seed), shape)

    def tail(self, theta: tf.Tensor) -> tf.Tensor:
        """From 6.5 at zero to 9.5 for a half-normal, [...]."""
        mean, scale = self.raw_moments(tf.stop_gradient(theta))
        return (6.5 - tf.abs(mean)) / scale
