"""Proximal-gradient steps in the reference: what they maximise, their sites, and what is other in
conjugate computation.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss
from numpy.testing import assert_allclose

from . import conjugate as cvi
from . import proximal as prox
from .cases import LIKELIHOODS, NOISE, gradient, labels, same
from .test_reference_conjugate import full_step, random_sites, setting


def of_sites(name="bernoulli", N=5):
    """The prior, sites, the q of these, and its slopes g and h."""
    K, prior_mean, expect = setting(name, N=N)
    sites = random_sites(N)
    old = cvi.posterior(K, prior_mean, sites)
    _, g, h = expect(old[0], np.diag(old[1]))
    return (prior_mean, K), sites, old, g, h


@pytest.mark.parametrize("rho", [0.2, 0.6, 1.0])
def test_dense_step_is_the_maximiser(rho):
    """The gradient of (C63) in mean and covariance vanishes there, and every other q nearby is
    worse.
    """
    prior, _, old, g, h = of_sites(N=3)
    mean, cov = prox.dense_step(prior, old, g, h, rho)
    lower = np.tril_indices(3)

    def value(x):
        root = np.zeros((3, 3))
        root[lower] = x[3:]
        return prox.objective((x[:3], root @ root.T), prior, old, g, h, rho)

    best = np.concatenate([mean, np.linalg.cholesky(cov)[lower]])
    same(gradient(value, best), np.zeros(9), 1e-6)
    for change in np.random.default_rng(0).normal(size=(20, 9)):
        assert value(best + 1e-2 * change) < value(best)


@pytest.mark.parametrize("rho", [0.2, 1.0])
def test_dense_step_on_weights_is_the_maximiser(rho):
    """The same where f = A^T v, with five observations of two weights."""
    rng = np.random.default_rng(1)
    A, g, h = rng.normal(size=(2, 5)), rng.normal(size=5), -rng.random(5)
    prior, old = (
        (np.zeros(2), np.eye(2)),
        (np.array([0.3, -0.2]), np.array([[0.5, 0.1], [0.1, 0.4]])),
    )
    mean, cov = prox.dense_step(prior, old, g, h, rho, A)
    lower = np.tril_indices(2)

    def value(x):
        root = np.zeros((2, 2))
        root[lower] = x[2:]
        return prox.objective((x[:2], root @ root.T), prior, old, g, h, rho, A)

    same(gradient(value, np.concatenate([mean, np.linalg.cholesky(cov)[lower]])), np.zeros(5), 1e-6)


@pytest.mark.parametrize("name", [*LIKELIHOODS, "student"])
@pytest.mark.parametrize("rho", [0.3, 1.0])
def test_sites_are_the_dense_step(name, rho):
    """(C65) is (C64); several steps in a row keep q a prior times diagonal sites."""
    prior, sites, old, g, h = of_sites(name)
    stepped = prox.site_step(prior, sites, g, h, rho)
    same(cvi.posterior(prior[1], prior[0], stepped), prox.dense_step(prior, old, g, h, rho), 1e-9)


def test_its_target_has_the_new_mean_where_conjugate_computation_has_the_old():
    prior, sites, old, g, h = of_sites()
    stepped = prox.site_step(prior, sites, g, h, 0.3)
    new = cvi.posterior(prior[1], prior[0], stepped)[0]
    same(stepped, cvi.site_step(sites, cvi.site_target(new, g, h), 0.3), 1e-11)
    conjugate = cvi.site_step(sites, cvi.site_target(old[0], g, h), 0.3)
    same(stepped.tau, conjugate.tau)
    assert np.max(np.abs(stepped.nu - conjugate.nu)) > 1e-2


@pytest.mark.parametrize("batch", [(0, 1, 2, 3, 4), (3, 1)])
def test_published_code_with_one_factorisation_is_conjugate_computation(batch):
    """Where new precisions serve the mean too, (C66), the step is (C13), and on a minibatch
    (C19).
    """
    prior, sites, old, g, h = of_sites()
    inside = np.isin(np.arange(5), batch) * 5.0 / len(batch)
    found, tau = prox.published_step(prior, old, sites.tau, inside * g, inside * h, 0.2)
    target = cvi.Sites(*(part[list(batch)] for part in cvi.site_target(old[0], g, h)))
    stepped = cvi.global_step(sites, batch, target, 0.2)
    same(found, cvi.posterior(prior[1], prior[0], stepped), 1e-9)
    same(tau, stepped.tau)


@pytest.mark.exhaustive
def test_fixed_points_are_those_of_conjugate_computation():
    K, prior_mean, expect = setting(N=6)
    best = cvi.run(K, prior_mean, cvi.no_sites(6), expect)
    _, g, h = expect(*cvi.marginals(K, prior_mean, best))
    same(prox.site_step((prior_mean, K), best, g, h, 0.5), best, 1e-10)
    sites = cvi.no_sites(6)
    for _ in range(200):
        _, g, h = expect(*cvi.marginals(K, prior_mean, sites))
        sites = prox.site_step((prior_mean, K), sites, g, h, 0.3)
    same(sites, best, 1e-8)


@pytest.mark.parametrize("rho, converges", [(0.66, True), (0.7, False)])
def test_gaussian_noise_needs_steps_below_two_thirds(rho, converges):
    """With a strong prior; a step of conjugate computation of size 1 ends at the posterior."""
    K, prior_mean, expect = setting("gaussian", N=6)
    K, y = 1e5 * K, labels("gaussian", 6)
    sites = cvi.Sites(y / NOISE + 0.1, np.full(6, 1 / NOISE))
    for _ in range(40):
        _, g, h = expect(*cvi.marginals(K, prior_mean, sites))
        sites = prox.site_step((prior_mean, K), sites, g, h, rho)
    distance = np.max(np.abs(sites.nu - y / NOISE))  # 0.1 at first
    assert distance < 0.05 if converges else distance > 100.0
    same(full_step(K, prior_mean, sites, expect, 1.0).nu, y / NOISE, 1e-6)


def test_subsets_average_to_one_step_only_to_first_order_in_rho():
    """The scaled slopes of subsets average to all slopes; the step is no linear function of them,
    unlike (C19).
    """
    prior, sites, _, g, h = of_sites()
    whole = {rho: prox.site_step(prior, sites, g, h, rho) for rho in (1e-2, 1e-3)}
    bias = {}
    for rho, full in whole.items():
        steps = [prox.site_step(prior, sites, 5 * g * row, 5 * h * row, rho) for row in np.eye(5)]
        same(np.mean([step.tau for step in steps], axis=0), full.tau, 1e-12)
        bias[rho] = np.max(np.abs(np.mean([step.nu for step in steps], axis=0) - full.nu))
    assert bias[1e-2] > 0.0
    assert_allclose(bias[1e-2] / bias[1e-3], 100.0, rtol=0.2)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_score_function_by_quadrature(name):
    """(C67), with nodes in the place of draws, has the derivatives of the expectation."""
    likelihood, y, rng = LIKELIHOODS[name], labels(name, 4), np.random.default_rng(5)
    mean, var = rng.normal(size=4), rng.uniform(0.3, 1.0, 4)
    z, weights = hermegauss(80)
    weights = weights / np.sqrt(2.0 * np.pi)
    _, g, h = cvi.quadrature(likelihood, y)(mean, var)
    density = likelihood.log_prob(y[:, None], mean[:, None] + np.sqrt(var)[:, None] * z)
    assert_allclose((density * z) @ weights / np.sqrt(var), g, rtol=1e-8)
    assert_allclose((density * (z**2 - 1.0)) @ weights / (2.0 * var), h, rtol=1e-8)


@pytest.mark.parametrize("S", [1, 2])
def test_baseline_leaves_the_mean_alone(S):
    """All combinations of nodes, weighted, in the place of S draws."""
    likelihood, y = LIKELIHOODS["bernoulli"], np.array([1.0])
    z, weights = hermegauss(40)
    weights = weights / np.sqrt(2.0 * np.pi)
    mean, var = np.array([0.4]), np.array([0.7])
    total = np.zeros(2)
    for nodes in product(range(40), repeat=S):
        epsilon = z[list(nodes), None]
        found = prox.score_estimates(
            likelihood.log_prob(y, mean + np.sqrt(var) * epsilon), epsilon, var
        )
        total += np.prod(weights[list(nodes)]) * np.concatenate(found)
    expected = cvi.quadrature(likelihood, y)(mean, var)
    assert_allclose(total, np.concatenate(expected[1:]), rtol=1e-7)
