"""The Dirichlet family."""

from __future__ import annotations

__all__ = ["Dirichlet"]

import numpy.typing as npt
import tensorflow as tf

from ...errors import DataError
from ...probability import tfp
from .concentrations import dirichlet_fisher_solve, dirichlet_log_mean, dirichlet_log_partition
from .family import Family, Natural, as_positive


class Dirichlet(Family):
    """Dirichlet densities with concentrations c [..., K]: lambda = (c - 1,).

    `concentrations` has the same mathematics as functions of c.

    Example::

        natural = Dirichlet().natural(concentration=[1.0, 2.0, 3.0])
        (log_mean,) = Dirichlet().expectation(natural)               # E log theta, [3]
    """

    statistics = ("log theta",)
    ranks = (1,)

    def natural(self, concentration: npt.ArrayLike) -> Natural:
        """Natural parameters of `concentration` [..., K] above 0, K >= 2."""
        c = as_positive("the concentration of a Dirichlet", concentration)
        if c.shape.rank == 0 or c.shape[-1] == 1:
            raise DataError(
                f"the concentration of a Dirichlet has shape {tuple(c.shape)} and needs [..., K], K"
                " >= 2."
            )
        return (c - 1.0,)

    def distribution(self, natural: Natural) -> tfp.distributions.Distribution:
        return tfp.distributions.Dirichlet(natural[0] + 1.0)

    def log_partition(self, natural: Natural) -> tf.Tensor:
        return dirichlet_log_partition(natural[0] + 1.0)

    def expectation(self, natural: Natural) -> Natural:
        """(E log theta [..., K],)."""
        return (dirichlet_log_mean(natural[0] + 1.0),)

    def sufficient(self, z: tf.Tensor) -> Natural:
        """(log z,) for z [..., K] on the simplex."""
        return (tf.math.log(z),)

    def fisher_solve(self, natural: Natural, gradient: Natural) -> Natural:
        return (dirichlet_fisher_solve(natural[0] + 1.0, gradient[0]),)  # (C35)

    def in_domain(self, natural: Natural) -> tf.Tensor:
        return tf.reduce_all(natural[0] > -1.0, axis=-1)
