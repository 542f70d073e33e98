"""CVI of a full GP in the reference, against explicit Gaussians, Fisher matrices, enumeration and
an optimizer.
"""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal, t

from . import collapsed as col
from . import conjugate as cvi
from . import natural_gradient as ng
from .cases import LIKELIHOODS, NOISE, gradient, labels, make_grams, same, spd, symmetric_gradient
from .likelihoods import Likelihood

STUDENT = cvi.student_t(3.0, 0.3)
ALL = {**LIKELIHOODS, "student": STUDENT}
EXPONENTS = np.array([[2.0, -0.5], [-0.5, 1.0]])  # precision of correlated noise


def setting(name="bernoulli", N=6):
    """K [N, N], a prior mean [N] that is not zero, and the expectations of one likelihood."""
    y = 2.0 * labels("gaussian", N, 3) if name == "student" else labels(name, N)
    return make_grams(N=N).K_x, np.linspace(-0.5, 0.8, N), cvi.quadrature(ALL[name], y)


def correlated_noise():
    """Two outputs y [N, 1, 2] with correlated noise of precision EXPONENTS."""
    constant = np.linalg.slogdet(EXPONENTS / (2 * np.pi))[1]
    return Likelihood(
        lambda y, f: 0.5 * (constant - np.einsum("...l,lk,...k->...", y - f, EXPONENTS, y - f)),
        lambda y, f: (y - f) @ EXPONENTS,
        lambda y, f: np.broadcast_to(-EXPONENTS, (*f.shape, 2)),
    )


def block_setting(name="softmax", N=3):
    """The same for two latents with different kernels."""
    y = labels("bernoulli", N).astype(int) if name == "softmax" else labels("gaussian", N)
    y = labels("gaussian", 2 * N).reshape(N, 2) if name == "correlated" else y
    likelihood = {
        "softmax": cvi.softmax_classes(2),
        "noise": cvi.heteroscedastic(),
        "correlated": correlated_noise(),
    }
    K = cvi.block_prior(np.stack([make_grams(N=N).K_x, 0.5 * make_grams(1, N=N).K_x]))
    return (
        K,
        np.linspace(-0.5, 0.8, 2 * N),
        cvi.quadrature(likelihood[name], y, 24, cvi.block_expectation),
    )


def random_sites(N, L=None, seed=3):
    rng = np.random.default_rng(seed)
    if L is None:
        return cvi.Sites(rng.normal(size=N), np.append(rng.uniform(0.2, 2.0, N - 1), -0.1))
    tau = np.stack([spd(rng, L) for _ in range(N)])
    tau[-1] = -0.1 * np.eye(L)
    return cvi.Sites(rng.normal(size=(N, L)), tau)


def local_value(K, prior_mean, expect, L=None):
    """The textbook bound as a function of any mean and covariance."""

    def value(mean, cov):
        N = len(K) // (L or 1)
        blocks = np.diag(cov) if L is None else np.einsum("nlnk->nlk", cov.reshape(N, L, N, L))
        expected = expect(mean if L is None else mean.reshape(N, L), blocks).value
        return cvi.textbook_bound(K, prior_mean, mean, cov, expected)

    return value


def full_step(K, prior_mean, sites, expect, rho):
    mean, var = cvi.marginals(K, prior_mean, sites)
    return cvi.site_step(sites, cvi.site_target(mean, *expect(mean, var)[1:]), rho)


def batch_step(rule, K, prior_mean, sites, expect, batch, rho):
    mean, var = cvi.marginals(K, prior_mean, sites)
    target = cvi.site_target(mean, *expect(mean, var)[1:])
    return rule(sites, batch, cvi.Sites(*(part[list(batch)] for part in target)), rho)


@pytest.mark.parametrize("L", [None, 2])
def test_prior_times_sites_is_the_normaliser_times_the_posterior(L):
    K, prior_mean, _ = setting(N=6) if L is None else block_setting()
    sites = random_sites(6 if L is None else 3, L)
    mean, cov = cvi.posterior(K, prior_mean, sites)
    for f in np.random.default_rng(1).normal(size=(5, 6)):
        rows = f.reshape(sites.nu.shape)
        bilinear = rows**2 if L is None else rows[:, :, None] * rows[:, None, :]
        log_sites = np.sum(sites.nu * rows) - 0.5 * np.sum(sites.tau * bilinear)
        joint = multivariate_normal.logpdf(f, prior_mean, K) + log_sites
        log_q = multivariate_normal.logpdf(f, mean, cov)
        assert_allclose(cvi.log_partition(K, prior_mean, sites) + log_q, joint, rtol=1e-11)
    K_inv = np.linalg.inv(K)
    literal = np.linalg.inv(K_inv + sites.precision)
    same((mean, cov), (literal @ (K_inv @ prior_mean + sites.nu.ravel()), literal), 1e-11)


