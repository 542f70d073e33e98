"""A small regression for the tests of a mean on all data, and its dense matrices."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import likelihoods as gl
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import SeparateIndependent

from gpflow_decoupled.models import ODVGP
from gpflow_decoupled.optimizers.data_mean.system import MeanSystem, project_rows, with_rows
from tests.bounds.registry import matern, numpy_kernel
from tests.reference import data_mean as dm
from tests.reference import grams as gr

Array = np.ndarray
N, NOISE = 60, 0.1
_RNG = np.random.default_rng(0)
X = _RNG.uniform(-2.0, 2.0, (N, 2))
BETA = _RNG.uniform(-2.0, 2.0, (6, 2))
Y = np.hstack([np.sin(2.0 * X[:, :1]), np.cos(X[:, 1:])]) + np.sqrt(NOISE) * _RNG.normal(
    size=(N, 2)
)
TREND = gpflow.functions.Linear(np.array([[0.2], [-0.3]]), np.array([0.4]))
TARGET = Y - TREND(X).numpy()
"""What is left for f."""
NEW = _RNG.uniform(-2.0, 2.0, (5, 2))
PARTS = {
    "one": (lambda: matern(1.3, 0.8), 1),
    "two latents": (lambda: matern(1.3, 0.8), 2),
    "separate": (lambda: SeparateIndependent([matern(1.3, 0.8), matern(0.6, 1.4)]), 2),
}
"""Makers of kernels, and their numbers of latents."""


def model_of(
    likelihood: Any = None, *, kernel: Any = None, latents: int = 1, **options: Any
) -> ODVGP:
    """The model before it has data."""
    kernel = matern(1.3, 0.8) if kernel is None else kernel
    likelihood = gl.Gaussian(NOISE) if likelihood is None else likelihood
    options = {"mean_function": TREND, "num_latent_gps": latents, **options}
    return ODVGP(kernel, likelihood, "data", BETA, **options)


def system_of(
    weights: Array,
    target: Array,
    rank: int,
    *,
    kernel: Any = None,
    X: Array = X,
    beta: Array = BETA,
) -> MeanSystem:
    """The linear system of sites with precisions and pseudo-observations [N, L] at inputs X."""
    model = model_of(
        kernel=matern(1.3, 0.8) if kernel is None else kernel, latents=weights.shape[1]
    )
    mean = model.basis.data_mean
    mean.set_data(X)
    points = (
        with_rows(model.basis.beta, X, rank)
        if beta is BETA
        else with_rows(InducingPoints(beta), X, rank)
    )
    projections = project_rows(model.kernel, points, tf.constant(X), len(beta))
    return MeanSystem(model.kernel, mean, projections, tf.constant(weights), tf.constant(target))


def grams_of(kernel: Any, latent: int = 0, beta: Array = BETA, inputs: Array = X) -> gr.Grams:
    """Dense matrices at inputs, with gamma = X."""
    return gr.build_grams(
        numpy_kernel(kernel, latent), inputs, beta, X, gpflow.config.default_jitter()
    )


def labels() -> Array:
    """Y [N, 1] in {0, 1}."""
    return (Y[:, :1] > 0.3).astype(float)


def counts() -> Array:
    """Y [N, 1] in 0, 1, 2, ..."""
    return np.random.default_rng(1).poisson(np.exp(Y[:, :1])).astype(float)


def outliers() -> Array:
    """Y [N, 1] with four outliers."""
    found = Y[:, :1].copy()
    found[:4] += 6.0
    return found


def exact_mean(kernel: Any, latent: int = 0) -> Array:
    """The best coefficients [N] for Gaussian noise."""
    return dm.coefficients(grams_of(kernel, latent).K_x, np.full(N, 1.0 / NOISE), TARGET[:, latent])
