"""CVI of generalised linear models in the reference: weights, data and inducing variables hold one
posterior.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal

from . import conjugate as cvi
from . import generalised_linear as glm
from . import natural_gradient as ng
from . import sparse_conjugate as sp
from .cases import LIKELIHOODS, NOISE, labels, make_grams, same, spd


def setting(name="bernoulli", N=8, D=3):
    """(prior precision, prior mean, X with an intercept), and the expectations of one
    likelihood.
    """
    rng = np.random.default_rng(N + D)
    X = np.hstack([rng.normal(size=(N, D - 1)), np.ones((N, 1))])
    return (4.0 * spd(rng, D), rng.normal(size=D), X), cvi.quadrature(
        LIKELIHOODS[name], labels(name, N)
    )


def random_sites(D=3, seed=3):
    rng = np.random.default_rng(seed)
    return sp.TiedSites(rng.normal(size=D), spd(rng, D))


def steps_on_the_data(model, expect, rho, count):
    """The data's sites [N] after some full steps from none, by the functions for a full GP."""
    K, mean = glm.dual_prior(*model)
    sites = cvi.no_sites(len(K))
    for _ in range(count):
        eta, var = cvi.marginals(K, mean, sites)
        sites = cvi.site_step(sites, cvi.site_target(eta, *expect(eta, var)[1:]), rho)
    return sites


def steps_on_the_weights(model, expect, rho, count):
    sites = sp.no_sites(model[2].shape[1])
    for _ in range(count):
        sites = glm.step(*model, sites, expect, rho)
    return sites


@pytest.mark.parametrize(("N", "D"), [(8, 3), (4, 6)])
def test_gaussian_step_of_size_one_is_bayesian_linear_regression(N, D):
    model, expect = setting("gaussian", N, D)
    (P, prior_mean, X), y = model, labels("gaussian", N)
    prior_cov = np.linalg.inv(P)
    evidence = multivariate_normal.logpdf(
        y, X @ prior_mean, X @ prior_cov @ X.T + NOISE * np.eye(N)
    )
    gain = prior_cov @ X.T @ np.linalg.inv(X @ prior_cov @ X.T + NOISE * np.eye(N))
    exact = prior_mean + gain @ (y - X @ prior_mean), prior_cov - gain @ X @ prior_cov
    sites = glm.step(*model, random_sites(D), expect, 1.0)
    same(glm.posterior(P, prior_mean, sites), exact, 1e-9)
    assert_allclose(glm.log_evidence(*model, y, NOISE), evidence, rtol=1e-11)
    assert_allclose(glm.bound(*model, sites, expect), evidence, rtol=1e-10)
    same(glm.dual_weights(*model, steps_on_the_data(model, expect, 1.0, 1)), exact, 1e-9)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.parametrize(("N", "D"), [(8, 3), (4, 6)])
def test_weights_and_data_agree_after_every_number_of_steps(name, N, D):
    model, expect = setting(name, N, D)
    X_s = np.random.default_rng(0).normal(size=(5, D))
    for count in (0, 1, 2, 7):
        data, weights = (
            steps(model, expect, 0.4, count) for steps in (steps_on_the_data, steps_on_the_weights)
        )
        same(weights, sp.tie(model[2].T, *data), 1e-10)
        m, V = glm.posterior(*model[:2], weights)
        same(glm.dual_weights(*model, data), (m, V), 1e-10)
        literal = X_s @ m, [x @ V @ x for x in X_s]
        same(glm.marginals(X_s, m, V), literal, 1e-12)
        same(glm.dual_predict(*model, X_s, data), literal, 1e-10)
        bound = cvi.site_bound(*glm.dual_prior(*model), data, expect)
        assert_allclose(glm.bound(*model, weights, expect), bound, rtol=1e-10)


