"""A small stream, and models with every basis that can take it in."""

from __future__ import annotations

import copy
from typing import Any

import gpflow
import numpy as np

from gpflow_decoupled.bases import (
    CoupledBasis,
    HybridBasis,
    InducingBasis,
    OrthogonalBasis,
    SolveBasis,
)
from gpflow_decoupled.inducing.variables import as_inducing
from gpflow_decoupled.models import BasisGP
from tests.bounds.registry import kernel_of
from tests.optimizers.problems import BETA, GAMMA, NOISE, TREND

Array = np.ndarray
RNG = np.random.default_rng(7)
X = 2.0 * RNG.uniform(-1, 1, size=(24, 2))
BATCHES = (slice(0, 9), slice(9, 10), slice(10, 24))
TEST = 2.0 * RNG.uniform(-1, 1, size=(6, 2))
BASES = {
    "coupled": lambda beta, gamma, L: CoupledBasis(beta, L),
    "coupled-unwhitened": lambda beta, gamma, L: CoupledBasis(beta, L, whiten=False),
    "orthogonal": lambda beta, gamma, L: OrthogonalBasis(gamma, beta, L),
    "orthogonal-rows": lambda beta, gamma, L: OrthogonalBasis(
        gamma, beta, L, mean_scaling="diagonal", mean_subsample=2, whiten=False
    ),
    "hybrid": lambda beta, gamma, L: HybridBasis(gamma, beta, L),
    "solve": lambda beta, gamma, L: SolveBasis(gamma, beta, L),
}


def observations(latents: int = 1, kind: str = "gaussian") -> Array:
    """Y [24, L]: a wave in each column, another phase in each, with noise; counts or labels of
    it.
    """
    rng = np.random.default_rng(11)
    f = np.sin(2.0 * X[:, :1] + np.arange(latents)) + X[:, 1:]
    if kind == "poisson":
        return rng.poisson(np.exp(f)).astype(float)
    if kind == "bernoulli":
        return (f + rng.normal(size=f.shape) > 0.0).astype(float)
    return f + np.sqrt(NOISE) * rng.normal(size=f.shape)


def model_of(
    basis: str | InducingBasis = "coupled",
    likelihood: Any = None,
    kind: str = "one",
    **options: Any,
) -> BasisGP:
    """A model that has seen nothing, with a mean function that is not zero."""
    kernel, latents = kernel_of(kind)
    points = as_inducing(BETA, "beta", kernel), as_inducing(GAMMA, "gamma", kernel)
    made = BASES[basis](*points, latents) if isinstance(basis, str) else basis
    noise = gpflow.likelihoods.Gaussian(NOISE) if likelihood is None else likelihood
    trend = copy.deepcopy(TREND)
    if latents > 1:
        trend = gpflow.functions.Linear(np.array([[0.5, 0.1], [-0.3, 0.2]]), np.array([0.7, -0.2]))
    return BasisGP(kernel, noise, made, mean_function=trend, num_data=len(X), **options)


def moments_of(model: BasisGP) -> Array:
    """Means and variances of f at the test points, [2, 6, P]."""
    return np.stack([part.numpy() for part in model.predict_f(TEST)])


def stream_into(model: BasisGP, Y: Array, batches: Any = BATCHES, **options: Any) -> Any:
    """The record of the last update."""
    return [model.update((X[rows], Y[rows]), **options) for rows in batches][-1]
