"""Every model, and observations for every likelihood."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
from gpflow import likelihoods as gl

from gpflow_decoupled.bases import CoupledBasis
from gpflow_decoupled.likelihoods import CategoricalLogit, Ordinal
from gpflow_decoupled.models import DVGP, HDVGP, ODVGP, SOLVEGP, BasisGP
from tests.bounds.registry import matern, randomize

POINTS = 2.0 * np.random.default_rng(3).uniform(-1, 1, size=(15, 2))
BETA, GAMMA, X = POINTS[:4], POINTS[4:9], POINTS[9:]
N, D = X.shape


def _coupled(
    kernel: Any, likelihood: Any, gamma: Any, beta: Any, num_latent_gps: int = 1, **options: Any
) -> BasisGP:
    return BasisGP(kernel, likelihood, CoupledBasis(beta, num_latent_gps), **options)


def _coupled_covariance(*arguments: Any, **options: Any) -> BasisGP:
    return DVGP(*arguments, covariance="coupled", **options)


MODELS: dict[str, Callable[..., BasisGP]] = {
    "ODVGP": ODVGP,
    "HDVGP": HDVGP,
    "DVGP": DVGP,
    "DVGP-coupled": _coupled_covariance,
    "SOLVEGP": SOLVEGP,
    "BasisGP": _coupled,
}

LIKELIHOODS: dict[
    str, tuple[Callable[[], gl.Likelihood], int, Callable[[np.random.Generator], np.ndarray]]
] = {
    # how to make it, L, its observations
    "Gaussian": (gl.Gaussian, 2, lambda rng: rng.normal(size=(N, 2))),
    "Gaussian-varying": (
        lambda: gl.Gaussian(scale=gpflow.functions.Linear(np.zeros((D, 1)), np.ones(1))),
        1,
        lambda rng: rng.normal(size=(N, 1)),
    ),
    "Bernoulli": (gl.Bernoulli, 1, lambda rng: rng.integers(0, 2, size=(N, 1))),
    "MultiClass": (lambda: gl.MultiClass(3), 3, lambda rng: rng.integers(0, 3, size=(N, 1))),
    "Softmax": (lambda: gl.Softmax(3), 3, lambda rng: rng.integers(0, 3, size=(N, 1))),
    "CategoricalLogit": (
        lambda: CategoricalLogit(3),
        3,
        lambda rng: rng.integers(0, 3, size=(N, 1)),
    ),
    "Heteroskedastic": (gl.HeteroskedasticTFPConditional, 2, lambda rng: rng.normal(size=(N, 1))),
    "Poisson": (gl.Poisson, 2, lambda rng: rng.poisson(2.0, size=(N, 2))),
    "StudentT": (gl.StudentT, 1, lambda rng: rng.standard_t(3, size=(N, 1))),
    "Exponential": (gl.Exponential, 1, lambda rng: rng.exponential(size=(N, 1))),
    "Gamma": (gl.Gamma, 1, lambda rng: rng.gamma(2.0, size=(N, 1))),
    "Beta": (gl.Beta, 1, lambda rng: rng.uniform(0.1, 0.9, size=(N, 1))),
    "Ordinal": (lambda: Ordinal([-1.0, 0.0, 1.0]), 1, lambda rng: rng.integers(0, 4, size=(N, 1))),
    "Switched": (
        lambda: gl.SwitchedLikelihood([gl.Gaussian(), gl.StudentT()]),
        1,
        lambda rng: np.stack([rng.normal(size=N), rng.integers(0, 2, size=N)], axis=1),
    ),
}


def build(
    name: str, likelihood: str = "Gaussian", **options: Any
) -> tuple[BasisGP, tuple[np.ndarray, np.ndarray]]:
    """A model at random parameters, and data."""
    make, latents, observe = LIKELIHOODS[likelihood]
    rng = np.random.default_rng(0)
    mean_function = gpflow.functions.Linear(0.3 * np.ones((D, latents)), 0.1 * np.arange(latents))
    model = MODELS[name](
        matern(1.3, 0.8),
        make(),
        GAMMA,
        BETA,
        num_latent_gps=latents,
        mean_function=mean_function,
        num_data=9,
        **options,
    )
    randomize(model.basis, rng, 0.5)
    Y = observe(rng)
    return model, (X, Y if likelihood == "Softmax" else Y.astype(float))
