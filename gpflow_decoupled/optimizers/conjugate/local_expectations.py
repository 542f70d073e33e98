"""One observation's contribution to the bound."""

from __future__ import annotations

__all__ = ["Expectations", "by_quadrature", "by_sampling"]

from typing import NamedTuple

import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.models import GPModel

from ...models import CVIGP, BasisGP
from ...models.expectations import check_draws, log_densities


class Expectations(NamedTuple):
    """E_n = E_q log p(y_n | f_n), and its derivatives in mean and variance of the latents."""

    value: tf.Tensor
    """E [N], nats."""
    g: tf.Tensor
    """dE/dmean [N, L]."""
    h: tf.Tensor
    """dE/dvariance [N, L]."""


def by_quadrature(
    model: CVIGP | BasisGP, mean: tf.Tensor, variance: tf.Tensor, data: RegressionData
) -> Expectations:
    """Expectations by the likelihood's integrals: closed forms or Gauss-Hermite quadrature.

    Mean (less the mean function) and variance of q are [N, L], X [N, D], Y [N, P].
    """
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch([mean, variance])
        value = model.variational_expectations(mean, variance, data)
    return Expectations(value, *tape.gradient(value, [mean, variance]))


def by_sampling(
    model: GPModel,
    mean: tf.Tensor,
    variance: tf.Tensor,
    data: RegressionData,
    samples: int,
    seed: tf.Tensor,
) -> Expectations:
    """Expectations from draws of each latent, independent across observations.

    :param seed: [2]; other shapes as in `by_quadrature`.
    :param samples: draws of each latent.
    """
    # With l = log p(y | f), f = mean + sd eps, the averages of g = E l' and h = E l' eps / (2 sd)
    # are unbiased.
    check_draws(model.likelihood)
    shape = tf.concat([[samples], tf.shape(mean)], axis=0)
    epsilon = tf.random.stateless_normal(shape, seed, dtype=mean.dtype)
    deviation = tf.sqrt(variance)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        draws = mean + deviation * epsilon
        tape.watch(draws)
        densities = log_densities(model, draws, data)
    slope = tape.gradient(densities, draws)
    g = tf.reduce_mean(slope, axis=0)  # (C5)
    h = tf.reduce_mean(slope * epsilon, axis=0) / (2.0 * deviation)  # (C6)
    return Expectations(tf.reduce_mean(densities, axis=0), g, h)
