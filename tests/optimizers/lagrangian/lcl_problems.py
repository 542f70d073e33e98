"""Small models with multipliers, of every kind of site, and what numpy needs to know of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow import likelihoods as gl

from gpflow_decoupled import likelihoods as own
from gpflow_decoupled.models import LCLGP
from tests.bounds.registry import matern, numpy_kernel
from tests.reference import lcl_sites as ref

Array = np.ndarray
NOISE = 0.3


def _with_outliers(rng: np.random.Generator, f: Array) -> Array:
    return f + 0.2 * rng.normal(size=f.shape) + 3.0 * (rng.uniform(size=f.shape) < 0.2)


class Kind(NamedTuple):
    """One kind of site."""

    make: Callable[[], gl.Likelihood]
    labels: Callable[[np.random.Generator, Array], Array]
    """Of a latent function."""
    loss: Callable[[float], ref.Loss]
    order: int | None
    """Of the reference's quadrature; None for an adaptive one."""
    concave: bool = True


KINDS: dict[str, Kind] = {
    "Gaussian": Kind(
        lambda: gl.Gaussian(NOISE),
        lambda rng, f: f + 0.5 * rng.normal(size=f.shape),
        lambda y: ref.gaussian(y, NOISE),
        40,
    ),
    "Poisson": Kind(gl.Poisson, lambda rng, f: rng.poisson(np.exp(f)) * 1.0, ref.poisson, 60),
    "logit": Kind(
        own.BernoulliLogit,
        lambda rng, f: 1.0 * (rng.uniform(size=f.shape) < 1 / (1 + np.exp(-f))),
        ref.bernoulli_logit,
        100,
    ),
    "probit": Kind(
        own.BernoulliProbit,
        lambda rng, f: 1.0 * (rng.normal(size=f.shape) < f),
        ref.bernoulli_probit,
        40,
    ),
    "Laplace": Kind(
        lambda: own.Laplace(0.4),
        lambda rng, f: f + 0.4 * rng.laplace(size=f.shape),
        lambda y: ref.laplace(y, 0.4),
        None,
    ),
    "hinge": Kind(own.Hinge, lambda rng, f: 1.0 * (rng.normal(size=f.shape) < f), ref.hinge, None),
    "Student-t": Kind(
        lambda: gl.StudentT(0.3, 4.0),
        _with_outliers,
        lambda y: ref.student_t(y, 4.0, 0.3),
        None,
        False,
    ),
}
CONCAVE = [name for name, kind in KINDS.items() if kind.concave]


def inputs(N: int, seed: int = 0) -> Array:
    """X [N, 2]."""
    return np.random.default_rng(seed).uniform(-2.0, 2.0, size=(N, 2))


def labels(name: str, X: Array, latents: int = 1, seed: int = 1) -> Array:
    """Y [N, L] of a smooth function."""
    rng = np.random.default_rng(seed)
    f = np.sin(2.0 * X[:, :1]) + X[:, 1:] * np.linspace(0.5, -0.5, latents)
    return KINDS[name].labels(rng, f)


def model(
    name: str, N: int = 10, latents: int = 1, with_mean: bool = True, variance: float = 1.3
) -> LCLGP:
    """A model at multipliers of zero."""
    X = inputs(N)
    trend = gpflow.functions.Linear(np.ones((2, latents)) * [[0.4], [-0.3]], 0.2 * np.ones(latents))
    mean = trend if with_mean else None
    return LCLGP(
        (X, labels(name, X, latents)), matern(variance, 0.8), KINDS[name].make(), mean_function=mean
    )


def randomize(built: LCLGP, seed: int = 0) -> None:
    """Multipliers inside S, some lambda negative where the sites are not log-concave."""
    rng, loss = np.random.default_rng(seed), built.site_loss()
    low, high = np.maximum(loss.lower, -2.0), np.minimum(loss.upper, 2.0)
    built.basis.alpha.assign(low + (high - low) * rng.uniform(0.05, 0.95, size=low.shape))
    lam = rng.uniform(0.05, 2.0, size=low.shape)
    bumpy = np.asarray(tf.convert_to_tensor(loss.curvature)) > 0.0
    built.basis.lam.assign(np.where(bumpy & (rng.uniform(size=lam.shape) < 0.3), -0.05, lam))


def gram(built: LCLGP, latent: int = 0) -> Array:
    """K [N, N], in numpy."""
    X = built.data[0].numpy()
    return numpy_kernel(built.kernel, latent)(X, X)


def prior_mean(built: LCLGP, latent: int = 0) -> Array:
    """m_0 [N], in numpy."""
    return built.prior_mean().numpy()[:, latent]


def site_functions(name: str, built: LCLGP, latent: int = 0) -> list[ref.SiteFunction]:
    """f_n of each label, as the loss defines it: by the same rule where that is a quadrature."""
    return [_site_function(KINDS[name], float(y)) for y in built.data[1].numpy()[:, latent]]


def _site_function(kind: Kind, y: float) -> ref.SiteFunction:
    loss = kind.loss(y)
    if kind.order is None:
        return lambda h, sigma: ref.integral(loss, h, sigma, (y, 2.0 * y - 1.0))
    return lambda h, sigma: ref.hermite(loss, h, sigma, kind.order)
