"""Expected log likelihoods of the reference against differences, closed forms and a dense grid."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import trapezoid
from scipy.special import gammaln

from . import likelihoods as lik
from .cases import LIKELIHOODS, NOISE, gradient, labels


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_expectation_derivatives(name):
    y, rng = labels(name, 6), np.random.default_rng(1)
    mean, var = rng.normal(size=6), rng.uniform(0.2, 1.5, size=6)
    likelihood = LIKELIHOODS[name]
    value, g, h = lik.expectation(likelihood, y, mean, var)

    def total(mean, var):
        return lik.expectation(likelihood, y, mean, var).value.sum()

    assert_allclose(g, gradient(lambda x: total(x, var), mean), rtol=1e-7, atol=1e-8)
    assert_allclose(h, gradient(lambda x: total(mean, x), var), rtol=1e-7, atol=1e-8)
    curvature = lik.Likelihood(likelihood.curvature, likelihood.score, likelihood.curvature)
    assert_allclose(h, 0.5 * lik.expectation(curvature, y, mean, var).value, rtol=1e-8)
    g_up, g_down = (lik.expectation(likelihood, y, mean + s, var).g for s in (1e-5, -1e-5))
    assert_allclose((g_up - g_down) / 2e-5, 2 * h, rtol=1e-7)
    f = np.linspace(-2.0, 2.0, 6)
    slope = (likelihood.log_prob(y, f + 1e-5) - likelihood.log_prob(y, f - 1e-5)) / 2e-5
    assert_allclose(likelihood.score(y, f), slope, rtol=1e-7, atol=1e-8)


def test_expectation_closed_forms_and_dense_grid():
    mean, var = np.array([0.3, -1.0]), np.array([0.5, 2.0])
    y = np.array([1.0, 0.0])
    counts = np.array([4.0, 0.0])
    closed = counts * mean - np.exp(mean + var / 2) - gammaln(counts + 1)
    assert_allclose(lik.expectation(lik.poisson(), counts, mean, var).value, closed, rtol=1e-11)
    closed = -0.5 * (np.log(2 * np.pi * NOISE) + ((y - mean) ** 2 + var) / NOISE)
    assert_allclose(lik.expectation(lik.gaussian(NOISE), y, mean, var).value, closed, rtol=1e-11)
    z = np.linspace(-12.0, 12.0, 20001)
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    f = mean[:, None] + np.sqrt(var)[:, None] * z
    dense = trapezoid(lik.bernoulli_logit().log_prob(y[:, None], f) * density, z)
    assert_allclose(lik.expectation(lik.bernoulli_logit(), y, mean, var).value, dense, rtol=1e-10)
