"""Steps of the mean coefficients against the numpy versions of (D41), (D42) and (D49)."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose

from gpflow_decoupled.bases import DecoupledBasis, HybridBasis
from gpflow_decoupled.errors import UnknownOptionError
from gpflow_decoupled.models import BasisGP
from gpflow_decoupled.optimizers import NaturalGradient
from tests.bounds.registry import CASES, kernel_of, matern
from tests.optimizers.problems import (
    BETA,
    GAMMA,
    JITTER,
    NOISE,
    SCALE,
    TREND,
    X,
    decoupled_model,
    grams_of,
    moments,
    observations,
)
from tests.reference import collapsed as col
from tests.reference import decoupled as ref
from tests.reference import likelihoods as lik
from tests.reference import natural_gradient as ng

LIKELIHOODS = {
    "gaussian": (lambda: gl.Gaussian(NOISE), lik.gaussian(NOISE)),
    "poisson": (gl.Poisson, lik.poisson()),
}


@pytest.fixture(autouse=True)
def _visible_jitter(_fresh_state: None) -> None:
    gpflow.config.set_default_jitter(JITTER)


def _targets(
    k: Any, Y: np.ndarray, likelihood: Any, a: np.ndarray, m: np.ndarray, S: np.ndarray
) -> Any:
    q = ref.orthogonal(k, a, m, S)
    return lik.expectation(likelihood, Y[:, 0], q.mean + TREND(X).numpy()[:, 0], np.diag(q.cov))


def _metric(k: Any, scaling: str) -> np.ndarray:
    if scaling == "none":
        return np.eye(len(k.K_g))
    metric = k.C_g if scaling == "whitened" else np.diag(np.diag(k.C_g))
    return metric + JITTER * np.eye(len(k.K_g))


def _reference_step(k: Any, scaling: str, a: np.ndarray, g: np.ndarray, eta: float) -> np.ndarray:
    if scaling == "none":
        return a + eta * ng.gamma_gradient(k, a, g, SCALE)
    step = ng.gamma_step_exact if scaling == "whitened" else ng.gamma_step_diagonal
    return step(k, a, g, eta, SCALE, JITTER)


@pytest.mark.exhaustive
@pytest.mark.parametrize("scaling", ["none", "diagonal", "whitened"])
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_small_step_is_not_shortened(name, scaling):
    """(D41) or (D42) for the coefficients, then (D44) for q(u) at the moments that result."""
    make, reference = LIKELIHOODS[name]
    model = decoupled_model(make(), mean_scaling=scaling)
    Y, k = observations(model.likelihood), grams_of(model)
    a, m, S = moments(model, k)
    g, h = _targets(k, Y, reference, a, m, S)[1:]
    report = NaturalGradient(0.3, mean="natural", mean_step=1e-3).minimize(model, (X, Y))
    assert report.shortened == 0
    new_a = _reference_step(k, scaling, a, g, 1e-3)
    g, h = _targets(k, Y, reference, new_a, m, S)[1:]
    expected = (new_a, *ng.natural_gradient_step(k, m, S, g, h, 0.3, SCALE))
    for left, right in zip(moments(model, k), expected):
        assert_allclose(left, right, rtol=1e-9, atol=1e-9)


@pytest.mark.exhaustive
@pytest.mark.parametrize("scaling", ["none", "diagonal", "whitened"])
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_large_step_is_shortened_to_the_best_of_the_quadratic_model_and_counted(name, scaling):
    make, reference = LIKELIHOODS[name]
    model = decoupled_model(make(), mean_scaling=scaling)
    Y, k = observations(model.likelihood), grams_of(model)
    a, m, S = moments(model, k)
    g, h = _targets(k, Y, reference, a, m, S)[1:]
    gradient = ng.gamma_gradient(k, a, g, SCALE)
    direction = np.linalg.solve(_metric(k, scaling), gradient)
    hessian = ng.newton_hessian(k, h, SCALE)[: len(a), : len(a)]
    best = gradient @ direction / (direction @ hessian @ direction)
    before = model.elbo((X, Y))
    report = NaturalGradient(1e-9, mean="natural", mean_step=1e3).minimize(model, (X, Y))
    assert report.shortened == 1
    assert_allclose(moments(model, k)[0], a + best * direction, rtol=1e-6, atol=1e-7)
    assert model.elbo((X, Y)) > before
    assert best < 1e3


@pytest.mark.exhaustive
def test_natural_steps_reach_the_optimum():
    model = decoupled_model(gl.Gaussian(NOISE), num_data=len(X))
    Y, k = observations(model.likelihood), grams_of(model)
    optimizer, data = NaturalGradient(mean="natural"), (tf.constant(X), tf.constant(Y))
    step = tf.function(lambda: optimizer.minimize(model, data).ok, autograph=False)
    assert all(step() for _ in range(100))
    best = col.collapsed_orthogonal(k, (Y - TREND(X).numpy())[:, 0], NOISE)
    assert best - 1e-4 < float(model.elbo((X, Y))) < best + 1e-9


@pytest.mark.exhaustive
@pytest.mark.parametrize("scaling", ["none", "whitened"])
def test_gaussian_step_of_size_one_is_optimal_for_the_new_coefficients(scaling):
    """Whatever the coefficients do in the same step, q(u) follows them: another step of size one
    stays.
    """
    model = decoupled_model(gl.Gaussian(NOISE), mean_scaling=scaling)
    data = (X, observations(model.likelihood))
    NaturalGradient(mean="natural", mean_step=0.01).minimize(model, data)
    after = [model.basis.q_mu.numpy(), model.basis.q_sqrt.numpy()]
    NaturalGradient().minimize(model, data)
    assert_allclose(model.basis.q_mu, after[0], rtol=1e-8, atol=1e-9)
    assert_allclose(model.basis.q_sqrt, after[1], rtol=1e-8, atol=1e-9)


@pytest.mark.exhaustive
@pytest.mark.parametrize("scaling", ["none", "diagonal", "whitened"])
def test_newton_step_is_the_optimum_from_anywhere(scaling):
    """One step, for Gaussian noise; the first solve is the reference's."""
    model = decoupled_model(gl.Gaussian(NOISE), mean_scaling=scaling, num_data=len(X))
    Y, k = observations(model.likelihood), grams_of(model)
    optimizer = NaturalGradient(mean="newton", cg_iterations=200, cg_tolerance=1e-13)
    report = optimizer.minimize(model, (X, Y))
    assert report.shortened == 0
    y = (Y - TREND(X).numpy())[:, 0]
    a, m_white = col.optimal_orthogonal_residual(k, y, NOISE)
    new_a, new_m, new_S = moments(model, k)
    assert_allclose(new_a, a, rtol=1e-8, atol=1e-9)
    assert_allclose(new_m, k.chol @ m_white, rtol=1e-8, atol=1e-9)
    assert_allclose(new_S, col.optimal_covariance(k, NOISE), rtol=1e-9)
    assert_allclose(model.elbo((X, Y)), col.collapsed_orthogonal(k, y, NOISE), rtol=1e-9)


