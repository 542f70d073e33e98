"""Linear models with a non-Gaussian posterior."""

from __future__ import annotations

__all__ = ["AffineIndependentGLM"]

from gpflow.base import RegressionData
from gpflow.kernels import Constant
from gpflow.likelihoods import Likelihood
from gpflow.utilities import set_trainable

from ...distributions import BaseLike
from ...inducing.weights import Weights
from ...probability import tfp
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
    """Return a linear model p(y | x^T w + b) with a non-Gaussian posterior q(w, b).

    An `AffineIndependentGP` on the weights, whose moments `weights_posterior` has. Other arguments
    as for that class and for `CVIGLM`. A bound costs p^3 + N p^2 + N p T for T frequencies.

    :param data: X [N, p], Y [N, 1].
    :param prior: also a scalar distribution such as `Laplace`, of batch shape [] or [p], whose
        priors are sites.

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
