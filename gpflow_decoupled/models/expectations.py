"""The data term of the bound."""

from __future__ import annotations

__all__ = [
    "Moments", "Resolution", "check_draws", "log_densities", "moments_of_sites",
    "sampled_expectations", "variational_expectations",
]  # fmt: skip

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.likelihoods import Likelihood, MultiClass
from gpflow.models import GPModel

from ..covariances.latents import mix_outputs
from ..errors import DataError
from ..expectations.projections import Projections
from ..likelihoods.lookup import expected_log_densities


class Moments(NamedTuple):
    """f under q at N observations, as `moments` of a model returns it."""

    mean: tf.Tensor
    """[N, P]"""
    variance: tf.Tensor
    """[N, P]"""
    projections: Projections | None = None
    """The distribution of f where it is not Gaussian; None for N(mean, variance)."""


class Resolution(NamedTuple):
    """The accuracy of expected log densities, for example ("nodes", 20)."""

    name: str
    number: int


def moments_of_sites(model: GPModel) -> Moments:
    """Mean and variance of f [N, P] at the data of a model with sites; one factorisation, N^3."""
    X = model.data[0]
    state, rows = model.basis.factor(model.kernel), X.shape[0]  # sites of weights may follow
    mean, variance = mix_outputs(model.kernel, state.mean[:rows], state.variance[:rows])
    return Moments(mean + model.mean_function(X), variance)


def variational_expectations(
    model: GPModel, mean: tf.Tensor, variance: tf.Tensor, data: RegressionData
) -> tf.Tensor:
    """E_q log p(y_n | f_n) [N] in nats, by the likelihood's integrals.

    Means (less the mean function) and variances of the latents are [N, L], X [N, D], Y [N, P].
    """
    X, Y = data
    mean, variance = mix_outputs(model.kernel, mean, variance)
    mean += model.mean_function(X)
    return expected_log_densities(model.likelihood, X, mean, variance, Y)


def sampled_expectations(
    model: GPModel, mean: tf.Tensor, variance: tf.Tensor, data: RegressionData, epsilon: tf.Tensor
) -> tf.Tensor:
    """An unbiased estimate of `variational_expectations` [N], differentiable in the moments.

    :param epsilon: standard normal numbers [S, N, L].
    """
    # Draws f = m + sqrt(v) eps give the gradients E l' and E l' eps / (2 sqrt v), (C5), (C6).
    floor = tf.constant(np.finfo(variance.dtype.as_numpy_dtype).tiny, variance.dtype)
    draws = mean + tf.sqrt(tf.maximum(variance, floor)) * epsilon  # (C6)
    return tf.reduce_mean(log_densities(model, draws, data), axis=0)


def log_densities(model: GPModel, draws: tf.Tensor, data: RegressionData) -> tf.Tensor:
    """log p(y_n | f_n) [S, N] in nats, at latents [S, N, L] less the mean function; X [N, D], Y [N,
    P].
    """
    S, L = tf.shape(draws)[0], draws.shape[-1]
    X, Y = (tf.tile(part, [S, 1]) for part in data)
    f = tf.reshape(draws, [-1, L])
    mixed, _ = mix_outputs(model.kernel, f, tf.zeros_like(f))
    try:
        values = model.likelihood.log_prob(X, mixed + model.mean_function(X), Y)
    except NotImplementedError as error:
        raise DataError(
            f"{type(model.likelihood).__name__} has no log density to be sampled: define its"
            " _log_prob, or leave samples out (expectations=None)."
        ) from error
    return tf.reshape(values, [S, -1])


def check_draws(likelihood: Likelihood) -> None:
    """Raise `DataError` for a piecewise constant log density, whose draws have no gradient."""
    if isinstance(likelihood, MultiClass):
        raise DataError(
            f"the log density of {type(likelihood).__name__} is made of steps, and draws of it have"
            " no gradient: use likelihoods.CategoricalLogit, or its quadrature."
        )
