"""Gaussian noise: optima, collapsed bounds and their chain, against each other and a numerical
optimizer.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize

from . import collapsed as col
from . import decoupled as ref
from . import grams as gr
from .cases import FAMILIES, NOISE, parameters_of, regression, same


@pytest.mark.parametrize("jitter", [0.0, 0.1])
@pytest.mark.parametrize("seed", range(10))
def test_chain_of_bounds_is_strict(seed, jitter):
    k, y = regression(seed, jitter=jitter)
    chain = [
        col.sgpr_bound(k, y, NOISE),
        col.collapsed_orthogonal(k, y, NOISE),
        col.collapsed_solve(k, y, NOISE),
        col.sgpr_bound(gr.coupled_union(k), y, NOISE),
        col.log_evidence(k.K_x, y, NOISE),
    ]
    assert np.all(np.diff(chain) > 1e-8), chain
    assert col.mean_field_gap(k, NOISE) > 0


@pytest.mark.parametrize("family", FAMILIES)
def test_elbo_is_a_lower_bound_for_random_parameters(family):
    k, y = regression()
    evidence = col.log_evidence(k.K_x, y, NOISE)
    gaps = [
        evidence - col.gaussian_elbo(family(k, *parameters_of(family, k, s)), y, NOISE)
        for s in range(30)
    ]
    assert min(gaps) > 0


@pytest.mark.parametrize("jitter", [0.0, 0.1])
def test_closed_form_optima_attain_their_collapsed_bounds(jitter):
    k, y = regression(jitter=jitter)
    a, S = col.optimal_decoupled(k, y, NOISE)

    def value(family, *parameters):
        return col.gaussian_elbo(family(k, *parameters), y, NOISE)

    bare = k._replace(K_g=k.K_g[:0, :0], K_gb=k.K_gb[:0], K_xg=k.K_xg[:, :0])
    _, m_beta, _ = col.optimal_orthogonal(bare, y, NOISE)
    assert_allclose(value(ref.coupled, m_beta, S), col.sgpr_bound(k, y, NOISE), rtol=1e-12)
    assert_allclose(
        value(ref.decoupled_coupled, a, S), col.collapsed_decoupled(k, y, NOISE), rtol=1e-12
    )
    B = col.optimal_inverse(k, NOISE)
    assert_allclose(ref.inverse_to_covariance(k.K_b, B), S, rtol=1e-11, atol=1e-12)
    assert_allclose(
        value(ref.decoupled_inverse, a, B), col.collapsed_decoupled(k, y, NOISE), rtol=1e-11
    )
    bound = col.collapsed_orthogonal(k, y, NOISE)
    assert_allclose(value(ref.hybrid, *col.optimal_hybrid(k, y, NOISE)), bound, rtol=1e-12)
    assert_allclose(value(ref.orthogonal, *col.optimal_orthogonal(k, y, NOISE)), bound, rtol=1e-12)
    bound = col.collapsed_solve(k, y, NOISE)
    assert_allclose(value(ref.solve, *col.optimal_solve(k, y, NOISE)), bound, rtol=1e-12)


def test_two_forms_of_the_orthogonal_optimum_agree():
    k, y = regression(jitter=0.1)
    a_g, m, S = col.optimal_orthogonal(k, y, NOISE)
    same(col.optimal_orthogonal_residual(k, y, NOISE), (a_g, np.linalg.solve(k.chol, m)), 1e-11)
    assert_allclose(
        k.chol @ col.optimal_whitened_covariance(k, NOISE) @ k.chol.T, S, rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("family", [ref.orthogonal, ref.solve])
def test_collapsed_bounds_are_what_an_optimizer_finds(family):
    k, y = regression(N=6, M_b=2, M_g=2)

    def negative_elbo(x):
        m, other, root = x[:2], x[2:4], np.array([[np.exp(x[4]), 0.0], [x[5], np.exp(x[6])]])
        if family is ref.orthogonal:
            return -col.gaussian_elbo(family(k, other, m, root @ root.T), y, NOISE)
        root_v = np.array([[np.exp(x[7]), 0.0], [x[8], np.exp(x[9])]])
        return -col.gaussian_elbo(family(k, m, root @ root.T, other, root_v @ root_v.T), y, NOISE)

    result = minimize(
        negative_elbo, np.zeros(10), method="BFGS", options={"gtol": 1e-7, "maxiter": 500}
    )
    bound = col.collapsed_orthogonal if family is ref.orthogonal else col.collapsed_solve
    assert_allclose(-result.fun, bound(k, y, NOISE), rtol=1e-9)


def test_alpha_equal_to_beta_is_sgpr_and_beta_equal_to_x_is_exact():
    k, y = regression()
    at_beta = k._replace(K_g=k.K_b, K_xg=k.K_xb, K_gb=k.K_b)
    assert_allclose(
        col.collapsed_decoupled(at_beta, y, NOISE), col.sgpr_bound(k, y, NOISE), rtol=1e-12
    )
    evidence = col.log_evidence(k.K_x, y, NOISE)
    at_x = k._replace(K_b=k.K_x, K_xb=k.K_x, K_gb=k.K_xg.T)
    assert_allclose(col.sgpr_bound(at_x, y, NOISE), evidence, rtol=1e-12)
    assert_allclose(col.collapsed_orthogonal(at_x, y, NOISE), evidence, rtol=1e-12)
    q = ref.orthogonal(at_x, *col.optimal_orthogonal(at_x, y, NOISE))
    same(q[:2], col.exact_posterior(k.K_x, k.K_x, k.K_x, y, NOISE), 1e-10)


def _gamma_at_x(k):
    return k._replace(K_g=k.K_x, K_gb=k.K_xb, K_xg=k.K_x)


def test_gamma_equal_to_x_has_the_exact_mean_and_cglbs_quadratic():
    k, y = regression(jitter=0.1)
    k = _gamma_at_x(k)
    a_g, m, S = col.optimal_orthogonal(k, y, NOISE)
    assert_allclose(a_g, np.linalg.solve(k.K_x + NOISE * np.eye(len(y)), y), rtol=1e-11, atol=1e-12)
    assert_allclose(m, k.K_xb.T @ a_g, rtol=1e-11, atol=1e-12)
    exact, cov = col.exact_posterior(k.K_x, k.K_x, k.K_x, y, NOISE)
    q = ref.orthogonal(k, a_g, m, S)
    assert_allclose(q.mean, exact, rtol=1e-11, atol=1e-12)
    assert np.trace(q.cov) > np.trace(cov) + 1e-3
    bound = col.collapsed_orthogonal(k, y, NOISE)
    assert_allclose(col.elbo_at_coefficients(k.K_x, k.Q_x, y, NOISE, a_g), bound, rtol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_cglb_quadratic_bounds_the_exact_one_for_any_vector(seed):
    k, y = regression(seed, jitter=0.1)
    k, v = _gamma_at_x(k), np.random.default_rng(seed).normal(size=len(y))
    quadratic = col.cglb_quadratic(k.K_x, k.Q_x, y, NOISE, v)
    assert_allclose(col.orthogonal_quadratic(k, y, NOISE, v), quadratic, rtol=1e-12)
    assert quadratic > y @ np.linalg.solve(k.K_x + NOISE * np.eye(len(y)), y)
    m = k.chol @ col.whitened_mean_given_gamma(k, y, NOISE, v)
    q = ref.orthogonal(k, v, m, col.optimal_covariance(k, NOISE))
    assert_allclose(
        col.gaussian_elbo(q, y, NOISE),
        col.elbo_at_coefficients(k.K_x, k.Q_x, y, NOISE, v),
        rtol=1e-12,
    )


def test_overlapping_gamma_and_beta_give_finite_bounds():
    rng = np.random.default_rng(5)
    X, y = 2.0 * rng.normal(size=(8, 2)), rng.normal(size=8)
    k = gr.build_grams(gr.matern32, X, X[:3], X)
    exact = y @ np.linalg.solve(k.K_x + NOISE * np.eye(8), y)
    sgpr = col.sgpr_bound(k, y, NOISE)
    fit = y @ np.linalg.solve(k.Q_x + NOISE * np.eye(8), y)
    assert_allclose(col.collapsed_orthogonal(k, y, NOISE), sgpr + 0.5 * (fit - exact), rtol=1e-10)
