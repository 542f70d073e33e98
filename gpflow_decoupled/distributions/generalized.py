"""The generalised normal base."""

from __future__ import annotations

__all__ = ["GeneralizedNormalBase"]

import math

import numpy as np
import tensorflow as tf

from ..probability import tfp
from .base_density import Base, Seed, Transform
from .scalar.generalized_normal import GeneralizedNormal, generalized_normal_cdf
from .scalar.generalized_transform import LARGEST_POWER, LEAST_POWER, generalized_normal_transform


class GeneralizedNormalBase(Base):
    """Symmetric densities proportional to exp(-|r|^p), p = theta [..., 1] in [0.9, 6].

    p = 1 is Laplace, p = 2 normal; smaller powers have heavier tails. The characteristic function
    comes from a table, computed once in 1.5 s.

    Example::

        base = GeneralizedNormalBase()
        base.entropy(tf.constant([[1.0], [2.0]], tf.float64))        # Laplace and normal, [2]
        model = AffineIndependentGLM((X, Y), Laplace(0.5), base="generalized_normal")
    """

    name = "generalized_normal"
    num_shapes = 1
    default = (1.5,)
    work = 32

    def bijector(self, dtype: tf.DType) -> tfp.bijectors.Bijector:
        return tfp.bijectors.Sigmoid(
            tf.constant(LEAST_POWER, dtype), tf.constant(LARGEST_POWER, dtype)
        )

    def problem(self, theta: np.ndarray) -> str:
        if np.all((theta >= LEAST_POWER) & (theta <= LARGEST_POWER)):
            return ""
        return (
            f"The power of the generalised normal base distribution is {theta.ravel()}; it must lie"
            f" between {LEAST_POWER} and {LARGEST_POWER}: clip it, or use VarianceGammaBase for"
            " heavier tails."
        )

    def raw_moments(self, theta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        inverse = 1.0 / theta[..., 0]
        return tf.zeros_like(inverse), tf.exp(
            0.5 * (tf.math.lgamma(3.0 * inverse) - tf.math.lgamma(inverse))
        )

    def raw_log_prob(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        p = theta[..., 0]
        return tf.math.log(0.5 * p) - tf.math.lgamma(1.0 / p) - tf.pow(tf.abs(r), p)

    def raw_entropy(self, theta: tf.Tensor) -> tf.Tensor:
        p = theta[..., 0]
        return 1.0 / p - tf.math.log(p) + math.log(2.0) + tf.math.lgamma(1.0 / p)

    def raw_transform(self, omega: tf.Tensor, theta: tf.Tensor) -> Transform:
        return generalized_normal_transform(omega, theta[..., 0]), None

    def raw_cdf(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        return generalized_normal_cdf(r, theta[..., 0])

    def raw_sample(self, shape: tf.Tensor, theta: tf.Tensor, seed: Seed) -> tf.Tensor:
        n = tf.reduce_prod(shape) // tf.maximum(tf.size(theta), 1)
        zero = tf.zeros([], theta.dtype)
        return tf.reshape(
            GeneralizedNormal(zero, 1.0 + zero, theta[..., 0]).sample(n, seed=seed), shape
        )

    def exponent(self, theta: tf.Tensor) -> tf.Tensor:
        """Infinite for powers above 1, the standard deviation of r at 1, and 0 below, [...]."""
        p = tf.stop_gradient(theta[..., 0])
        at_one = tf.where(
            p > 1.0,
            tf.fill(tf.shape(p), tf.constant(math.inf, p.dtype)),
            self.raw_moments(theta)[1],
        )
        return tf.where(p < 1.0, tf.zeros_like(p), at_one)

    def tail(self, theta: tf.Tensor) -> tf.Tensor:
        """30^(1/p) / sd, where the density is e^-30 of its maximum, [...]."""
        held = tf.stop_gradient(theta)
        return tf.pow(tf.constant(30.0, held.dtype), 1.0 / held[..., 0]) / self.raw_moments(held)[1]
