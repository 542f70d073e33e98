"""The inverse-Gamma family."""

from __future__ import annotations

__all__ = ["InverseGamma"]

import numpy.typing as npt
import tensorflow as tf

from ...probability import tfp
from ...special.trigamma import trigamma, trigamma_excess
from .family import Family, Natural, as_positive


class InverseGamma(Family):
    """Inverse-Gamma densities with shape a, scale b: lambda = (-a - 1, -b), for log z and 1/z.

    Example::

        natural = InverseGamma().natural(shape=3.0, scale=2.0)
        log_mean, inverse_mean = InverseGamma().expectation(natural)  # E log z, and E 1/z = 3/2
    """

    statistics = ("log z", "1/z")
    ranks = (0, 0)

    def natural(self, shape: npt.ArrayLike, scale: npt.ArrayLike) -> Natural:
        """Natural parameters of `shape` [...] and `scale` [...], both above 0."""
        a = as_positive("the shape of an InverseGamma", shape)
        b = as_positive("the scale of an InverseGamma", scale)
        return -a - 1.0 + 0.0 * b, -b + 0.0 * a

    @staticmethod
    def shape_and_scale(natural: Natural) -> tuple[tf.Tensor, tf.Tensor]:
        """(a, b), [...] each."""
        return -natural[0] - 1.0, -natural[1]

    def distribution(self, natural: Natural) -> tfp.distributions.Distribution:
        return tfp.distributions.InverseGamma(*self.shape_and_scale(natural))

    def log_partition(self, natural: Natural) -> tf.Tensor:
        a, b = self.shape_and_scale(natural)
        return tf.math.lgamma(a) - a * tf.math.log(b)

    def expectation(self, natural: Natural) -> Natural:
        """(E log z, E 1/z), [...] each."""
        a, b = self.shape_and_scale(natural)
        return tf.math.log(b) - tf.math.digamma(a), a / b

    def sufficient(self, z: tf.Tensor) -> Natural:
        """(log z, 1/z), of the shape of z."""
        return tf.math.log(z), 1.0 / z

    def fisher_solve(self, natural: Natural, gradient: Natural) -> Natural:
        (a, b), (g_1, g_2) = self.shape_and_scale(natural), gradient
        d = trigamma_excess(a)
        return (a * g_1 + b * g_2) / d, b * (b * trigamma(a) * g_2 + g_1) / d  # (C34)

    def in_domain(self, natural: Natural) -> tf.Tensor:
        a, b = self.shape_and_scale(natural)
        return (a > 0.0) & (b > 0.0)
