"""Sites of rates: GPflow's `Beta`, probit link."""

from __future__ import annotations

__all__ = ["beta_sites"]

import numpy as np
import tensorflow as tf
from gpflow import likelihoods as gl
from gpflow.base import TensorType
from gpflow.likelihoods.utils import inv_probit

from ..parameters import constant_parameter
from ..support import UNIT_INTERVAL
from .description import SiteDescription
from .probit_site import JITTER
from .quadrature_loss import QuadratureLoss
from .site_loss import site_labels

_GRID = np.linspace(-9.0, 9.0, 1801)
"""Latents on which the extremes of the slopes are sought; beyond, they vanish with the density of
the normal distribution.
"""
_MARGIN = 1e-3
"""Share added to the extremes of the grid, which miss the true ones by less than 2e-4."""


def _beta_loss(likelihood: gl.Beta, Y: TensorType) -> QuadratureLoss:
    """Loss of Beta(scale m, scale (1 - m)) with m = Phi(f) but for GPflow's jitter; not
    log-concave.
    """
    y = site_labels(Y)
    constant_parameter(likelihood.scale, "The scale of the Beta likelihood", positive=True)
    logit = tf.math.log(y) - tf.math.log1p(-y)
    grid = tf.constant(_GRID, y.dtype)[:, None, None] + tf.zeros_like(y)

    def slopes(eta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        scale, mean = tf.convert_to_tensor(likelihood.scale), inv_probit(eta)
        density = tf.exp(-0.5 * tf.square(eta)) / np.sqrt(2.0 * np.pi)
        rise = scale * (1.0 - 2.0 * JITTER) * density  # d (scale m) / d eta
        a, b = scale * mean, scale * (1.0 - mean)
        first = rise * (tf.math.digamma(a) - tf.math.digamma(b) - logit)
        one = tf.ones_like(a)
        bend = tf.math.polygamma(one, a) + tf.math.polygamma(one, b)
        return first, tf.square(rise) * bend - eta * first

    def extremes() -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        first, second = slopes(grid)
        margin = _MARGIN * tf.reduce_max(tf.abs(first), axis=0)
        more = _MARGIN * tf.reduce_max(tf.abs(second), axis=0)
        return (
            tf.reduce_min(first, axis=0) - margin,
            tf.reduce_max(first, axis=0) + margin,
            tf.maximum(-tf.reduce_min(second, axis=0), 0.0) + more,
        )

    return QuadratureLoss(
        likelihood,
        y,
        lower=lambda: extremes()[0],
        upper=lambda: extremes()[1],
        curvature=lambda: extremes()[2],
        slopes=slopes,
    )


def beta_sites(likelihood: gl.Beta) -> SiteDescription:
    """The sites of a likelihood, with losses for the default inverse link alone."""
    loss = _beta_loss if likelihood.invlink is inv_probit else None
    return SiteDescription(loss=loss, support=UNIT_INTERVAL)
