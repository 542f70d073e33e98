"""dE/dmean and dE/dvar of each observation, by GPflow's quadrature or by Monte Carlo."""

from __future__ import annotations

__all__ = ["Expectations", "by_quadrature", "by_sampling"]

from typing import Any, NamedTuple

import tensorflow as tf
from gpflow.base import RegressionData

from ...models.expectations import check_draws, log_densities


class Expectations(NamedTuple):
    """E = E_q log p(y_n | f_n) [N] in nats, and its derivatives with respect to mean and variance of the latents."""

    value: tf.Tensor
    g: tf.Tensor
    """[N, L]"""
    h: tf.Tensor
    """[N, L]"""


def by_quadrature(model: Any, mean: tf.Tensor, variance: tf.Tensor, data: RegressionData) -> Expectations:
    """As the likelihood integrates: closed forms and Gauss-Hermite quadrature; moments are [N, L]."""
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch([mean, variance])
        value = model.variational_expectations(mean, variance, data)
    return Expectations(value, *tape.gradient(value, [mean, variance]))


def by_sampling(
    model: Any, mean: tf.Tensor, variance: tf.Tensor, data: RegressionData, samples: int, seed: tf.Tensor
) -> Expectations:
    """From `samples` draws of each latent, independent across observations; moments are [N, L], seed [2].

    g = E l', h = E l' eps / (2 sd), (C5) and the left of (C6): unbiased, and no second derivative is needed.
    Raises `DataError` for likelihoods whose draws have no gradient, or no density.
    """
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
