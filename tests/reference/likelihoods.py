"""Expected log likelihoods and their derivatives by Gauss-Hermite quadrature."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from scipy.optimize import minimize
from scipy.special import expit, gammaln, log_softmax, logsumexp
from scipy.stats import norm

from .decoupled import Process
from .grams import Array


class Likelihood(NamedTuple):
    """log p(y | f) and its first two derivatives in f, each of (y, f) and broadcasting."""

    log_prob: Callable[[Array, Array], Array]
    score: Callable[[Array, Array], Array]
    curvature: Callable[[Array, Array], Array]


class Expectation(NamedTuple):
    """E [N], g = dE/dmean [N], and h = dE/dvariance [N] with the mean held fixed."""

    value: Array
    g: Array
    h: Array


def gaussian(noise: float) -> Likelihood:
    """Normal with variance `noise`."""
    return Likelihood(
        lambda y, f: -0.5 * (np.log(2 * np.pi * noise) + (y - f) ** 2 / noise),
        lambda y, f: (y - f) / noise,
        lambda y, f: -np.ones_like(f) / noise,
    )


def bernoulli_logit() -> Likelihood:
    """y in {0, 1} with the logistic link."""
    return Likelihood(
        lambda y, f: y * f - np.logaddexp(0.0, f),
        lambda y, f: y - expit(f),
        lambda y, f: -expit(f) * expit(-f),
    )


def poisson() -> Likelihood:
    """Counts y with rate exp(f)."""
    return Likelihood(
        lambda y, f: y * f - np.exp(f) - gammaln(y + 1.0),
        lambda y, f: y - np.exp(f),
        lambda y, f: -np.exp(f),
    )


def bernoulli_probit() -> Likelihood:
    """y in {0, 1} with p(y = 1 | f) = Phi(f)."""

    def signed(y: Array, f: Array) -> tuple[Array, Array, Array]:
        t = 2.0 * y - 1.0
        return t, t * f, np.exp(norm.logpdf(f) - norm.logcdf(t * f))

    def curvature(y: Array, f: Array) -> Array:
        _, u, ratio = signed(y, f)
        return -ratio * (ratio + u)

    def score(y: Array, f: Array) -> Array:
        t, _, ratio = signed(y, f)
        return t * ratio

    return Likelihood(lambda y, f: norm.logcdf((2.0 * y - 1.0) * f), score, curvature)


def exponential() -> Likelihood:
    """Exponential y with the scale exp(f)."""
    return Likelihood(
        lambda y, f: -y * np.exp(-f) - f,
        lambda y, f: y * np.exp(-f) - 1.0,
        lambda y, f: -y * np.exp(-f),
    )


def expectation(
    likelihood: Likelihood, y: Array, mean: Array, var: Array, order: int = 100
) -> Expectation:
    """Expectation under N(mean, var), all [N], var > 0.

    g and h are the derivatives of the quadrature sum itself, so at equal order they are the numbers
    that automatic differentiation of the same quadrature gives."""
    z, weights = hermegauss(order)
    weights = weights / np.sqrt(2 * np.pi)
    std = np.sqrt(var)[:, None]
    f = mean[:, None] + std * z
    score = likelihood.score(y[:, None], f)
    value = likelihood.log_prob(y[:, None], f) @ weights
    return Expectation(value, score @ weights, (score * z / (2.0 * std)) @ weights)


def elbo(
    q: Process,
    y: Array,
    likelihood: Likelihood,
    scale: float = 1.0,
    prior_mean: Array | float = 0.0,
    order: int = 100,
) -> float:
    """scale * sum_n E_n - KL of q at the inputs of y [N]; prior_mean [N] is the mean function
    there.
    """
    E = expectation(likelihood, y, q.mean + prior_mean, np.diag(q.cov), order)
    return scale * float(np.sum(E.value)) - q.kl


def softmax_integrals(mean: Array, var: Array, order: int = 60) -> tuple[float, Array]:
    """E log sum_k exp f_k in nats, and E softmax(f) [C], f_k ~ N(mean_k, var_k) independent: a grid
    of order^C nodes.
    """
    z, weights = hermegauss(order)
    axes = np.meshgrid(*[z] * len(mean), indexing="ij")
    all_weights = np.meshgrid(*[weights / np.sqrt(2 * np.pi)] * len(mean), indexing="ij")
    f = mean + np.sqrt(var) * np.stack(axes, axis=-1).reshape(-1, len(mean))
    w = np.prod(np.stack(all_weights, axis=-1), axis=-1).reshape(-1)
    return float(w @ logsumexp(f, axis=1)), w @ np.exp(log_softmax(f, axis=1))


def tilted_bound(mean: Array, var: Array) -> float:
    """The least value over a of the bound of Knowles & Minka (2011) on E log sum_k exp f_k; mean
    and var [C]. (V33)
    """

    def value(a: Array) -> float:
        return float(0.5 * np.sum(a**2 * var) + logsumexp(mean + (0.5 - a) * var))

    def slope(a: Array) -> Array:
        return var * (a - np.exp(log_softmax(mean + (0.5 - a) * var)))

    start = np.full(len(mean), 1.0 / len(mean))
    return float(minimize(value, start, jac=slope, method="BFGS", options={"gtol": 1e-9}).fun)
