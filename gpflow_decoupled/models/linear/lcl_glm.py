"""Linear models for the Lagrangian."""

from __future__ import annotations

__all__ = ["LCLGLM"]

import numpy as np
from gpflow.base import RegressionData
from gpflow.kernels import Constant, Linear
from gpflow.likelihoods import Likelihood
from gpflow.utilities import set_trainable

from ...errors import DataError, check_option
from ...probability import tfp
from ..checks import check_likelihood, check_shapes_of_data, check_values, infer_num_latent_gps
from ..lcl import LCLGP
from ..linear_parts import (
    as_arrays,
    check_rows,
    check_variance,
    linear_mean,
    linear_prior,
    location_and_scale,
    normal_prior,
    scalar_prior,
)
from .lcl_laplace import LaplacePriorLCLGP


def LCLGLM(
    data: RegressionData,
    likelihood: Likelihood,
    *,
    prior: tfp.distributions.Distribution | None = None,
    intercept: bool = True,
    intercept_variance: float = 1e4,
    num_latent_gps: int | None = None,
    form: str = "auto",
) -> LCLGP:
    """Return a Bayesian generalised linear model p(y | x^T w + b) as an `LCLGP`.

    The posterior is Gaussian under a Laplace prior too, whose `model.weight_prior.scale` is trained
    only after `gpflow.set_trainable`. Arguments and errors as `CVIGLM`. An evaluation costs N p^2 +
    p^3 / 3, with Laplace priors (N + p) p^2 + p^3 / 3, or 2/3 N^3.

    :param likelihood: one with a site loss, see `likelihoods.site_loss`.
    :param prior: also a `Laplace` or `Normal` of batch shape [] or [p], for each latent.
    :param form: Laplace priors need "weight".

    Example::

        model = LCLGLM(
            (X, Y), gpflow.likelihoods.Poisson(), prior=tfp.distributions.Laplace(0.0, 0.5)
        )
        LinearlyConstrainedLagrangian().run(model)
        mean, covariance = weights_posterior(model)
    """
    check_likelihood(likelihood)
    X, Y = as_arrays(data)
    if num_latent_gps is None and likelihood.latent_dim is None and Y.ndim == 2:
        num_latent_gps = Y.shape[1]
    latents = infer_num_latent_gps(Linear(), likelihood, num_latent_gps)
    check_shapes_of_data(X, Y, likelihood, latents, None)
    check_values(X, Y, likelihood)
    if not intercept:
        check_rows(X)
    variance = check_variance(intercept_variance) if intercept else None
    scalar = scalar_prior(prior, X.shape[1])
    if isinstance(scalar, tfp.distributions.Laplace):
        return _with_laplace_prior((X, Y), likelihood, scalar, variance, latents, form)
    if scalar is not None:
        prior = _as_normal(scalar, X.shape[1])
    mean, kernel = linear_prior(prior, X.shape[1])
    if variance is not None:
        kernel += Constant(variance)
    set_trainable(kernel, False)
    mean_function = linear_mean(mean, latents)
    return LCLGP(
        (X, Y), kernel, likelihood, mean_function=mean_function, num_latent_gps=latents, form=form
    )


def _with_laplace_prior(
    data: RegressionData,
    likelihood: Likelihood,
    prior: tfp.distributions.Laplace,
    intercept_variance: float | None,
    latents: int,
    form: str,
) -> LaplacePriorLCLGP:
    check_option("form", form, ("auto", "weight", "function"))
    if form == "function":
        raise DataError(
            'Laplace priors need form="weight", or "auto": each weight is one more site, and the'
            ' form "function" would need matrices with N + p rows, more than the p weights.'
        )
    columns = data[0].shape[1]
    location, scale = location_and_scale(prior)
    return LaplacePriorLCLGP(
        data,
        likelihood,
        np.broadcast_to(location, [columns]),
        np.broadcast_to(scale, [columns]) if scale.size > 1 else scale.reshape([]),
        intercept_variance=intercept_variance,
        num_latent_gps=latents,
    )


def _as_normal(
    prior: tfp.distributions.Distribution, columns: int
) -> tfp.distributions.MultivariateNormalDiag:
    if not isinstance(prior, tfp.distributions.Normal):
        raise DataError(
            f"prior is a {type(prior).__name__}; LCLGLM takes a Laplace, a Normal or a multivariate"
            " normal of tensorflow_probability.distributions. AffineIndependentGLM takes other"
            " scalar distributions too."
        )
    return normal_prior(prior, columns)
