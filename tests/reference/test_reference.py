"""The reference families against brute force and each other: KLs, limits, index sampling."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from . import decoupled as ref
from . import grams as gr
from .cases import FAMILIES, make_grams, parameters_of, same, spd


@pytest.mark.parametrize("jitter", [0.0, 1e-6, 0.2])
@pytest.mark.parametrize("family", FAMILIES)
def test_kl_is_the_brute_force_kl_of_the_joint(family, jitter):
    k = make_grams(jitter=jitter)
    parameters = parameters_of(family, k)
    assert_allclose(
        ref.brute_force_process_kl(family, k, *parameters), family(k, *parameters).kl, rtol=1e-10
    )


def test_solve_kl_stays_exact_with_jitter_on_gamma():
    k = make_grams(jitter=0.1, jitter_gamma=0.2)
    parameters = parameters_of(ref.solve, k)
    kl = ref.solve(k, *parameters).kl
    assert_allclose(ref.brute_force_process_kl(ref.solve, k, *parameters), kl, rtol=1e-10)


def test_jitter_on_gamma_adds_its_norm_to_the_orthogonal_kl():
    a_g, m, S = parameters_of(ref.orthogonal, make_grams())
    plain, jittered = (ref.orthogonal(make_grams(jitter_gamma=e), a_g, m, S).kl for e in (0.0, 0.2))
    assert_allclose(jittered - plain, 0.1 * a_g @ a_g, rtol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_joint_has_u_and_the_marginal_of_x(family):
    k = make_grams(jitter=0.1)
    parameters = parameters_of(family, k)
    mean, cov = ref.joint_posterior(family, k, *parameters)
    q, N, M_b = family(k, *parameters), len(k.K_x), len(k.K_b)
    same((mean[-N:], cov[-N:, -N:]), q[:2])
    if family in (ref.coupled, ref.orthogonal, ref.solve):
        m, S = parameters[1:] if family is ref.orthogonal else parameters[:2]
        same((mean[:M_b], cov[:M_b, :M_b]), (m, S))


def test_brute_force_kl_of_scalars_and_its_refusals():
    one = np.ones((1, 1))
    value = ref.brute_force_kl(np.array([2.0]), 0.5 * one, np.array([1.0]), 2.0 * one)
    assert_allclose(value, 0.5 * (0.25 + 0.5 - 1.0 + np.log(4.0)), rtol=1e-14)
    with pytest.raises(ValueError, match="condition"):
        ref.brute_force_kl(np.zeros(2), np.eye(2), np.zeros(2), np.ones((2, 2)))
    with pytest.raises(ValueError, match="positive definite"):
        ref.brute_force_kl(np.zeros(2), np.diag([1.0, -1.0]), np.zeros(2), np.eye(2))


@pytest.mark.parametrize("family", FAMILIES)
def test_prior_has_no_divergence(family):
    k = make_grams(jitter=0.1)
    zero_b, zero_g = np.zeros(len(k.K_b)), np.zeros(len(k.K_g))
    prior = {
        ref.coupled: (zero_b, k.K_b),
        ref.decoupled_inverse: (zero_g, 1e-13 * np.eye(len(k.K_b))),
        ref.decoupled_inverse_factor: (zero_g, np.zeros((len(k.K_b), 2))),
        ref.decoupled_coupled: (zero_g, k.K_b),
        ref.hybrid: (zero_g, zero_b, k.K_b),
        ref.orthogonal: (zero_g, zero_b, k.K_b),
        ref.solve: (zero_b, k.K_b, zero_g, k.C_g),
    }[family]
    same(family(k, *prior), (np.zeros(len(k.K_x)), k.K_x, 0.0))


def test_no_gamma_and_zero_coefficients_are_coupled():
    a_g, m, S = parameters_of(ref.orthogonal, make_grams())
    empty, k, none = make_grams(M_g=0), make_grams(), np.zeros(0)
    coupled = ref.coupled(empty, m, S)
    same(ref.orthogonal(empty, none, m, S), coupled)
    same(ref.hybrid(empty, none, np.linalg.solve(empty.K_b, m), S), coupled)
    same(ref.orthogonal(k, 0.0 * a_g, m, S), ref.coupled(k, m, S))
    assert np.abs(ref.orthogonal(k, a_g, m, S).mean - ref.coupled(k, m, S).mean).max() > 0.1


def test_gamma_equal_to_beta_has_no_effect():
    rng = np.random.default_rng(3)
    X, beta = rng.normal(size=(6, 2)), 2.0 * rng.normal(size=(4, 2))
    k = gr.build_grams(gr.matern32, X, beta, beta)
    m, S = rng.normal(size=4), spd(rng, 4)
    same(ref.orthogonal(k, rng.normal(size=4), m, S), ref.coupled(k, m, S))
    assert_allclose(k.C_g, 0.0, atol=1e-14)


def test_decoupled_with_alpha_equal_to_beta_is_coupled():
    k = make_grams(jitter=0.1)
    m, S = parameters_of(ref.coupled, k)
    at_beta = k._replace(K_g=k.K_b, K_xg=k.K_xb, K_gb=k.K_b)
    same(ref.decoupled_coupled(at_beta, np.linalg.solve(k.K_b, m), S), ref.coupled(k, m, S))


def test_inverse_parametrisation_is_a_coupled_covariance():
    k = make_grams(jitter=0.1)
    a, B = parameters_of(ref.decoupled_inverse, k)
    S = ref.inverse_to_covariance(k.K_b, B)
    same(ref.decoupled_inverse(k, a, B), ref.decoupled_coupled(k, a, S))
    same(ref.decoupled_inverse_factor(k, a, np.linalg.cholesky(B)), ref.decoupled_inverse(k, a, B))
    assert_allclose(ref.covariance_to_inverse(k.K_b, S), B, rtol=1e-11, atol=1e-12)
    assert np.linalg.eigvalsh(k.K_b - S)[0] > 0


def test_hybrid_and_orthogonal_are_one_process():
    k = make_grams(jitter=0.1)
    a_g, m, S = parameters_of(ref.orthogonal, k)
    a_b = ref.orthogonal_to_hybrid(k, a_g, m)
    same(ref.hybrid(k, a_g, a_b, S), ref.orthogonal(k, a_g, m, S))
    assert_allclose(ref.hybrid_to_orthogonal(k, a_g, a_b), m, rtol=1e-12)
    union = gr.mean_union(k)
    same(ref.decoupled_coupled(union, np.concatenate([a_g, a_b]), S), ref.orthogonal(k, a_g, m, S))


def test_union_of_gamma_and_beta_has_no_residual_at_beta():
    k = make_grams(jitter=0.1)
    expected = np.zeros((9, 9))
    expected[:5, :5] = k.C_g
    assert_allclose(gr.mean_union(k).C_g, expected, atol=1e-14)


def test_residual_kernel_is_the_covariance_given_u():
    k = make_grams(jitter=0.1)
    given_u = ref.coupled_covariance(k, np.zeros_like(k.K_b))
    assert_allclose(k.C_x, given_u, atol=1e-13)
    assert_allclose(gr.residual(k).K_x, given_u, atol=1e-13)


def test_solve_contains_orthogonal_and_is_a_coupled_process():
    k = make_grams(jitter=0.1)
    a_g, m, S = parameters_of(ref.orthogonal, k)
    same(ref.solve(k, m, S, *ref.orthogonal_to_solve(k, a_g)), ref.orthogonal(k, a_g, m, S))
    parameters = parameters_of(ref.solve, k)
    coupled = ref.coupled(gr.coupled_union(k), *ref.solve_as_coupled(k, *parameters))
    same(coupled, ref.solve(k, *parameters))


@pytest.mark.parametrize("G", [1, 2, 4, 5])
def test_subset_estimators_average_to_the_full_quadratic(G):
    k, a_g = make_grams(jitter=0.1), np.random.default_rng(2).normal(size=5)
    full = a_g @ k.C_g @ a_g
    for estimator in (ref.r1, ref.r2):
        values = ref.enumerate_estimator(estimator, k, a_g, G)
        assert_allclose(values.mean(), full, rtol=1e-12)
        assert (values.std() > 1e-2) == (G < 5)


def test_r2_varies_less_and_vanishes_when_gamma_meets_beta():
    k, a_g = make_grams(M_g=8), np.random.default_rng(2).normal(size=8)
    std = {
        estimator: ref.enumerate_estimator(estimator, k, a_g, 3).std()
        for estimator in (ref.r1, ref.r2)
    }
    assert std[ref.r2] < std[ref.r1]
    beta = np.random.default_rng(3).normal(size=(4, 2))
    k = gr.build_grams(gr.matern32, beta, beta, beta)
    assert_allclose(ref.enumerate_estimator(ref.r2, k, a_g[:4], 2), 0.0, atol=1e-13)
    assert ref.enumerate_estimator(ref.r1, k, a_g[:4], 2).std() > 0.1


def test_kernels_at_one_distance():
    X = np.array([[1.0], [1.01]])
    expected = [2.0, 2.0 * np.exp(-0.5 * 0.02**2)]
    assert_allclose(gr.squared_exponential(X, X, 2.0, 0.5)[0], expected, rtol=1e-14)
    r = np.sqrt(3.0) * 0.02
    assert_allclose(gr.matern32(X, X, 2.0, 0.5)[0], [2.0, 2.0 * (1 + r) * np.exp(-r)], rtol=1e-14)
