"""The data term of the bound, from moments of the latent functions."""

from __future__ import annotations

__all__ = ["log_density", "variational_expectations"]

import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.models import GPModel

from ..posteriors import mix_outputs


def variational_expectations(model: GPModel, mean: tf.Tensor, variance: tf.Tensor, data: RegressionData) -> tf.Tensor:
    """E_q log p(y_n | f_n) [N] in nats, from moments [N, L] of the latent functions without mean function."""
    X, Y = data
    mean, variance = mix_outputs(model.kernel, mean, variance)
    return model.likelihood.variational_expectations(X, mean + model.mean_function(X), variance, Y)


def log_density(model: GPModel, f: tf.Tensor, data: RegressionData) -> tf.Tensor:
    """The log density log p(y_n | f_n) [N] in nats, at values [N, L] of the latent functions without mean function."""
    X, Y = data
    mixed, _ = mix_outputs(model.kernel, f, tf.zeros_like(f))
    return model.likelihood.log_prob(X, mixed + model.mean_function(X), Y)
