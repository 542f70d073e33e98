"""Integrals of the reference against closed forms, and its search for maxima against one that is
known.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import gammaln
from scipy.stats import nbinom

from . import lcl_sites as ref

POINTS = [(0.3, 0.5), (-2.0, 1.7), (4.0, 0.0)]


@pytest.mark.parametrize("h, sigma", POINTS)
def test_integrals_against_closed_forms(h, sigma):
    E = np.exp(h + sigma**2 / 2)
    assert_allclose(ref.integral(ref.poisson(3), h, sigma), E - 3 * h + gammaln(4), rtol=1e-11)
    normal = 0.5 * np.log(2 * np.pi * 0.4) + ((1.5 - h) ** 2 + sigma**2) / 0.8
    assert_allclose(ref.integral(ref.gaussian(1.5, 0.4), h, sigma), normal, rtol=1e-11)
    assert_allclose(ref.hermite(ref.gaussian(1.5, 0.4), h, sigma, 5), normal, rtol=1e-11)


def test_negative_binomial_is_that_of_scipy():
    eta = np.linspace(-5.0, 5.0, 7)
    expected = -nbinom.logpmf(3, 2.5, 2.5 / (2.5 + np.exp(eta)))
    assert_allclose(ref.negative_binomial(3.0, 2.5)(eta), expected, rtol=1e-12)


@pytest.mark.parametrize("sigma", [0.5, 20.0])
def test_predictive_density_of_gaussian_noise(sigma):
    exact = -0.5 * (np.log(2 * np.pi * (0.4 + sigma**2)) + (1.5 + 30.0) ** 2 / (0.4 + sigma**2))
    assert_allclose(ref.log_predictive(ref.gaussian(1.5, 0.4), -30.0, sigma), exact, rtol=1e-9)


def test_search_finds_the_maximum_for_gaussian_noise():
    alpha, lam, sigma_k, rho, variance = 0.7, 1.3, 0.6, 0.2, 0.5
    h, sigma, value = ref.maximise(
        lambda h, sigma: ref.hermite(ref.gaussian(1.0, variance), h, abs(sigma), 4),
        (0.0, 1.0),
        alpha,
        lam,
        sigma_k,
        rho,
    )
    expected = (1.0 + variance * alpha, (lam + rho) * sigma_k / (1 / variance + rho))
    assert_allclose((h, sigma), expected, atol=1e-6)
    f = (
        0.5 * np.log(2 * np.pi * variance)
        + 0.5 * variance * alpha**2
        + expected[1] ** 2 / (2 * variance)
    )
    at = (
        alpha * h
        + lam * sigma_k * (expected[1] - sigma_k / 2)
        - f
        - 0.5 * rho * (expected[1] - sigma_k) ** 2
    )
    assert_allclose(value, at, atol=1e-8)