def test_normaliser_is_an_evidence_of_pseudo_data():
    K, prior_mean, _ = setting()
    nu, tau = random_sites(6)
    tau = np.abs(tau)
    evidence = col.log_normal(nu / tau - prior_mean, K + np.diag(1 / tau))
    constant = np.sum(0.5 * np.log(2 * np.pi / tau) + 0.5 * nu**2 / tau)
    assert_allclose(
        cvi.log_partition(K, prior_mean, cvi.Sites(nu, tau)), evidence + constant, rtol=1e-12
    )


@pytest.mark.parametrize("name", [*ALL, "softmax", "noise", "correlated"])
def test_three_forms_of_the_bound_agree_at_any_sites(name):
    K, prior_mean, expect = setting(name) if name in ALL else block_setting(name)
    sites = random_sites(6) if name in ALL else random_sites(3, 2)
    mean, cov = cvi.posterior(K, prior_mean, sites)
    expected = expect(*cvi.marginals(K, prior_mean, sites)).value
    textbook = cvi.textbook_bound(K, prior_mean, mean, cov, expected)
    assert_allclose(cvi.kl_bound(K, prior_mean, sites, expect), textbook, rtol=1e-11)
    assert_allclose(cvi.site_bound(K, prior_mean, sites, expect), textbook, rtol=1e-11)


def test_without_sites_q_is_the_prior():
    K, prior_mean, _ = setting()
    for sites in (cvi.no_sites(6), cvi.no_sites(3, 2)):
        same(cvi.posterior(K, prior_mean, sites), (prior_mean, K))
        same(
            (cvi.site_kl(K, prior_mean, sites), cvi.log_partition(K, prior_mean, sites)), (0.0, 0.0)
        )


@pytest.mark.parametrize("slope", [0.0, 1.0])
def test_gaussian_step_of_size_one_is_exact_regression_from_anywhere(slope):
    K, prior_mean, expect = setting("gaussian")
    prior_mean, y = slope * prior_mean, labels("gaussian", 6)
    sites = full_step(K, prior_mean, random_sites(6), expect, 1.0)
    same(sites, (y / NOISE, np.full(6, 1 / NOISE)), 1e-10)
    mean, cov = col.exact_posterior(K, K, K, y - prior_mean, NOISE)
    same(cvi.posterior(K, prior_mean, sites), (prior_mean + mean, cov), 1e-11)
    evidence = multivariate_normal.logpdf(y, prior_mean, K + NOISE * np.eye(6))
    assert_allclose(cvi.log_evidence(K, prior_mean, y, NOISE), evidence, rtol=1e-12)
    assert_allclose(cvi.kl_bound(K, prior_mean, sites, expect), evidence, rtol=1e-11)
    other, other_mean = make_grams(5, N=6).K_x, prior_mean + np.sin(np.arange(6.0))
    fixed_site = cvi.kl_bound(other, other_mean, sites, expect)
    assert_allclose(fixed_site, cvi.log_evidence(other, other_mean, y, NOISE), rtol=1e-11)


def test_two_gaussian_outputs_with_correlated_noise_are_exact_after_one_step():
    K, prior_mean, expect = block_setting("correlated")
    y = labels("gaussian", 6)
    sites = full_step(K, prior_mean, random_sites(3, 2), expect, 1.0)
    evidence = multivariate_normal.logpdf(
        y, prior_mean, K + np.kron(np.eye(3), np.linalg.inv(EXPONENTS))
    )
    assert_allclose(cvi.site_bound(K, prior_mean, sites, expect), evidence, rtol=1e-10)


def _natural(mean, cov):
    P, upper = np.linalg.inv(cov), np.triu_indices(len(mean))
    # f_i f_j with i < j is one statistic, so both entries of -P / 2 go to it.
    return np.concatenate([P @ mean, ((0.5 * np.eye(len(P)) - 1.0) * P)[upper]])


def _moments(parameters, F):
    P, upper = np.zeros((F, F)), np.triu_indices(F)
    P[upper] = -parameters[F:]
    cov = np.linalg.inv(P + P.T)
    return cov @ parameters[:F], cov


