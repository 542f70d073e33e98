"""The Student-t base distribution, with polynomial tails."""

from __future__ import annotations

__all__ = ["StudentTBase"]

import math

import numpy as np
import tensorflow as tf

from ..probability import tfp
from .base_density import Base, Seed, Transform

tfd = tfp.distributions
_NODES = 96  # normals that make up the characteristic function
_DROP = 34.0
"""The integrand of the characteristic function is cut where it is e^-34 of its maximum."""


class StudentTBase(Base):
    """Student's t density with theta [..., 1] degrees of freedom, above 2.

    Its tails are too long for the route "lattice".

    Example::

        model = AffineIndependentGLM(
            (X, Y), gpflow.likelihoods.StudentT(), base="student_t", non_normal=2
        )
    """

    name = "student_t"
    num_shapes = 1
    default = (5.0,)
    work = 9 * _NODES // 4

    def bijector(self, dtype: tf.DType) -> tfp.bijectors.Bijector:
        two, least = (tf.constant(value, dtype) for value in (2.0, 1e-3))
        return tfp.bijectors.Chain([tfp.bijectors.Shift(two), tfp.bijectors.Softplus(low=least)])

    def problem(self, theta: np.ndarray) -> str:
        if np.all(theta > 2.0):
            return ""
        return (
            f"The Student-t base distribution has {theta.ravel()} degrees of freedom, and its"
            " variance is infinite at 2 or less: use more than 2, for example 3."
        )

    def raw_moments(self, theta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        nu = theta[..., 0]
        return tf.zeros_like(nu), tf.sqrt(nu / (nu - 2.0))

    def raw_log_prob(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        nu = theta[..., 0]
        return _log_height(nu) - 0.5 * (nu + 1.0) * tf.math.log1p(tf.square(r) / nu)

    def raw_entropy(self, theta: tf.Tensor) -> tf.Tensor:
        nu = theta[..., 0]
        half = 0.5 * (nu + 1.0)
        return half * (tf.math.digamma(half) - tf.math.digamma(0.5 * nu)) - _log_height(nu)

    def raw_transform(self, omega: tf.Tensor, theta: tf.Tensor) -> Transform:
        """E exp(i omega r), for omega [...]: a normal whose precision has a Gamma distribution."""
        # A trapezoidal integral over s, the log precision times a = nu / 2, of exp(a s - e^s - nu
        # omega^2 e^-s / 4) / Gamma(a).
        nu = theta[..., 0]
        a = 0.5 * nu
        s = _nodes(tf.stop_gradient(a))
        log_weight = a[..., None] * s - tf.exp(s) - tf.math.lgamma(a)[..., None]
        weight = tf.exp(log_weight) * (s[..., 1:2] - s[..., 0:1])
        rate = 0.25 * nu[..., None] * tf.exp(-s)
        return tf.reduce_sum(weight * tf.exp(-rate * tf.square(omega)[..., None]), axis=-1), None

    def raw_cdf(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        one = tf.ones([], theta.dtype)
        return tfd.StudentT(theta[..., 0], 0.0 * one, one).cdf(r)

    def raw_sample(self, shape: tf.Tensor, theta: tf.Tensor, seed: Seed) -> tf.Tensor:
        n = tf.reduce_prod(shape) // tf.maximum(tf.size(theta), 1)
        one = tf.ones([], theta.dtype)
        return tf.reshape(tfd.StudentT(theta[..., 0], 0.0 * one, one).sample(n, seed=seed), shape)

    def exponent(self, theta: tf.Tensor) -> tf.Tensor:
        """0, [...]: no exponential moment is finite."""
        return tf.zeros_like(theta[..., 0])

    def tail(self, theta: tf.Tensor) -> tf.Tensor:
        """43 for five degrees of freedom, several hundred for three, [...]."""
        nu = tf.stop_gradient(theta[..., 0])
        scale = self.raw_moments(tf.stop_gradient(theta))[1]

        def shortfall(log_r: tf.Tensor) -> tf.Tensor:
            """log 1e-8 minus the log of a bound on the mass beyond r, 2 density / hazard rate."""
            density = _log_height(nu) - 0.5 * (nu + 1.0) * tf.math.log1p(tf.exp(2.0 * log_r) / nu)
            hazard = (nu + 1.0) / (nu * tf.exp(-log_r) + tf.exp(log_r))
            return math.log(1e-8) - (math.log(2.0) + density - tf.math.log(hazard))

        ends = tf.zeros_like(nu) + 1.2, tf.zeros_like(nu) + 20.0
        return tf.exp(tfp.math.find_root_chandrupatla(shortfall, *ends).estimated_root) / scale


def _log_height(nu: tf.Tensor) -> tf.Tensor:
    normaliser = tf.math.lgamma(0.5 * nu) + 0.5 * tf.math.log(math.pi * nu)
    return tf.math.lgamma(0.5 * (nu + 1.0)) - normaliser


def _nodes(a: tf.Tensor) -> tf.Tensor:
    peak = tf.math.log(a)

    def fall(distance: tf.Tensor) -> tf.Tensor:
        return a * (tf.exp(distance) - 1.0 - distance) - _DROP

    zero = tf.zeros_like(a)
    up = tfp.math.find_root_chandrupatla(fall, zero, zero + 5.0).estimated_root
    down = tfp.math.find_root_chandrupatla(lambda x: fall(-x), zero, _DROP / a + 2.0).estimated_root
    ends = tf.linspace(tf.zeros([], a.dtype), tf.ones([], a.dtype), _NODES)
    return (peak - down)[..., None] + (up + down)[..., None] * ends
