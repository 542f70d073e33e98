"""Sites of grades, by quadrature."""

from __future__ import annotations

__all__ = ["ordinal_sites"]

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

from ..ordinal import Ordinal
from ..parameters import constant_parameter
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
    edges = np.asarray(likelihood.bin_edges)
    middles = tf.constant(
        [edges[0] - 1.0, *(0.5 * (edges[1:] + edges[:-1])), edges[-1] + 1.0], y.dtype
    )

    def start(alpha: tf.Tensor) -> tf.Tensor:
        return tf.gather(middles, tf.cast(y, tf.int32))

    return QuadratureLoss(
        likelihood,
        y,
        lower=tf.where(first, zero, -infinite),
        upper=tf.where(last, zero, infinite),
        start=start,
    )


def ordinal_sites(likelihood: Ordinal) -> SiteDescription:
    """The sites of a likelihood with its number of grades."""
    return SiteDescription(loss=_ordinal_loss, support=classes(likelihood.num_bins))