@pytest.mark.parametrize("name", ["bernoulli", "poisson", "student", "softmax"])
def test_step_is_a_natural_gradient_step_with_the_explicit_fisher_matrix(name):
    L = 2 if name == "softmax" else None
    K, prior_mean, expect = block_setting(N=2) if L else setting(name, N=3)
    F, sites, rho = len(K), random_sites(2 if L else 3, L), 0.3
    value = local_value(K, prior_mean, expect, L)

    def expectation_parameters(parameters):
        mean, cov = _moments(parameters, F)
        return np.concatenate([mean, (cov + np.outer(mean, mean))[np.triu_indices(F)]])

    start = _natural(*cvi.posterior(K, prior_mean, sites))
    eye = 1e-5 * np.eye(len(start))
    fisher = [
        (expectation_parameters(start + e) - expectation_parameters(start - e)) / 2e-5 for e in eye
    ]
    expected = start + rho * np.linalg.solve(
        np.array(fisher).T, gradient(lambda x: value(*_moments(x, F)), start)
    )
    stepped = full_step(K, prior_mean, sites, expect, rho)
    assert_allclose(
        _natural(*cvi.posterior(K, prior_mean, stepped)), expected, rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_each_step_from_the_prior_is_a_natural_gradient_step_of_the_dense_posterior(name):
    (K, prior_mean, expect), k = setting(name), make_grams(N=6)
    k = k._replace(K_b=K, K_xb=K)
    sites, m, S = cvi.no_sites(6), np.zeros(6), K
    for _ in range(8):
        _, g, h = expect(m + prior_mean, np.diag(S))
        m, S = ng.natural_gradient_step(k, m, S, g, h, 0.4)
        sites = full_step(K, prior_mean, sites, expect, 0.4)
        same(cvi.posterior(K, prior_mean, sites), (m + prior_mean, S), 1e-9)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", [*ALL, "softmax"])
def test_fixed_point_is_the_best_gaussian(name):
    K, prior_mean, expect = block_setting(N=2) if name == "softmax" else setting(name, N=4)
    N, L = (2, 2) if name == "softmax" else (4, None)
    sites = cvi.run(K, prior_mean, cvi.no_sites(N, L), expect)
    same(cvi.stationarity(K, prior_mean, sites, expect), (np.zeros(4), 0.0 * sites.tau), 1e-11)
    assert name != "student" or sites.tau.min() < -0.1
    mean, cov, best = cvi.best_gaussian(local_value(K, prior_mean, expect, L), 4)
    assert_allclose(cvi.kl_bound(K, prior_mean, sites, expect), best, rtol=1e-9)
    same(cvi.posterior(K, prior_mean, sites), (mean, cov), 1e-4)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["softmax", "noise"])
def test_fixed_point_of_diagonal_sites_is_the_best_factorised_gaussian(name):
    K, prior_mean, expect = block_setting(name, N=2)
    sites = cvi.run(K, prior_mean, cvi.no_sites(2, 2), expect, 0.3, cvi.diagonal_target)
    within = np.kron(np.ones((2, 2)), np.eye(2))
    value = local_value(K, prior_mean, expect, 2)
    mean, cov, best = cvi.best_gaussian(lambda mean, cov: value(mean, within * cov), 4)
    bound = cvi.site_bound(K, prior_mean, sites, expect)
    assert_allclose(bound, best, rtol=1e-9)
    same(cvi.posterior(K, prior_mean, sites), (mean, within * cov), 1e-4)
    full = cvi.run(K, prior_mean, cvi.no_sites(2, 2), expect, 0.3)
    assert cvi.kl_bound(K, prior_mean, full, expect) > bound + 1e-5


@pytest.mark.exhaustive
@pytest.mark.parametrize("draws", [combinations, lambda items, size: product(items, repeat=size)])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_global_steps_average_over_all_subsets_to_the_full_step(size, draws):
    K, prior_mean, expect = setting(N=5)
    sites = random_sites(5)
    steps = [
        batch_step(cvi.global_step, K, prior_mean, sites, expect, b, 0.3)
        for b in draws(range(5), size)
    ]
    average = (np.mean(parts, axis=0) for parts in zip(*steps, strict=True))
    same(average, full_step(K, prior_mean, sites, expect, 0.3))


@pytest.mark.parametrize("rule", [cvi.global_step, cvi.local_step])
@pytest.mark.parametrize("L", [None, 2])
def test_batch_of_all_data_is_the_full_step(rule, L):
    K, prior_mean, expect = setting(N=3) if L is None else block_setting()
    sites = random_sites(3, L)
    stepped = batch_step(rule, K, prior_mean, sites, expect, (2, 0, 1), 0.3)
    same(stepped, full_step(K, prior_mean, sites, expect, 0.3))
    same(sites, random_sites(3, L), 0.0)


