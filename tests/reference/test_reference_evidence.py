"""EP and Laplace in the reference: against each other's formulas, exact Gaussians, enumeration of
two points, CVI.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import expon, multivariate_normal, norm

from . import conjugate as cvi
from . import expectation_propagation as ep
from . import laplace as la
from . import likelihoods as lik
from .cases import LIKELIHOODS, NOISE, labels, make_grams, same

K, PRIOR_MEAN = make_grams(N=5).K_x, np.linspace(-0.5, 0.8, 5)


def _probit(y, f):
    return norm.logcdf((2.0 * y - 1.0) * f)


def test_algorithm_for_the_probit_is_that_for_any_density():
    y = labels("bernoulli", 5)
    special, general = ep.probit_ep(K, 2.0 * y - 1.0), ep.power_ep(K, np.zeros(5), y, _probit)
    same(special.sites, general.sites, 1e-8)
    assert_allclose(special.evidence, general.evidence, rtol=1e-9)


@pytest.mark.parametrize("power", [1.0, 0.4])
def test_gaussian_noise_is_exact(power):
    y, exact = labels("gaussian", 5), LIKELIHOODS["gaussian"]
    evidence = cvi.log_evidence(K, PRIOR_MEAN, y, NOISE)
    for found in (
        ep.power_ep(K, PRIOR_MEAN, y, exact.log_prob, power),
        la.newton(K, PRIOR_MEAN, y, exact),
    ):
        assert_allclose(found.evidence, evidence, rtol=1e-9)
        same(found.sites, cvi.Sites(y / NOISE, np.full(5, 1.0 / NOISE)), 1e-8)


def test_small_powers_are_conjugate_computation():
    y, poisson = labels("poisson", 5), LIKELIHOODS["poisson"]
    expect = cvi.quadrature(poisson, y)
    best = cvi.run(K, PRIOR_MEAN, cvi.no_sites(5), expect)
    bound = cvi.site_bound(K, PRIOR_MEAN, best, expect)
    gaps = []
    for power in (1.0, 0.1, 0.01):
        found = ep.power_ep(K, PRIOR_MEAN, y, poisson.log_prob, power)
        gaps.append((np.abs(found.sites.nu - best.nu).max(), np.abs(found.evidence - bound)))
    gaps = np.array(gaps)
    assert np.all(gaps[1:] < 0.2 * gaps[:-1]) and np.max(gaps[-1]) < 1e-2


def test_evidence_of_two_points_is_nearly_the_integral():
    K_2, y, grid = K[:2, :2], np.array([1.0, 0.0]), np.linspace(-10.0, 10.0, 801)
    f = np.stack(np.meshgrid(grid, grid), axis=-1)
    joint = np.exp(_probit(y, f).sum(-1)) * multivariate_normal.pdf(f, np.zeros(2), K_2)
    truth = np.log(np.sum(joint) * (grid[1] - grid[0]) ** 2)
    assert_allclose(ep.probit_ep(K_2, 2.0 * y - 1.0).evidence, truth, atol=2e-3)


DENSITIES = {**LIKELIHOODS, "probit": lik.bernoulli_probit(), "exponential": lik.exponential()}


@pytest.mark.parametrize("name", ["probit", "exponential"])
def test_densities_and_their_derivatives(name):
    f, y = (
        np.linspace(-3.0, 3.0, 6),
        np.array([0.0, 1.0] * 3) if name == "probit" else np.linspace(0.1, 4.0, 6),
    )
    log_prob, score, curvature = DENSITIES[name]
    for function, derivative in ((log_prob, score), (score, curvature)):
        slope = (function(y, f + 1e-5) - function(y, f - 1e-5)) / 2e-5
        assert_allclose(derivative(y, f), slope, rtol=1e-7, atol=1e-8)
    if name == "exponential":
        assert_allclose(log_prob(y, f), expon.logpdf(y, scale=np.exp(f)), rtol=1e-12)


@pytest.mark.parametrize("name", ["bernoulli", "poisson", "probit"])
def test_newton_ends_where_a_general_optimizer_does(name):
    y, likelihood = labels("bernoulli" if name == "probit" else name, 5), DENSITIES[name]
    found, other = (
        la.newton(K, PRIOR_MEAN, y, likelihood),
        la.climb(K, PRIOR_MEAN, y, likelihood, np.zeros(5)),
    )
    same(found.sites, other.sites, 1e-10)
    mean, _ = cvi.marginals(K, PRIOR_MEAN, found.sites)  # the mean of q is the mode
    assert_allclose(np.linalg.solve(K, mean - PRIOR_MEAN), likelihood.score(y, mean), rtol=1e-8)
    mode = np.sum(likelihood.log_prob(y, mean)) + multivariate_normal.logpdf(mean, PRIOR_MEAN, K)
    H = np.linalg.inv(K) - np.diag(likelihood.curvature(y, mean))
    by_hessian = mode + 0.5 * len(y) * np.log(2 * np.pi) - 0.5 * np.linalg.slogdet(H)[1]
    assert_allclose(found.evidence, by_hessian, rtol=1e-10)


def test_no_fixed_point_is_said():
    y = labels("bernoulli", 5)
    with pytest.raises(ValueError, match="no fixed point after 2 passes"):
        ep.power_ep(K, PRIOR_MEAN, y, _probit, passes=2)
    with pytest.raises(ValueError, match="no fixed point after 1 passes"):
        ep.probit_ep(K, 2.0 * y - 1.0, passes=1)
    with pytest.raises(ValueError, match="damp it"):
        la.newton(K, PRIOR_MEAN, y, LIKELIHOODS["bernoulli"], steps=1)
