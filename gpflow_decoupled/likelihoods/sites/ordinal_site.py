"""Sites of grades."""

from __future__ import annotations

__all__ = ["ordinal_sites"]

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

from ...expectations.projections import Site
from ..ordinal import Ordinal
from ..parameters import constant_parameter, parameter_per_site
from ..support import classes
from .description import SiteDescription
from .quadrature_loss import QuadratureLoss
from .site_loss import site_labels


def _ordinal_loss(likelihood: Ordinal, Y: TensorType) -> QuadratureLoss:
    """Log-concave loss -log [Phi(b) - Phi(a)], monotone for the first and last grade."""
    y = site_labels(Y)
    constant_parameter(likelihood.sigma, "The noise sigma", positive=True)
    zero, infinite = tf.zeros_like(y), np.inf * tf.ones_like(y)
    first, last = y == 0.0, y == likelihood.num_bins - 1.0

    def start(alpha: tf.Tensor) -> tf.Tensor:
        return tf.gather(likelihood.middles, tf.cast(y, tf.int32))

    return QuadratureLoss(
        likelihood,
        y,
        lower=tf.where(first, zero, -infinite),
        upper=tf.where(last, zero, infinite),
        start=start,
    )


def _ordinal_density(likelihood: Ordinal, Y: tf.Tensor) -> Site:
    """The log density with the deviation and both edges of each grade as its parameters."""
    sigma = parameter_per_site(likelihood.sigma, "The noise sigma", Y)
    return Site(likelihood.log_prob_between, (Y, sigma, *likelihood.edges_of(Y)))


def ordinal_sites(likelihood: Ordinal) -> SiteDescription:
    """The sites of a likelihood with its number of grades."""
    return SiteDescription(_ordinal_loss, _ordinal_density, classes(likelihood.num_bins))