@pytest.mark.exhaustive
def test_local_steps_of_constant_size_reach_the_fixed_point_exactly():
    K, prior_mean, expect = setting(N=8)
    sites = cvi.no_sites(8)
    for epoch in range(120):
        for batch in np.random.default_rng(epoch).permutation(8).reshape(4, 2):
            previous, sites = (
                sites,
                batch_step(cvi.local_step, K, prior_mean, sites, expect, batch, 0.7),
            )
            others = np.setdiff1d(np.arange(8), batch)
            same(
                (sites.nu[others], sites.tau[others]),
                (previous.nu[others], previous.tau[others]),
                0.0,
            )
    same(sites, cvi.run(K, prior_mean, cvi.no_sites(8), expect), 1e-12)


def test_visited_data_are_enough_for_all_marginals():
    K, prior_mean, _ = setting(N=8)
    sites, visited, others = random_sites(8), [7, 1, 4], [0, 2, 3, 5, 6]
    mean, cov = cvi.posterior(K, prior_mean, sites)
    same(cvi.predict(K, K, K, prior_mean, prior_mean, sites), (mean, cov), 1e-11)
    sites.nu[others] = sites.tau[others] = 0.0
    mean, cov = cvi.posterior(K, prior_mean, sites)
    at_visited = K[np.ix_(visited, visited)], K[:, visited], K, prior_mean[visited], prior_mean
    predicted = cvi.predict(*at_visited, cvi.Sites(sites.nu[visited], sites.tau[visited]))
    same(predicted, (mean, cov), 1e-11)


@pytest.mark.parametrize("name", ["softmax", "noise", "correlated"])
def test_derivatives_of_block_expectations(name):
    (_, _, expect), rng = block_setting(name, N=1), np.random.default_rng(0)
    mean, cov = rng.normal(size=2), spd(rng, 2, 0.5)
    _, g, h = expect(mean[None], cov[None])

    def value(mean, cov):
        return expect(mean[None], cov[None]).value.sum()

    assert_allclose(g[0], gradient(lambda x: value(x, cov), mean), rtol=1e-6, atol=1e-8)
    assert_allclose(h[0], symmetric_gradient(lambda x: value(mean, x), cov), rtol=1e-5, atol=1e-7)


def test_likelihoods_are_densities_and_student_t_has_its_derivatives():
    f, y = np.linspace(-1.0, 1.0, 5), np.linspace(0.0, 0.4, 5)
    assert_allclose(STUDENT.log_prob(y, f), t.logpdf(y, 3.0, f, 0.3), rtol=1e-12)
    for function, derivative in (
        (STUDENT.log_prob, STUDENT.score),
        (STUDENT.score, STUDENT.curvature),
    ):
        slope = (function(y, f + 1e-5) - function(y, f - 1e-5)) / 2e-5
        assert_allclose(derivative(y, f), slope, rtol=1e-7, atol=1e-8)
    rows = np.random.default_rng(0).normal(size=(4, 3))
    classes = [np.exp(cvi.softmax_classes(3).log_prob(np.full(4, y), rows)) for y in range(3)]
    assert_allclose(np.sum(classes, 0), 1.0, rtol=1e-12)
    scaled = multivariate_normal.logpdf(0.7, 0.2, np.exp(2 * 0.4))
    assert_allclose(
        cvi.heteroscedastic().log_prob(np.array(0.7), np.array([0.2, 0.4])), scaled, rtol=1e-12
    )


def test_prior_of_independent_latents_datum_by_datum():
    K = np.random.default_rng(0).normal(size=(2, 3, 4))
    blocks = cvi.block_prior(K)
    same((blocks[::2, ::2], blocks[1::2, 1::2], blocks[::2, 1::2]), (*K, 0.0 * K[0]), 0.0)


@pytest.mark.exhaustive
def test_change_of_sites_and_the_refusal_of_steps_that_do_not_settle():
    old, new = cvi.no_sites(2), cvi.Sites(np.array([3.0, 0.0]), np.array([0.0, 8.0]))
    assert_allclose(cvi.site_change(old, new, 0.5), (9.0 + 16.0) / 0.25, rtol=1e-14)
    K, prior_mean, _ = setting(N=1)
    expect = cvi.quadrature(LIKELIHOODS["bernoulli"], np.ones(1), 4)
    with pytest.raises(ValueError, match="larger"):
        cvi.run(K, prior_mean, cvi.no_sites(1), expect, 1e-4)
