"""A small decoupled model and the numpy Gram matrices of the same problem."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np

from gpflow_decoupled.bases import OrthogonalBasis
from gpflow_decoupled.likelihoods import CategoricalLogit
from gpflow_decoupled.models import BasisGP
from tests.bounds.registry import matern, numpy_kernel
from tests.reference import grams as gr

Array = np.ndarray
JITTER = 1e-3
"""Large enough to show where it is forgotten."""
POINTS = 2.0 * np.random.default_rng(3).uniform(-1, 1, size=(18, 2))
BETA, GAMMA, X = POINTS[:4], POINTS[4:9], POINTS[9:]
NOISE = 0.3
NUM_DATA = 20
SCALE = NUM_DATA / len(X)
TREND = gpflow.functions.Linear(np.array([[0.5], [-0.3]]), np.array([0.7]))


def observations(likelihood: Any, latents: int = 1, seed: int = 1) -> Array:
    """Y [N, P] that the likelihood accepts."""
    rng = np.random.default_rng(seed)
    if isinstance(
        likelihood, gpflow.likelihoods.MultiClass | gpflow.likelihoods.Softmax | CategoricalLogit
    ):
        return rng.integers(0, likelihood.num_classes, size=(len(X), 1)).astype(float)
    if isinstance(likelihood, gpflow.likelihoods.Bernoulli):
        return rng.integers(0, 2, size=(len(X), latents)).astype(float)
    if isinstance(likelihood, gpflow.likelihoods.Poisson):
        return rng.poisson(2.0, size=(len(X), latents)).astype(float)
    if isinstance(likelihood, gpflow.likelihoods.HeteroskedasticTFPConditional):
        return rng.normal(size=(len(X), 1))
    return rng.normal(size=(len(X), latents)) + X[:, :1]


def randomize(q_mu: Any, q_sqrt: Any, seed: int = 2) -> None:
    """A random q(u), narrower than its prior."""
    rng = np.random.default_rng(seed)
    L, M, _ = q_sqrt.shape
    q_mu.assign(rng.normal(size=(M, L)))
    q_sqrt.assign(0.4 * (np.tril(rng.normal(size=(L, M, M))) / np.sqrt(M) + 1.5 * np.eye(M)))


def decoupled_model(
    likelihood: Any,
    *,
    basis: Any = OrthogonalBasis,
    latents: int = 1,
    kernel: Any = None,
    mean_function: Any = TREND,
    num_data: int | None = NUM_DATA,
    **options: Any,
) -> BasisGP:
    """A model with mean points, at random parameters; its jitter is `JITTER`, set by the caller."""
    kernel = matern(1.3, 0.8) if kernel is None else kernel
    model = BasisGP(
        kernel,
        likelihood,
        basis(GAMMA, BETA, latents, **options),
        mean_function=mean_function,
        num_data=num_data,
    )
    randomize(model.basis.q_mu, model.basis.q_sqrt)
    raw = np.random.default_rng(5).normal(size=(len(GAMMA), latents))
    model.basis.a_gamma.assign(model.basis.kernel_mean.scaling.scaled(raw))
    return model


def grams_of(model: Any, jitter: float = JITTER, jitter_gamma: float = 0.0) -> gr.Grams:
    """The Gram matrices of a model with one kernel."""
    return gr.build_grams(numpy_kernel(model.kernel, 0), X, BETA, GAMMA, jitter, jitter_gamma)


def moments(model: Any, k: gr.Grams, latent: int = 0) -> tuple[Array, Array, Array]:
    """Raw a_g [M_g], and unwhitened m [M_b], S [M_b, M_b], of one latent of a whitened orthogonal
    basis.
    """
    basis = model.basis
    assert basis.whiten
    root = k.chol @ basis.q_sqrt.numpy()[latent]
    a = basis.mean_coefficients(basis.factor(model.kernel)).numpy()[:, latent]
    return a, k.chol @ basis.q_mu.numpy()[:, latent], root @ root.T
