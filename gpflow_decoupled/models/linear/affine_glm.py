"""Bayesian generalised linear models by affine-independent KL inference."""

from __future__ import annotations

__all__ = ["AffineIndependentGLM"]

import tensorflow_probability as tfp
from gpflow.base import RegressionData
from gpflow.kernels import Constant
from gpflow.likelihoods import Likelihood
from gpflow.utilities import set_trainable

from ...distributions import BaseLike
from ...inducing.weights import Weights
from ..affine_independent.gp import AffineIndependentGP
from ..affine_independent.weight_priors import split_prior
from ..checks import check_likelihood, check_shapes_of_data, check_values
from ..linear_parts import as_arrays, check_rows, check_variance, linear_mean


def AffineIndependentGLM(
    data: RegressionData,
    likelihood: Likelihood,
    *,
    prior: tfp.distributions.Distribution | None = None,
    intercept: bool = True,
    intercept_variance: float = 1e4,
    base: BaseLike = "skew_normal",
    structure: str = "full",
    rank: int = 5,
    non_normal: int | None = None,
    route: str = "auto",
    frequencies: int | None = None,
    points: int | None = None,
    memory: float = 2.0**29,
) -> AffineIndependentGP:
    """A Bayesian generalised linear model p(y | x^T w + b) with a posterior q(w, b) that is not
    Gaussian.

    It is an `AffineIndependentGP` whose inducing variables are the weights: q(w, b) is the density
    of an affine map A v + b of independent variables v with a base distribution that is not normal.
    Cost of a bound: p^3 + N p^2 + N p T for T frequencies.

    :param data: X [N, p], Y [N, 1].
    :param likelihood: any GPflow likelihood with one latent function per observation.
    :param prior: the prior of the weights; N(0, I) if not given. Either a Gaussian of
        `tensorflow_probability.distributions` over [p], as in `CVIGLM`; or a scalar distribution
        like `Laplace` or `StudentT`, of batch shape [] or [p], as independent priors. Each of the
        latter is one more site.
    :param intercept: whether there is an intercept b.
    :param intercept_variance: its prior is N(0, intercept_variance).
    :param base: the base distribution, as for `AffineIndependentGP`.
    :param structure: the structure of A, as for `AffineIndependentGP`.
    :param rank: the rank of structure "low_rank".
    :param non_normal: how many base variables are not normal, as for `AffineIndependentGP`.
    :param route: how expectations are computed, as for `AffineIndependentGP`.
    :param frequencies: their number, as for `AffineIndependentGP`.
    :param points: their number, as for `AffineIndependentGP`.
    :param memory: bytes, as for `AffineIndependentGP`.
    :return: the model; `models.weights_posterior(model)` gives mean and covariance of the weights.
    :raises DataError: for unusable data or priors, or a row of X that is all zero where there is no
        intercept.

    Example::

        model = AffineIndependentGLM((X, Y), BernoulliLogit(), prior=tfd.Laplace(0.0, 0.5))
        result = AffineIndependentAscent().run(model)
        weights = gd.models.weights_posterior(model)
    """
    check_likelihood(likelihood)
    X, Y = as_arrays(data)
    check_shapes_of_data(X, Y, likelihood, 1, None)
    check_values(X, Y, likelihood)
    if not intercept:
        check_rows(X)
    mean, kernel, weight_priors = split_prior(prior, X.shape[1], intercept)
    if intercept:
        kernel += Constant(check_variance(intercept_variance))
    set_trainable(kernel, False)
    return AffineIndependentGP(
        (X, Y),
        kernel,
        likelihood,
        mean_function=linear_mean(mean, 1),
        inducing_variable=Weights(X.shape[1] + int(intercept)),
        base=base,
        structure=structure,
        rank=rank,
        non_normal=non_normal,
        route=route,
        frequencies=frequencies,
        points=points,
        memory=memory,
        weight_priors=weight_priors,
    )
