"""Objectives of hyperparameters at a fixed mean."""

from __future__ import annotations

__all__ = ["bound_at_sites", "evidence_at", "hyperparameters_of"]

from collections.abc import Callable
from typing import cast

import numpy as np
import tensorflow as tf

from ...bases import GaussianPart
from ...bases.parts.data_mean import DataMean
from ...covariances.latents import prior_variance
from ...covariances.products import gram_product
from ...inducing.variables import point_values
from ...likelihoods.parameters import single_noise_variance
from ...models import BasisGP
from ...replicas import Group
from .evidence import evidence_bound
from .row_features import project_rows
from .row_posterior import Posterior, posterior_of, sites_of

Data = tuple[tf.Tensor, tf.Tensor]

_ROUNDING = 1.0
"""Largest trace of W^1/2 K W^1/2 times the machine epsilon at which products have low precision."""


def hyperparameters_of(model: BasisGP, mean: DataMean) -> list[tf.Variable]:
    """Trainable variables outside q(f) and the mean points, which are the training inputs."""
    parts = [parameter.unconstrained_variable for parameter in model.basis.gaussian_parameters()]
    of_q = {variable.ref() for variable in (*parts, *mean.variables)}
    return [variable for variable in model.trainable_variables if variable.ref() not in of_q]


def evidence_at(
    model: BasisGP,
    mean: DataMean,
    data: Data,
    dtype: tf.DType | None = None,
    group: Group | None = None,
) -> Callable[[], tf.Tensor]:
    """Return `evidence_bound` at the mean's coefficients a [N, P], as a function of
    hyperparameters.

    :param model: a model with Gaussian noise of one variance.
    :param mean: its mean on all data.
    :param data: X [N, D], the mean points, and Y [N, P].
    :param dtype: tf.float32 for faster products with K, if the noise is well above rounding errors.
    :param group: whose replicas share these products.
    """
    X, Y = data
    a = tf.convert_to_tensor(mean.coefficients)

    def precisions() -> tf.Tensor:
        return tf.fill(
            [X.shape[0], 1], 1.0 / cast(tf.Tensor, single_noise_variance(model.likelihood))
        )

    dtype = _useful(dtype, model, precisions(), X)

    def objective() -> tf.Tensor:
        weights = precisions()
        y = Y - model.mean_function(X)
        parts = model.kernel, model.basis.beta, mean, y, weights, a
        return evidence_bound(*parts, dtype=dtype, group=group)

    return objective


def bound_at_sites(
    model: BasisGP,
    mean: DataMean,
    data: Data,
    dtype: tf.DType | None = None,
    group: Group | None = None,
) -> Callable[[], tf.Tensor]:
    """Return a function of hyperparameters with the bound's gradient where q(f) is the best now."""
    # With sites t_n(f) of precision w and mean y~ fitted to the moments of q(f), the bound is
    #
    #     F(kernel, points) + sum_n E_q log p(y_n | f_n) - sum_n E_q log t_n(f_n),
    #
    # F the bound "elbo" of `evidence_bound` for y~. The function is the first two terms: a change
    # of q changes others at second order. Parameters as in `evidence_at`.
    now = _posterior(model, mean, data, group)
    _, least, precisions = sites_of(now)
    # negative precisions belong to q: with others the gradient would be of another q
    weights = tf.where(precisions < 0.0, precisions, least)
    parts = model.kernel, model.basis.beta, mean, now.mean + now.g / weights, weights, now.a
    dtype = _useful(dtype, model, tf.abs(weights), data[0])

    def objective() -> tf.Tensor:
        fit = tf.reduce_sum(model.variational_expectations(now.mean, now.variance, data))
        return fit + evidence_bound(*parts, bound="elbo", dtype=dtype, group=group)

    return objective


def _useful(
    dtype: tf.DType | None, model: BasisGP, weights: tf.Tensor, X: tf.Tensor
) -> tf.DType | None:
    # The trace decides, an upper bound of all eigenvalues.
    if dtype is None:
        return None
    prior = prior_variance(model.kernel, X, full_cov=False)  # [L, N]
    trace = tf.reduce_max(tf.reduce_sum(tf.transpose(weights) * prior, axis=1))
    return dtype if float(trace) * np.finfo(dtype.as_numpy_dtype).eps <= _ROUNDING else None


def _posterior(model: BasisGP, mean: DataMean, data: Data, group: Group | None) -> Posterior:
    size = int(point_values(model.basis.beta)[0].shape[0])
    projections = project_rows(model.kernel, model.basis.beta, data[0], size)
    state = model.basis.factor(model.kernel, with_kl=False)
    K_a = gram_product(model.kernel, mean.points, None, state.a, group=group)
    return posterior_of(
        model, data, projections, state.a, K_a, GaussianPart(state.mean, state.root)
    )
