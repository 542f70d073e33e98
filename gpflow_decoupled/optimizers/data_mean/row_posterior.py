"""Moments of q(f) at all rows."""

from __future__ import annotations

__all__ = ["Posterior", "posterior_of", "sites_of"]

from typing import NamedTuple

import tensorflow as tf
from gpflow.base import RegressionData

from ...bases import GaussianPart
from ...linalg.gaussians import kl_from_whitened
from ...models import BasisGP
from .row_features import RowFeatures

_LEAST_WEIGHT = 1e-8
"""Smallest precision of a site in the linear system, relative to the largest curvature.

It changes the steps of the mean and not their limit; the covariance uses the curvatures themselves.
"""


class Posterior(NamedTuple):
    """q(f) at fixed hyperparameters, with moments and derivatives for a step."""

    a: tf.Tensor
    """Coefficients [N, L]."""
    K_a: tf.Tensor
    """K a [N, L]."""
    inducing: GaussianPart
    """q(u), whitened."""
    mean: tf.Tensor
    """Mean of f at the rows [N, L], without the mean function."""
    variance: tf.Tensor
    """Variance of f at the rows [N, L]."""
    g: tf.Tensor
    """dE/dmean [N, L]."""
    h: tf.Tensor
    """dE/dvariance [N, L]."""
    elbo: float
    """Nats."""


def posterior_of(
    model: BasisGP,
    data: RegressionData,
    projections: RowFeatures,
    a: tf.Tensor,
    K_a: tf.Tensor,
    inducing: GaussianPart,
) -> Posterior:
    """Moments (D19), (D20), bound (D21) and derivatives of q(f); N M^2 L.

    X is [N, D], Y [N, P], a and K_a [N, L], `inducing` the whitened q(u).
    """
    t = projections.times(a, projections.size)
    mean = K_a + projections.transposed(inducing.mean - t)  # (D19)
    variance = projections.variances(inducing.root)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch([mean, variance])
        expected = tf.reduce_sum(model.variational_expectations(mean, variance, data))
    g, h = tape.gradient(expected, [mean, variance])
    norm = tf.reduce_sum(a * K_a) - tf.reduce_sum(tf.square(t))
    kl = 0.5 * norm + kl_from_whitened(inducing.mean, inducing.root)  # (D21)
    return Posterior(a, K_a, inducing, mean, variance, g, h, float(expected - kl))


def sites_of(now: Posterior) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Fit sites (C13) to the moments, each [N, L].

    :return: natural means g + w m; precisions w above zero, for the mean; precisions -2 h of any
        sign, for the covariance.
    """
    precisions = -2.0 * now.h
    weights = tf.maximum(precisions, _LEAST_WEIGHT * tf.reduce_max(tf.abs(precisions)))
    return now.g + weights * now.mean, weights, precisions
