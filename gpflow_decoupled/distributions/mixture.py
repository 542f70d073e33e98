"""Mixtures of normals."""

from __future__ import annotations

__all__ = ["NormalMixtureBase"]

import math

import numpy as np
import tensorflow as tf

from ..errors import DataError
from ..probability import tfp
from ..special.normal import normal_cdf
from .base_density import Base, Seed, Transform

tfd = tfp.distributions
_REACH, _NODES = 8.5, 241  # of each component, in its deviations: the entropy to 1e-10


class NormalMixtureBase(Base):
    """A mixture of J normals; theta [..., 3 J] has log weights, means, log standard deviations.

    Unconstrained. The entropy is exact to 1e-10 unless a standard deviation is below a fifteenth of
    an overlapping component's.

    :param components: J.

    Example::

        model = AffineIndependentGP(
            (X, Y), gpflow.kernels.Matern52(), BernoulliLogit(), base=NormalMixtureBase(3)
        )
    """

    name = "normal_mixture"
    symmetric = False

    def __init__(self, components: int = 2) -> None:
        if components < 1:
            raise DataError(f"components={components}: a mixture needs at least one component.")
        self.components = components
        self.num_shapes = 3 * components
        self.work = 10 + 4 * components
        means = np.linspace(-1.0, 1.0, components) if components > 1 else np.zeros(1)
        self.default = (*np.zeros(components), *means, *np.linspace(0.0, -0.5, components))

    def _parts(self, theta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        logits, means, log_scales = tf.split(theta, 3, axis=-1)
        return tf.nn.log_softmax(logits, axis=-1), means, tf.exp(log_scales)

    def raw_moments(self, theta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        log_weights, means, scales = self._parts(theta)
        weights = tf.exp(log_weights)
        mean = tf.reduce_sum(weights * means, axis=-1)
        spread = tf.square(scales) + tf.square(means - mean[..., None])
        return mean, tf.sqrt(tf.reduce_sum(weights * spread, axis=-1))

    def raw_log_prob(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        log_weights, means, scales = self._parts(theta)
        z = (r[..., None] - means) / scales
        terms = log_weights - tf.math.log(scales) - 0.5 * (tf.square(z) + math.log(2.0 * math.pi))
        return tf.reduce_logsumexp(terms, axis=-1)

    def raw_entropy(self, theta: tf.Tensor) -> tf.Tensor:
        log_weights, means, scales = self._parts(theta)
        nodes = np.linspace(-_REACH, _REACH, _NODES)
        weights = np.exp(-0.5 * nodes**2) * (nodes[1] - nodes[0]) / math.sqrt(2.0 * math.pi)
        r = means[..., None] + scales[..., None] * tf.constant(nodes, theta.dtype)
        log_q = self.raw_log_prob(r, theta[..., None, None, :])
        each = tf.reduce_sum(log_q * tf.constant(weights, theta.dtype), axis=-1)
        return -tf.reduce_sum(tf.exp(log_weights) * each, axis=-1)

    def raw_transform(self, omega: tf.Tensor, theta: tf.Tensor) -> Transform:
        log_weights, means, scales = self._parts(theta)
        real = imaginary = tf.zeros_like(omega)
        for j in range(self.components):
            size = tf.exp(log_weights[..., j] - 0.5 * tf.square(omega * scales[..., j]))
            real += size * tf.cos(omega * means[..., j])
            imaginary += size * tf.sin(omega * means[..., j])
        return real, imaginary

    def raw_cdf(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        log_weights, means, scales = self._parts(theta)
        terms = (
            tf.exp(log_weights[..., j]) * normal_cdf((r - means[..., j]) / scales[..., j])
            for j in range(self.components)
        )
        return tf.add_n(list(terms))

    def raw_sample(self, shape: tf.Tensor, theta: tf.Tensor, seed: Seed) -> tf.Tensor:
        log_weights, means, scales = self._parts(theta)
        normals = tfd.Normal(means, scales)
        mixture = tfd.MixtureSameFamily(tfd.Categorical(logits=log_weights), normals)
        n = tf.reduce_prod(shape) // tf.reduce_prod(tf.shape(theta)[:-1])
        return tf.reshape(mixture.sample(n, seed=seed), shape)

    def tail(self, theta: tf.Tensor) -> tf.Tensor:
        """6.5 standard deviations beyond the outermost component, [...]."""
        held = tf.stop_gradient(theta)
        mean, scale = self.raw_moments(held)
        _, means, scales = self._parts(held)
        return tf.reduce_max(tf.abs(means - mean[..., None]) + 6.5 * scales, axis=-1) / scale