@pytest.mark.exhaustive
def test_newton_step_of_a_minibatch_is_the_reference():
    model = decoupled_model(gl.Poisson())
    Y, k = observations(model.likelihood), grams_of(model)
    a, m, S = moments(model, k)
    g, h = _targets(k, Y, lik.poisson(), a, m, S)[1:]
    NaturalGradient(0.3, mean="newton", mean_step=0.5, cg_tolerance=1e-13).minimize(model, (X, Y))
    expected_a, m_white = ng.newton_step(k, a, np.linalg.solve(k.chol, m), g, h, SCALE, damping=0.5)
    _, expected_S = ng.natural_gradient_step(k, m, S, g, h, 0.3, SCALE)
    new_a, new_m, new_S = moments(model, k)
    assert_allclose(new_a, expected_a, rtol=1e-8, atol=1e-9)
    assert_allclose(new_m, k.chol @ m_white, rtol=1e-8, atol=1e-9)
    assert_allclose(new_S, expected_S, rtol=1e-9)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["two", "separate"])
def test_newton_step_of_two_latents_is_one_each(kind):
    """With separate kernels the steps are those of two models."""
    kernel, latents = kernel_of(kind)
    optimizer = NaturalGradient(mean="newton", cg_iterations=200, cg_tolerance=1e-13)
    Y = observations(gl.Gaussian(NOISE), 2)
    basis = CASES["orthogonal-whitened"].build(kernel, latents, GAMMA, BETA)
    model = BasisGP(kernel, gl.Gaussian(NOISE), basis, num_data=len(X))
    optimizer.minimize(model, (X, Y))
    raw = basis.mean_coefficients(basis.factor(kernel))
    parts = kernel.kernels if kind == "separate" else [kernel, kernel]
    for latent, part in enumerate(parts):
        single = decoupled_model(
            gl.Gaussian(NOISE), kernel=part, mean_function=None, num_data=len(X)
        )
        optimizer.minimize(single, (X, Y[:, latent : latent + 1]))
        state = single.basis.factor(part)
        assert_allclose(
            single.basis.mean_coefficients(state)[:, 0], raw[:, latent], rtol=1e-7, atol=1e-8
        )
        assert_allclose(single.basis.q_mu[:, 0], basis.q_mu[:, latent], rtol=1e-7, atol=1e-8)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_optimum_of_any_likelihood_is_stationary(name):
    """(D34): found by the package, checked by the reference."""
    make, reference = LIKELIHOODS[name]
    model = decoupled_model(make(), num_data=len(X))
    Y, k = observations(model.likelihood), grams_of(model)
    model.basis.q_mu.assign(0.1 * model.basis.q_mu)
    model.basis.a_gamma.assign(0.1 * model.basis.a_gamma)
    optimizer = NaturalGradient(0.8, mean="newton", mean_step=0.8, cg_tolerance=1e-12)
    data = (tf.constant(X), tf.constant(Y))
    step = tf.function(lambda: optimizer.minimize(model, data).ok, autograph=False)
    assert all(step() for _ in range(40))
    a, m, S = moments(model, k)
    g, h = _targets(k, Y, reference, a, m, S)[1:]
    for residual in ng.stationarity(k, a, m, S, g, h):
        assert_allclose(residual, 0.0, atol=1e-7)
    trend = TREND(X).numpy()[:, 0]
    best = ref.orthogonal(k, *ng.optimum(k, Y[:, 0], reference, prior_mean=trend))
    assert_allclose(
        model.elbo((X, Y)), lik.elbo(best, Y[:, 0], reference, prior_mean=trend), rtol=1e-9
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "basis, solvers, message",
    [
        (
            lambda: HybridBasis(GAMMA, BETA),
            ("natural", "newton"),
            'A HybridBasis .*Use mean_solver="adam"',
        ),
        (
            lambda: DecoupledBasis(GAMMA, BETA, covariance="coupled"),
            ("newton",),
            'this basis takes "natural"',
        ),
    ],
)
def test_a_basis_without_such_steps_refuses_them(basis, solvers, message):
    for solver in solvers:
        model = BasisGP(matern(1.3, 0.8), gl.Gaussian(NOISE), basis(), num_data=len(X))
        before = [value.numpy() for value in model.variables]
        with pytest.raises(UnknownOptionError, match=message):
            NaturalGradient(mean=solver).minimize(model, (X, observations(model.likelihood)))
        for left, right in zip(model.variables, before):
            np.testing.assert_array_equal(left, right)
