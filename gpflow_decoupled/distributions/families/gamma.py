"""The Gamma family."""

from __future__ import annotations

__all__ = ["Gamma"]

import numpy.typing as npt
import tensorflow as tf

from ...probability import tfp
from ...special.trigamma import trigamma, trigamma_excess
from .family import Family, Natural, as_positive


class Gamma(Family):
    """Gamma densities with shape a and rate b: lambda = (a - 1, -b), for log z and z, [...] each.

    Example::

        natural = Gamma().natural(shape=2.0, rate=0.5)
        log_mean, mean = Gamma().expectation(natural)                # psi(2) - log 0.5, and 4
    """

    statistics = ("log z", "z")
    ranks = (0, 0)

    def natural(self, shape: npt.ArrayLike, rate: npt.ArrayLike) -> Natural:
        """Natural parameters of `shape` [...] and `rate` [...], both above 0."""
        a, b = as_positive("the shape of a Gamma", shape), as_positive("the rate of a Gamma", rate)
        return a - 1.0 + 0.0 * b, -b + 0.0 * a

    @staticmethod
    def shape_and_rate(natural: Natural) -> tuple[tf.Tensor, tf.Tensor]:
        """(a, b), [...] each."""
        return natural[0] + 1.0, -natural[1]

    def distribution(self, natural: Natural) -> tfp.distributions.Distribution:
        return tfp.distributions.Gamma(*self.shape_and_rate(natural))

    def log_partition(self, natural: Natural) -> tf.Tensor:
        a, b = self.shape_and_rate(natural)
        return tf.math.lgamma(a) - a * tf.math.log(b)

    def expectation(self, natural: Natural) -> Natural:
        """(E log z, E z), [...] each."""
        a, b = self.shape_and_rate(natural)
        return tf.math.digamma(a) - tf.math.log(b), a / b

    def sufficient(self, z: tf.Tensor) -> Natural:
        """(log z, z), of the shape of z."""
        return tf.math.log(z), z

    def fisher_solve(self, natural: Natural, gradient: Natural) -> Natural:
        (a, b), (g_1, g_2) = self.shape_and_rate(natural), gradient
        d = trigamma_excess(a)
        return (a * g_1 - b * g_2) / d, b * (b * trigamma(a) * g_2 - g_1) / d  # (C33)

    def in_domain(self, natural: Natural) -> tf.Tensor:
        a, b = self.shape_and_rate(natural)
        return (a > 0.0) & (b > 0.0)
