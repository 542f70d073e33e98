"""Bayesian generalised linear models by affine-independent KL inference."""

from __future__ import annotations

__all__ = ["AffineIndependentGLM"]

from typing import Any

from gpflow.base import RegressionData
from gpflow.kernels import Constant
from gpflow.likelihoods import Likelihood
from gpflow.utilities import set_trainable

from ...inducing.weights import Weights
from ..affine_independent.gp import AffineIndependentGP
from ..affine_independent.weight_priors import split_prior
from ..checks import check_shapes_of_data, check_values
from ..linear_parts import as_arrays, check_rows, check_variance, linear_mean


def AffineIndependentGLM(
    data: RegressionData,
    likelihood: Likelihood,
    *,
    prior: Any | None = None,
    intercept: bool = True,
    intercept_variance: float = 1e4,
    base: Any = "skew_normal",
    structure: str = "full",
    rank: int = 5,
    non_normal: int | None = None,
    route: str = "auto",
    frequencies: int | None = None,
    points: int | None = None,
    memory: float = 2.0**29,
) -> AffineIndependentGP:
    """A Bayesian generalised linear model p(y | x^T w + b) with a non-Gaussian q(w), as an `AffineIndependentGP`.

    :param data: X [N, p], Y [N, 1]. :param likelihood: any GPflow likelihood with one latent an observation.
    :param prior: a Gaussian of `tensorflow_probability.distributions` over the weights [p], as in `CVIGLM`; or independent
        priors: a scalar `Laplace`, `StudentT` or any other distribution, of batch shape [] or [p], which are p more sites;
        N(0, I) if not given. :param intercept: whether there is a weight b, with prior N(0, intercept_variance).
    :param base, structure, rank, non_normal, route, frequencies, points, memory: as of `AffineIndependentGP`.

    `weights_posterior` reads mean and covariance of the weights off the model. Raises `DataError` for unusable data or
    priors, or a row of X that is all zero where there is no intercept. Example::

        model = AffineIndependentGLM((X, Y), BernoulliLogit(), prior=tfd.Laplace(0.0, 0.5))
        result = AffineIndependentAscent().run(model)
    """
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
