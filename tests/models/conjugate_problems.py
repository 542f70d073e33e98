"""Small full GPs with sites, and what numpy says of them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
from gpflow import likelihoods as gl

from gpflow_decoupled.models import CVIGP
from tests.bounds.registry import LOWEST_PRECISION, matern, numpy_kernel
from tests.optimizers.problems import NOISE, TREND, X, observations
from tests.reference import conjugate as conj

Array = np.ndarray
W = np.array([[1.0, 0.4], [-0.3, 0.8], [0.5, 0.5]])


def separate() -> gpflow.kernels.SeparateIndependent:
    """Two latents with a kernel each."""
    return gpflow.kernels.SeparateIndependent([matern(1.3, 0.8), matern(0.6, 1.4)])


def mixed() -> gpflow.kernels.LinearCoregionalization:
    """Three outputs from two latents."""
    return gpflow.kernels.LinearCoregionalization([matern(1.3, 0.8), matern(0.6, 1.4)], W=W)


def trend(outputs: int) -> gpflow.functions.Linear:
    """A mean function that is another for each output."""
    return gpflow.functions.Linear(
        0.3 * np.arange(1, 2 * outputs + 1).reshape(2, -1), 0.1 * np.arange(outputs)
    )


def student() -> gl.StudentT:
    """Not log-concave."""
    return gl.StudentT(scale=0.3, df=3.0)


PROBLEMS: dict[str, tuple[Callable[[], gl.Likelihood], Callable[[], Any], int, int]] = {
    # the likelihood, the kernel, L, P
    "Gaussian": (lambda: gl.Gaussian(NOISE), lambda: matern(1.3, 0.8), 1, 1),
    "Gaussian, two latents": (lambda: gl.Gaussian(NOISE), lambda: matern(1.3, 0.8), 2, 2),
    "Poisson, separate": (gl.Poisson, separate, 2, 2),
    "Student-t, coregionalised": (student, mixed, 2, 3),
    "probit": (gl.Bernoulli, lambda: matern(1.3, 0.8), 1, 1),
    "multiclass": (lambda: gl.MultiClass(3), lambda: matern(1.3, 0.8), 3, 3),
    "Poisson, shared": (gl.Poisson, lambda: matern(1.3, 0.8), 2, 2),
    "heteroscedastic": (gl.HeteroskedasticTFPConditional, lambda: matern(1.3, 0.8), 2, 2),
}


def problem(name: str, with_mean: bool = True) -> CVIGP:
    """The model of `PROBLEMS`, at random sites, some of them negative."""
    make, kernel, _, outputs = PROBLEMS[name]
    likelihood = make()
    Y = observations(likelihood, outputs)
    model = CVIGP((X, Y), kernel(), likelihood, mean_function=trend(outputs) if with_mean else None)
    random_sites(model)
    return model


def conjugate_model(
    likelihood: gl.Likelihood, *, Y: Array | None = None, mean_function: Any = TREND
) -> CVIGP:
    """One latent, sites of zero; the mean function is a copy, which a test may train or freeze."""
    Y = observations(likelihood) if Y is None else Y
    return CVIGP((X, Y), matern(1.3, 0.8), likelihood, mean_function=copy.deepcopy(mean_function))


def random_sites(model: CVIGP, seed: int = 0, positive: bool = False) -> None:
    """Sites at which the posterior exists."""
    rng, shape = np.random.default_rng(seed), model.basis.nu.shape
    model.basis.nu.assign(rng.normal(size=shape))
    model.basis.tau.assign(
        np.maximum(0.05, rng.normal(size=shape)) if positive else _of_both_signs(rng, shape)
    )


def _of_both_signs(rng: np.random.Generator, shape: tuple) -> Array:
    return np.maximum(rng.normal(size=shape), 0.8 * LOWEST_PRECISION)


def prior_mean(model: CVIGP) -> Array:
    """m_0 of the only latent [N]."""
    return model.mean_function(model.data[0]).numpy()[:, 0]


def gram(model: CVIGP, latent: int = 0) -> Array:
    """K [N, N] of one latent, in numpy."""
    inputs = model.data[0].numpy()
    return numpy_kernel(model.kernel, latent)(inputs, inputs)


def sites_on_f(model: CVIGP) -> conj.Sites:
    """The sites of the only latent as the reference has them: on f itself, not on f - m_0."""
    nu, tau = model.basis.nu.numpy()[:, 0], model.basis.tau.numpy()[:, 0]
    return conj.Sites(nu + tau * prior_mean(model), tau)


def posterior_of_latent(model: CVIGP, latent: int) -> tuple[Array, Array]:
    """Mean [N] and covariance [N, N] of u, by the reference."""
    sites = conj.Sites(model.basis.nu.numpy()[:, latent], model.basis.tau.numpy()[:, latent])
    K = gram(model, latent)
    return conj.posterior(K, np.zeros(len(K)), sites)