@pytest.mark.exhaustive
def test_gp_with_a_linear_kernel_is_a_linear_model():
    (_, prior_mean, X), expect = setting()
    variances = np.array([0.5, 2.0, 1.5])
    K = np.array([[np.sum(variances * left * right) for right in X] for left in X])
    sites = cvi.run(K, X @ prior_mean, cvi.no_sites(8), expect)
    model = np.diag(1 / variances), prior_mean, X
    weights = glm.run(*model, expect)
    m, V = glm.posterior(*model[:2], weights)
    same(cvi.posterior(K, X @ prior_mean, sites), (X @ m, X @ V @ X.T), 1e-10)
    assert_allclose(
        glm.bound(*model, weights, expect),
        cvi.kl_bound(K, X @ prior_mean, sites, expect),
        rtol=1e-11,
    )


@pytest.mark.parametrize("storage", sp.STORAGES)
def test_weights_are_inducing_variables_once_their_prior_mean_is_taken_off(storage):
    model, expect = setting("poisson")
    (P, prior_mean, X), weights = model, sp.no_sites(3)
    matrices, tied = glm.inducing_matrices(P, X), sp.no_sites(3)
    for _ in range(5):
        weights = glm.step(*model, weights, expect, 0.4)
        tied = sp.step(*matrices, tied, storage, expect, 0.4, X @ prior_mean)
        m, V = glm.posterior(P, prior_mean, weights)
        same(sp.moments(matrices[0], tied, storage), (m - prior_mean, V), 1e-9)
    centred = weights.lambda1 - weights.Lambda2 @ prior_mean, weights.Lambda2
    same(sp.convert(matrices[0], tied, storage, "projected"), centred, 1e-9)
    bound = sp.projected_bound(*matrices, sp.TiedSites(*centred), expect, X @ prior_mean)
    assert_allclose(glm.bound(*model, weights, expect), bound, rtol=1e-10)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_step_is_a_natural_gradient_step(name):
    (P, prior_mean, X), expect = setting(name)
    k = make_grams()._replace(K_b=np.linalg.inv(P), K_xb=X @ np.linalg.inv(P))
    sites, scale = random_sites(), 2.5
    m, V = glm.posterior(P, prior_mean, sites)
    _, g, h = expect(X @ m, np.diag(X @ V @ X.T))
    m, V = ng.natural_gradient_step(k, m - prior_mean, V, g, h, 0.3, scale)
    stepped = glm.step(P, prior_mean, X, sites, expect, 0.3, scale)
    same(glm.posterior(P, prior_mean, stepped), (m + prior_mean, V), 1e-10)


def test_bound_is_the_textbook_bound_and_has_no_divergence_at_the_prior():
    model, expect = setting()
    P, prior_mean, X = model
    m, V = glm.posterior(P, prior_mean, random_sites())
    textbook = glm.textbook_bound(*model, m, V, expect)
    assert_allclose(glm.bound(*model, random_sites(), expect), textbook, rtol=1e-11)
    doubled = textbook + np.sum(expect(*glm.marginals(X, m, V)).value)
    assert_allclose(glm.bound(*model, random_sites(), expect, 2.0), doubled, rtol=1e-11)
    eta, prior_var = X @ prior_mean, np.diag(X @ np.linalg.inv(P) @ X.T)
    expected = np.sum(expect(eta, prior_var).value)
    assert_allclose(glm.bound(*model, sp.no_sites(3), expect), expected, rtol=1e-11)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_fixed_point_is_the_best_gaussian(name):
    model, expect = setting(name)
    sites = glm.run(*model, expect)
    m, V, best = cvi.best_gaussian(lambda m, V: glm.textbook_bound(*model, m, V, expect), 3)
    assert_allclose(glm.bound(*model, sites, expect), best, rtol=1e-9)
    same(glm.posterior(*model[:2], sites), (m, V), 1e-4)


@pytest.mark.parametrize("size", [1, 3, 8])
def test_steps_average_over_all_batches_to_the_full_step(size):
    (P, prior_mean, X), expect = setting()
    y, steps = labels("bernoulli", 8), []
    for batch in map(list, combinations(range(8), size)):
        batch_expect = cvi.quadrature(LIKELIHOODS["bernoulli"], y[batch])
        steps.append(glm.step(P, prior_mean, X[batch], random_sites(), batch_expect, 0.3, 8 / size))
    full = glm.step(P, prior_mean, X, random_sites(), expect, 0.3)
    same((np.mean(parts, axis=0) for parts in zip(*steps, strict=True)), full)
