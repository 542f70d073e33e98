"""The inverse-Gamma family."""

from __future__ import annotations

__all__ = ["InverseGamma"]

from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from ...special.trigamma import gamma_shape, trigamma, trigamma_excess
from .base import Family, Natural, as_positive


class InverseGamma(Family):
    """Inverse-Gamma densities of shape a and scale b: lambda = (-a - 1, -b), the coefficients of (log z, 1/z)."""

    statistics = ("log z", "1/z")
    ranks = (0, 0)

    def natural(self, shape: Any, scale: Any) -> Natural:
        """Lambda from `shape` [...] and `scale` [...], both above 0."""
        a = as_positive("the shape of an InverseGamma", shape)
        b = as_positive("the scale of an InverseGamma", scale)
        return -a - 1.0 + 0.0 * b, -b + 0.0 * a

    @staticmethod
    def shape_and_scale(natural: Natural) -> tuple[tf.Tensor, tf.Tensor]:
        """(a, b), [...] each."""
        return -natural[0] - 1.0, -natural[1]

    def distribution(self, natural: Natural) -> tfp.distributions.Distribution:
        """`tfd.InverseGamma` with the batch of lambda."""
        return tfp.distributions.InverseGamma(*self.shape_and_scale(natural))

    def log_partition(self, natural: Natural) -> tf.Tensor:
        """[...]."""
        a, b = self.shape_and_scale(natural)
        return tf.math.lgamma(a) - a * tf.math.log(b)

    def expectation(self, natural: Natural) -> Natural:
        """(E log z, E 1/z), [...] each."""
        a, b = self.shape_and_scale(natural)
        return tf.math.log(b) - tf.math.digamma(a), a / b

    def natural_from_expectation(self, expectation: Natural) -> Natural:
        """From (E log z, E 1/z), [...] each."""
        log_mean, inverse_mean = expectation
        a = gamma_shape(tf.math.log(inverse_mean) + log_mean)
        return -a - 1.0, -a / inverse_mean

    def sufficient(self, z: tf.Tensor) -> Natural:
        """(log z, 1/z), of the shape of z."""
        return tf.math.log(z), 1.0 / z

    def fisher_solve(self, natural: Natural, gradient: Natural) -> Natural:
        """(C34), [...] each."""
        (a, b), (g_1, g_2) = self.shape_and_scale(natural), gradient
        d = trigamma_excess(a)
        return (a * g_1 + b * g_2) / d, b * (b * trigamma(a) * g_2 + g_1) / d  # (C34)

    def in_domain(self, natural: Natural) -> tf.Tensor:
        """[...]: a > 0 and b > 0."""
        a, b = self.shape_and_scale(natural)
        return (a > 0.0) & (b > 0.0)
