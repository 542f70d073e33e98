"""The Beta family."""

from __future__ import annotations

__all__ = ["Beta"]

import numpy.typing as npt
import tensorflow as tf

from ...probability import tfp
from .concentrations import dirichlet_fisher_solve, dirichlet_log_mean, dirichlet_log_partition
from .family import Family, Natural, as_positive


class Beta(Family):
    """Beta densities with concentrations c_1, c_0: lambda = (c_1 - 1, c_0 - 1).

    The coefficients of log z and log(1 - z); Dirichlet densities of two classes.

    Example::

        natural = Beta().natural(concentration1=2.0, concentration0=5.0)
        log_z, log_rest = Beta().expectation(natural)                # E log z, E log(1 - z)
    """

    statistics = ("log z", "log(1 - z)")
    ranks = (0, 0)

    def natural(self, concentration1: npt.ArrayLike, concentration0: npt.ArrayLike) -> Natural:
        """Natural parameters of two arrays [...] above 0, named as in `tfd.Beta`."""
        c_1 = as_positive("concentration1 of a Beta", concentration1)
        c_0 = as_positive("concentration0 of a Beta", concentration0)
        return c_1 - 1.0 + 0.0 * c_0, c_0 - 1.0 + 0.0 * c_1

    def distribution(self, natural: Natural) -> tfp.distributions.Distribution:
        return tfp.distributions.Beta(natural[0] + 1.0, natural[1] + 1.0)

    def log_partition(self, natural: Natural) -> tf.Tensor:
        return dirichlet_log_partition(_stack(natural) + 1.0)

    def expectation(self, natural: Natural) -> Natural:
        """(E log z, E log(1 - z)), [...] each."""
        return _split(dirichlet_log_mean(_stack(natural) + 1.0))

    def sufficient(self, z: tf.Tensor) -> Natural:
        """(log z, log(1 - z)), of the shape of z."""
        return tf.math.log(z), tf.math.log1p(-z)

    def fisher_solve(self, natural: Natural, gradient: Natural) -> Natural:
        return _split(dirichlet_fisher_solve(_stack(natural) + 1.0, _stack(gradient)))  # (C35)

    def in_domain(self, natural: Natural) -> tf.Tensor:
        return (natural[0] > -1.0) & (natural[1] > -1.0)


def _stack(pair: Natural) -> tf.Tensor:
    return tf.stack(pair, axis=-1)


def _split(stacked: tf.Tensor) -> Natural:
    return stacked[..., 0], stacked[..., 1]
