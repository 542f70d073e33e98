"""Bayesian generalised linear models for the linearly constrained Lagrangian: one constraint per row of X."""

from __future__ import annotations

__all__ = ["LCLGLM"]

import tensorflow_probability as tfp
from gpflow.base import RegressionData
from gpflow.kernels import Constant, Linear
from gpflow.likelihoods import Likelihood
from gpflow.utilities import set_trainable

from ..checks import check_likelihood, check_shapes_of_data, check_values, infer_num_latent_gps
from ..lcl import LCLGP
from ..linear_parts import as_arrays, check_rows, check_variance, linear_mean, linear_prior


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
    """A Bayesian generalised linear model p(y | x^T w + b) as an `LCLGP`, ready to be trained.

    :param data: X [N, p], Y [N, L].
    :param likelihood: one that has a site loss, see `likelihoods.site_loss`.
    :param prior: a Gaussian of `tensorflow_probability.distributions` over the weights [p], as in `CVIGLM`; N(0, I) if not
        given.
    :param intercept: whether there is a weight b, with prior N(0, intercept_variance).
    :param intercept_variance: of b.
    :param num_latent_gps: the number of latents L; by default what the likelihood says, else the columns of Y.
    :param form: "weight" computes with p x p matrices, (V8), "function" with N x N, (V9), and "auto" with the smaller.
    :raises DataError: for unusable data, or a row of X that is all zero where there is no intercept.
    :raises UnknownOptionError: for another form.

    `weights_posterior` reads the weights off the model. Cost of an evaluation: N p^2 + p^3 / 3, or 2/3 N^3. Example::

        model = LCLGLM((X, Y), gpflow.likelihoods.Poisson())
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
    mean, kernel = linear_prior(prior, X.shape[1])
    if intercept:
        kernel += Constant(check_variance(intercept_variance))
    set_trainable(kernel, False)
    mean_function = linear_mean(mean, latents)
    return LCLGP((X, Y), kernel, likelihood, mean_function=mean_function, num_latent_gps=latents, form=form)
