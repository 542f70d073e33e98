"""Small seeded problems and helpers shared by the tests of the reference."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose

from . import decoupled as ref
from . import grams as gr
from . import likelihoods as lik

NOISE = 0.3
LIKELIHOODS = {
    "gaussian": lik.gaussian(NOISE),
    "bernoulli": lik.bernoulli_logit(),
    "poisson": lik.poisson(),
}


def spd(rng, size, scale=1.0):
    root = rng.normal(size=(size, size)) / np.sqrt(size)
    return scale * (root @ root.T + 0.3 * np.eye(size))


def make_grams(seed=0, N=7, M_b=4, M_g=5, jitter=0.0, jitter_gamma=0.0):
    rng = np.random.default_rng(seed)
    X, beta, gamma = (2.0 * rng.normal(size=(size, 2)) for size in (N, M_b, M_g))
    return gr.build_grams(gr.matern32, X, beta, gamma, jitter, jitter_gamma)


def parameters_of(family, k, seed=1):
    rng = np.random.default_rng(seed)
    M_b, M_g = len(k.K_b), len(k.K_g)
    a, m, S = rng.normal(size=M_g), rng.normal(size=M_b), spd(rng, M_b)
    return {
        ref.coupled: (m, S),
        ref.decoupled_inverse: (a, S),
        ref.decoupled_inverse_factor: (a, rng.normal(size=(M_b, 2))),
        ref.decoupled_coupled: (a, S),
        ref.hybrid: (a, m, S),
        ref.orthogonal: (a, m, S),
        ref.solve: (m, S, rng.normal(size=M_g), spd(rng, M_g)),
    }[family]


FAMILIES = [
    ref.coupled,
    ref.decoupled_inverse,
    ref.decoupled_inverse_factor,
    ref.decoupled_coupled,
    ref.hybrid,
    ref.orthogonal,
    ref.solve,
]


def same(p, q, tolerance=1e-12):
    for left, right in zip(p, q, strict=True):
        assert_allclose(left, right, rtol=tolerance, atol=tolerance)


def regression(seed=0, N=9, M_b=3, M_g=4, jitter=0.0):
    k = make_grams(seed, N, M_b, M_g, jitter)
    y = np.linalg.cholesky(k.K_x + NOISE * np.eye(N)) @ np.random.default_rng(seed + 50).normal(
        size=N
    )
    return k, y


def labels(name, size, seed=0):
    rng = np.random.default_rng(seed)
    if name == "gaussian":
        return rng.normal(size=size)
    return (rng.integers(0, 2, size) if name == "bernoulli" else rng.poisson(2.0, size)).astype(
        float
    )


def gradient(function, x, step=1e-5):
    """Central differences of a scalar function of a flat array."""
    eye = step * np.eye(len(x))
    return np.array([(function(x + e) - function(x - e)) / (2 * step) for e in eye])


def symmetric_gradient(function, S, step=1e-5):
    """Gradient in the full symmetric S: off-diagonal entries move in pairs and share the slope."""
    slopes = np.zeros_like(S)
    for i in range(len(S)):
        for j in range(i + 1):
            E = np.zeros_like(S)
            E[i, j] = E[j, i] = step
            slope = (function(S + E) - function(S - E)) / (2 * step)
            slopes[i, j] = slopes[j, i] = slope if i == j else 0.5 * slope
    return slopes
