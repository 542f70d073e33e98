"""The generalised normal base: from Laplace's density at power 1 by the normal at 2 to flat ones."""

from __future__ import annotations

__all__ = ["GeneralizedNormalBase"]

import math
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from .base import Base, Transform
from .generalized_normal import GeneralizedNormal, generalized_normal_cdf
from .generalized_transform import LARGEST_POWER, LEAST_POWER, generalized_normal_transform


class GeneralizedNormalBase(Base):
    """Density proportional to exp(-|r|^p), p = theta [..., 1] between 0.9 and 6.

    Its characteristic function comes from a table that is made once a process, in 1.5 s.
    """

    name = "generalized_normal"
    num_shapes = 1
    default = (1.5,)
    work = 32

    def bijector(self, dtype: tf.DType) -> Any:
        """A logistic curve between the ends of the table."""
        return tfp.bijectors.Sigmoid(tf.constant(LEAST_POWER, dtype), tf.constant(LARGEST_POWER, dtype))

    def problem(self, theta: np.ndarray) -> str:
        """A power outside of the table, theta [..., 1]."""
        if np.all((theta >= LEAST_POWER) & (theta <= LARGEST_POWER)):
            return ""
        return (
            f"the power of the generalised normal base is {theta.ravel()}; it must lie between {LEAST_POWER} and "
            f"{LARGEST_POWER}: clip it, or use VarianceGammaBase for heavier tails."
        )

    def raw_moments(self, theta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """[...] each."""
        inverse = 1.0 / theta[..., 0]
        return tf.zeros_like(inverse), tf.exp(0.5 * (tf.math.lgamma(3.0 * inverse) - tf.math.lgamma(inverse)))

    def raw_log_prob(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        """Of r [...]."""
        p = theta[..., 0]
        return tf.math.log(0.5 * p) - tf.math.lgamma(1.0 / p) - tf.pow(tf.abs(r), p)

    def raw_entropy(self, theta: tf.Tensor) -> tf.Tensor:
        """[...]."""
        p = theta[..., 0]
        return 1.0 / p - tf.math.log(p) + math.log(2.0) + tf.math.lgamma(1.0 / p)

    def raw_transform(self, omega: tf.Tensor, theta: tf.Tensor) -> Transform:
        """Of omega [...], to 1e-9."""
        return generalized_normal_transform(omega, theta[..., 0]), None

    def raw_cdf(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        """Of r [...], by (A6)."""
        return generalized_normal_cdf(r, theta[..., 0])

    def raw_sample(self, shape: Any, theta: tf.Tensor, seed: Any) -> tf.Tensor:
        """Draws [...]."""
        n = tf.reduce_prod(shape) // tf.maximum(tf.size(theta), 1)
        zero = tf.zeros([], theta.dtype)
        return tf.reshape(GeneralizedNormal(zero, 1.0 + zero, theta[..., 0]).sample(n, seed=seed), shape)

    def exponent(self, theta: tf.Tensor) -> tf.Tensor:
        """Infinite for powers above one, one raw unit at one, and 0 below, [...]."""
        p = tf.stop_gradient(theta[..., 0])
        at_one = tf.where(p > 1.0, tf.fill(tf.shape(p), tf.constant(math.inf, p.dtype)), self.raw_moments(theta)[1])
        return tf.where(p < 1.0, tf.zeros_like(p), at_one)

    def tail(self, theta: tf.Tensor) -> tf.Tensor:
        """30^(1/p) / sd, [...]."""
        held = tf.stop_gradient(theta)
        return tf.pow(tf.constant(30.0, held.dtype), 1.0 / held[..., 0]) / self.raw_moments(held)[1]
