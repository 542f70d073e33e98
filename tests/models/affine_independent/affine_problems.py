"""Models of the problems in `tests.reference.affine_model`."""

from __future__ import annotations

import warnings
from typing import Any

import gpflow
import numpy as np
import tensorflow_probability as tfp

from gpflow_decoupled.likelihoods import BernoulliLogit, Laplace
from gpflow_decoupled.models import AffineIndependentGLM, AffineIndependentGP
from tests.reference.affine_model import toy_problems

tfd = tfp.distributions


def toy_model(name: str, **options: Any) -> AffineIndependentGP:
    arrays = toy_problems()[name][1]
    X, Y = arrays["X"], arrays["Y"][:, None]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="There is one observation")
        warnings.filterwarnings("ignore", message=".* is constant")
        if name.startswith("sparse"):
            options = {
                "base": "generalized_normal",
                "prior": tfd.Laplace(np.float64(0.0), np.float64(0.16)),
                **options,
            }
            return AffineIndependentGLM(
                (X, Y), gpflow.likelihoods.Gaussian(0.05), intercept=False, **options
            )
        if name.startswith("logistic"):
            prior = tfd.MultivariateNormalDiag(np.zeros(2), np.sqrt(10.0) * np.ones(2))
            return AffineIndependentGLM(
                (5.0 * X, Y), BernoulliLogit(), prior=prior, intercept=False, **options
            )
        options = {"base": "generalized_normal", **options}
        return AffineIndependentGLM((X, Y), Laplace(0.1581), intercept=False, **options)


def logistic_data(N: int = 10, D: int = 10, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X, w = 5.0 * rng.normal(size=(N, D)), np.sqrt(5.0) * rng.normal(size=D)
    return X, np.where(rng.uniform(size=N) < 1.0 / (1.0 + np.exp(-X @ w)), 1.0, 0.0)[:, None]


def randomize(model: AffineIndependentGP, rng: np.random.Generator) -> None:
    """A, b and shapes that are nowhere special."""
    basis = model.basis
    for parameter in [*basis.map.parameters, basis.b, basis.theta]:
        variable = parameter.unconstrained_variable
        variable.assign_add(0.3 * rng.normal(size=variable.shape))
