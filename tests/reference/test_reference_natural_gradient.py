"""Natural parameters and optimizer steps of the reference, against differences and Fisher
matrices.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from . import collapsed as col
from . import decoupled as ref
from . import grams as gr
from . import likelihoods as lik
from . import natural_gradient as ng
from .cases import (
    LIKELIHOODS,
    NOISE,
    gradient,
    labels,
    make_grams,
    regression,
    same,
    spd,
    symmetric_gradient,
)


def _setting(seed=0, N=7, M_b=3, M_g=4, jitter=0.1):
    k, rng = make_grams(seed, N, M_b, M_g, jitter), np.random.default_rng(seed + 9)
    return k, 0.5 * rng.normal(size=M_g), rng.normal(size=M_b), spd(rng, M_b, 0.5)


def _targets(k, a_g, m, S, y, name):
    q = ref.orthogonal(k, a_g, m, S)
    return lik.expectation(LIKELIHOODS[name], y, q.mean, np.diag(q.cov))


def test_expectation_parameters_are_the_gradient_of_the_log_normaliser():
    k, a_g, m, S = _setting()
    j_gamma, j_beta, Theta = ng.natural_parameters(a_g, m, S)
    m_gamma, m_beta, Lambda = ng.expectation_parameters(k, a_g, m, S)
    assert_allclose(
        m_gamma, gradient(lambda x: ng.log_normaliser(k, x, j_beta, Theta), j_gamma), rtol=1e-7
    )
    assert_allclose(
        m_beta, gradient(lambda x: ng.log_normaliser(k, j_gamma, x, Theta), j_beta), rtol=1e-7
    )
    slope = symmetric_gradient(lambda x: ng.log_normaliser(k, j_gamma, j_beta, x), Theta)
    assert_allclose(Lambda, slope, rtol=1e-6, atol=1e-7)


def _feature_space(k):
    """Features of beta and gamma in R^(M_b + M_g + 2), and the projector on the span of beta."""
    prior = gr.mean_union(k).K_g
    features = np.vstack([np.linalg.cholesky(prior).T, np.zeros((2, len(prior)))])
    M_g = len(k.K_g)
    Psi_g, Psi_b = features[:, :M_g], features[:, M_g:]
    return Psi_b, Psi_g, Psi_b @ np.linalg.inv(k.K_b) @ Psi_b.T


def test_natural_parameters_in_an_explicit_feature_space():
    k, a_g, m, S = _setting()
    Psi_b, Psi_g, Pi = _feature_space(k)
    eye, K_inv = np.eye(len(Pi)), np.linalg.inv(k.K_b)
    mu = (eye - Pi) @ Psi_g @ a_g + Psi_b @ K_inv @ m  # (D12)
    Sigma = eye - Pi + Psi_b @ K_inv @ S @ K_inv @ Psi_b.T  # (D12)
    j_gamma, j_beta, Theta = ng.natural_parameters(a_g, m, S)
    Sigma_inv = np.linalg.inv(Sigma)
    assert_allclose(
        (eye - Pi) @ Psi_g @ j_gamma + Psi_b @ j_beta, Sigma_inv @ mu, atol=1e-11
    )  # (D35)
    assert_allclose(
        0.5 * (eye - Pi) + Psi_b @ Theta @ Psi_b.T, 0.5 * Sigma_inv, atol=1e-11
    )  # (D35)
    m_gamma, m_beta, _ = ng.expectation_parameters(k, a_g, m, S)
    assert_allclose(Psi_g.T @ (eye - Pi) @ mu, m_gamma, atol=1e-11)
    assert_allclose(Psi_b.T @ mu, m_beta, atol=1e-11)
    a_b = ref.orthogonal_to_hybrid(k, a_g, m)
    j_gamma, j_beta, Theta_h = ng.hybrid_natural_parameters(k, a_g, a_b, S)
    assert_allclose(Psi_g @ j_gamma + Psi_b @ j_beta, Sigma_inv @ mu, atol=1e-11)
    m_gamma, m_beta, Lambda = ng.hybrid_expectation_parameters(k, a_g, a_b, S)
    assert_allclose(Psi_g.T @ mu, m_gamma, atol=1e-11)
    assert_allclose(m_beta, m, atol=1e-11)
    same((Theta_h, Lambda), (Theta, -(S + np.outer(m, m))))


def test_fisher_matrix_of_the_coefficients_is_block_diagonal_with_the_prior_metric():
    k, a_g, m, S = _setting(jitter=0.0)
    rng = np.random.default_rng(4)
    d_g, d_m = rng.normal(size=len(a_g)), rng.normal(size=len(m))
    q = ref.joint_posterior(ref.orthogonal, k, a_g, m, S)
    moved = ref.joint_posterior(ref.orthogonal, k, a_g + d_g, m + d_m, S)
    metric = 0.5 * (d_g @ k.C_g @ d_g + d_m @ np.linalg.solve(S, d_m))
    assert_allclose(ref.brute_force_kl(*moved, *q), metric, rtol=1e-9)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_gradients_of_the_elbo_by_finite_differences(name):
    (k, a_g, m, S), scale = _setting(), 2.5
    y = labels(name, len(k.K_x))
    _, g, h = _targets(k, a_g, m, S, y, name)

    def value(a_g, m, S):
        return lik.elbo(ref.orthogonal(k, a_g, m, S), y, LIKELIHOODS[name], scale)

    grad_m, grad_S = ng.coupled_gradient(k, m, S, g, h, scale)
    assert_allclose(grad_m, gradient(lambda x: value(a_g, x, S), m), rtol=1e-6, atol=1e-7)
    assert_allclose(grad_S, symmetric_gradient(lambda x: value(a_g, m, x), S), rtol=1e-6, atol=1e-6)
    slope = gradient(lambda x: value(x, m, S), a_g)
    assert_allclose(ng.gamma_gradient(k, a_g, g, scale), slope, rtol=1e-6, atol=1e-7)


def test_elbo_adds_the_mean_function_and_agrees_with_the_closed_form():
    k, a_g, m, S = _setting()
    y, q = labels("gaussian", len(k.K_x)), ref.orthogonal(k, a_g, m, S)
    shift = np.linspace(0.0, 1.0, len(y))
    plain = col.gaussian_elbo(q, y, NOISE, 2.0)
    assert_allclose(lik.elbo(q, y, LIKELIHOODS["gaussian"], 2.0), plain, rtol=1e-12)
    assert_allclose(lik.elbo(q, y + shift, LIKELIHOODS["gaussian"], 2.0, shift), plain, rtol=1e-12)
    assert abs(lik.elbo(q, y, LIKELIHOODS["gaussian"], 2.0, shift) - plain) > 1e-2


@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.parametrize("rho", [0.1, 0.7, 1.0])
def test_three_forms_of_the_coupled_step_agree(name, rho):
    k, a_g, m, S = _setting()
    _, g, h = _targets(k, a_g, m, S, labels(name, len(k.K_x)), name)
    stepped = ng.natural_gradient_step(k, m, S, g, h, rho, 2.5)
    same(ng.natural_gradient_step_dual(k, m, S, g, h, rho, 2.5), stepped, 1e-11)
    sites = ng.whitened_site_step(k, *ng.moments_to_whitened_sites(k, m, S), g, h, rho, 2.5)
    m_white, S_white = ng.whitened_sites_to_moments(*sites)
    same((k.chol @ m_white, k.chol @ S_white @ k.chol.T), stepped, 1e-11)


def test_coupled_step_starts_along_the_inverse_fisher_direction():
    k, a_g, m, S = _setting()
    _, g, h = _targets(k, a_g, m, S, labels("bernoulli", len(k.K_x)), "bernoulli")
    grad_m, grad_S = ng.coupled_gradient(k, m, S, g, h)
    up, down = (ng.natural_gradient_step(k, m, S, g, h, rho) for rho in (1e-5, -1e-5))
    assert_allclose((up[0] - down[0]) / 2e-5, S @ grad_m, rtol=1e-6, atol=1e-8)
    # Fisher of S in N(m, S) is half of S^-1 (x) S^-1.
    assert_allclose((up[1] - down[1]) / 2e-5, 2 * S @ grad_S @ S, rtol=1e-6, atol=1e-8)


def test_using_the_total_mean_in_the_target_is_another_step():
    k, a_g, m, S = _setting()
    _, g, h = _targets(k, a_g, m, S, labels("bernoulli", len(k.K_x)), "bernoulli")
    right, _ = ng.natural_gradient_step(k, m, S, g, h, 0.5)
    wrong, _ = ng.natural_gradient_step(k, m, S, g - 2 * h * (k.C_xg @ a_g), h, 0.5)
    assert np.abs(right - wrong).max() > 1e-3


def test_gaussian_step_of_size_one_is_the_optimum_for_these_coefficients():
    k, y = regression(jitter=0.1)
    _, a_g, m, S = _setting()
    _, g, h = _targets(k, a_g, m, S, y, "gaussian")
    m_new, S_new = ng.natural_gradient_step(k, m, S, g, h, 1.0)
    assert_allclose(
        m_new, k.chol @ col.whitened_mean_given_gamma(k, y, NOISE, a_g), rtol=1e-10, atol=1e-11
    )
    assert_allclose(S_new, col.optimal_covariance(k, NOISE), rtol=1e-10, atol=1e-11)


def test_gaussian_newton_step_is_the_optimum_from_anywhere():
    k, y = regression(jitter=0.1)
    _, a_g, m, S = _setting()
    _, g, h = _targets(k, a_g, m, S, y, "gaussian")
    stepped = ng.newton_step(k, a_g, np.linalg.solve(k.chol, m), g, h)
    same(stepped, col.optimal_orthogonal_residual(k, y, NOISE), 1e-10)


def test_newton_hessian_by_finite_differences():
    (k, a_g, m, S), scale = _setting(), 2.5
    y, M_g = labels("bernoulli", len(k.K_x)), len(a_g)

    def gradient(x):
        m = k.chol @ x[M_g:]
        _, g, _ = _targets(k, x[:M_g], m, S, y, "bernoulli")
        return np.concatenate(
            [ng.gamma_gradient(k, x[:M_g], g, scale), scale * k.features @ g - x[M_g:]]
        )

    x = np.concatenate([a_g, np.linalg.solve(k.chol, m)])
    h = _targets(k, a_g, m, S, y, "bernoulli").h
    columns = [(gradient(x + e) - gradient(x - e)) / 2e-5 for e in 1e-5 * np.eye(len(x))]
    assert_allclose(ng.newton_hessian(k, h, scale), -np.array(columns).T, rtol=1e-6, atol=1e-8)


def test_gamma_steps():
    k, a_g, m, S = _setting()
    _, g, _ = _targets(k, a_g, m, S, labels("bernoulli", len(k.K_x)), "bernoulli")
    closed = (1 - 0.2) * a_g + 0.2 * 2.5 * np.linalg.solve(k.C_g, k.C_xg.T @ g)
    assert_allclose(ng.gamma_step_exact(k, a_g, g, 0.2, 2.5), closed, rtol=1e-11)
    # A metric of epsilon alone is the gradient itself.
    gradient = ng.gamma_gradient(k, a_g, g, 2.5)
    for step in (ng.gamma_step_exact, ng.gamma_step_diagonal):
        assert_allclose(
            (step(k, a_g, g, 1.0, 2.5, 1e9) - a_g) * 1e9, gradient, rtol=1e-6, atol=1e-5
        )
    diagonal = k._replace(K_g=k.K_g - k.C_g + np.diag(np.diag(k.C_g)))
    assert_allclose(np.diag(diagonal.C_g), np.diag(k.C_g), rtol=1e-12)
    expected = a_g + 0.2 * np.linalg.solve(diagonal.C_g + 0.1 * np.eye(len(a_g)), gradient)
    assert_allclose(ng.gamma_step_diagonal(k, a_g, g, 0.2, 2.5, 0.1), expected, rtol=1e-11)


def test_exact_gamma_step_is_a_plain_step_in_whitened_coordinates():
    k, a_g, m, S = _setting()
    _, g, _ = _targets(k, a_g, m, S, labels("bernoulli", len(k.K_x)), "bernoulli")
    T = np.linalg.inv(np.linalg.cholesky(k.C_g)).T  # (D23)
    whitened = np.linalg.solve(T, a_g) + 0.3 * T.T @ ng.gamma_gradient(k, a_g, g)
    assert_allclose(T @ whitened, ng.gamma_step_exact(k, a_g, g, 0.3), rtol=1e-10)


@pytest.mark.parametrize(("factor", "converges"), [(0.98, True), (1.03, False)])
def test_gamma_step_limit_is_sharp(factor, converges):
    k, y = regression(jitter=0.1)
    h = np.full(len(y), -0.5 / NOISE)
    limit, from_trace = ng.gamma_step_limit(k, h)
    assert 0 < from_trace < limit
    # At the limit itself the largest eigenvalue of the iteration matrix has modulus one.
    columns = [ng.gamma_step_exact(k, e, -k.C_xg @ e / NOISE, limit) for e in np.eye(len(k.K_g))]
    assert_allclose(np.abs(np.linalg.eigvals(np.array(columns).T)).max(), 1.0, rtol=1e-10)
    # y has a part along every eigenvector, so the unstable one is excited.
    a_g = np.zeros(len(k.K_g))
    target = np.linalg.solve(k.C_g + k.C_xg.T @ k.C_xg / NOISE, k.C_xg.T @ y / NOISE)
    for _ in range(600):
        g = (y - k.C_xg @ a_g) / NOISE
        a_g = ng.gamma_step_exact(k, a_g, g, factor * limit)
    assert (np.abs(a_g - target).max() < 1e-4) == converges
    assert converges or np.abs(a_g).max() > 1e3


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_optimum_is_stationary_and_a_maximum(name):
    k, rng = make_grams(jitter=0.1, N=8), np.random.default_rng(6)

    def moved(x):
        return x + 0.1 * rng.normal(size=x.shape)

    y = labels(name, len(k.K_x))
    a_g, m, S = ng.optimum(k, y, LIKELIHOODS[name])
    _, g, h = _targets(k, a_g, m, S, y, name)
    for part in ng.stationarity(k, a_g, m, S, g, h):
        assert_allclose(part, 0.0, atol=1e-10)
    best = lik.elbo(ref.orthogonal(k, a_g, m, S), y, LIKELIHOODS[name])
    for _ in range(20):
        nearby = ref.orthogonal(k, moved(a_g), moved(m), S + 0.1 * spd(rng, len(m)))
        assert lik.elbo(nearby, y, LIKELIHOODS[name]) < best
    if name == "gaussian":
        assert_allclose(best, col.collapsed_orthogonal(k, y, NOISE), rtol=1e-11)


@pytest.mark.exhaustive
def test_optimum_knows_the_mean_function():
    k = make_grams(jitter=0.1)
    y, shift = labels("gaussian", len(k.K_x)), np.linspace(0.0, 1.0, len(k.K_x))
    shifted = ng.optimum(k, y + shift, LIKELIHOODS["gaussian"], prior_mean=shift)
    same(shifted, ng.optimum(k, y, LIKELIHOODS["gaussian"]), 1e-10)


def test_optimum_with_gamma_at_x_has_the_gradient_as_coefficients():
    k = make_grams(jitter=0.1, N=6)
    k = k._replace(K_g=k.K_x, K_gb=k.K_xb, K_xg=k.K_x)
    y = labels("bernoulli", 6)
    a_g, m, S = ng.optimum(k, y, LIKELIHOODS["bernoulli"])
    assert_allclose(a_g, _targets(k, a_g, m, S, y, "bernoulli").g, atol=1e-10)
    assert_allclose(m, k.K_xb.T @ a_g, atol=1e-10)


def test_alternating_steps_of_size_one_reach_the_solve_optimum():
    k, y = regression(jitter=0.1)
    perp = gr.residual(k)
    q, q_v = (np.ones(len(k.K_b)), k.K_b), (np.ones(len(k.K_g)), k.C_g)
    h = np.full(len(y), -0.5 / NOISE)
    covariances = None
    for _ in range(400):
        q = ng.natural_gradient_step(k, *q, (y - ref.solve(k, *q, *q_v).mean) / NOISE, h, 1.0)
        q_v = ng.natural_gradient_step(
            perp, *q_v, (y - ref.solve(k, *q, *q_v).mean) / NOISE, h, 1.0
        )
        covariances = covariances or (q[1], q_v[1])
    m, S, m_v, S_v = col.optimal_solve(k, y, NOISE)
    same(covariances, (S, S_v), 1e-11)
    same((q[0], q_v[0]), (m, m_v), 1e-9)
