"""The limits in which one basis is another, at random parameters (section 13 of the
derivations).
"""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from gpflow_decoupled.bases import (
    CoupledBasis,
    DecoupledBasis,
    HybridBasis,
    OrthogonalBasis,
    SolveBasis,
)
from gpflow_decoupled.errors import DataError
from gpflow_decoupled.models import BasisGP
from tests.bounds.registry import CASES, kernel_of, matern, numpy_kernel, randomize

POINTS = 2.0 * np.random.default_rng(3).uniform(-1, 1, size=(13, 2))
BETA, GAMMA, X = POINTS[:4], POINTS[4:9], POINTS[9:]
Y = np.random.default_rng(4).poisson(2.0, size=(4, 2)).astype(float)
L = 2


@pytest.fixture(autouse=True)
def _next_to_no_jitter(_fresh_state: None) -> None:
    gpflow.config.set_default_jitter(1e-15)


def _model(kernel: Any, basis: Any) -> BasisGP:
    return BasisGP(kernel, gpflow.likelihoods.Poisson(), basis, num_data=7)


def assert_same_process(kernel: Any, left: Any, right: Any, rtol: float = 1e-9) -> None:
    """Moments over X, divergence and bound."""
    states = [basis.factor(kernel) for basis in (left, right)]
    (mean, cov), (other_mean, other_cov) = (
        basis.mean_and_cov(state, kernel, POINTS, full_cov=True)
        for basis, state in zip((left, right), states)
    )
    assert_allclose(mean, other_mean, rtol=rtol, atol=rtol)
    assert_allclose(cov, other_cov, rtol=rtol, atol=rtol)
    assert_allclose(left.prior_kl(states[0]), right.prior_kl(states[1]), rtol=rtol)
    assert_allclose(
        _model(kernel, left).elbo((X, Y)), _model(kernel, right).elbo((X, Y)), rtol=rtol
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("whiten", [True, False])
@pytest.mark.parametrize("basis_type", [OrthogonalBasis, HybridBasis, CoupledBasis])
def test_without_coefficients_it_is_svgp(basis_type, whiten, rng):
    """Moments, divergence, bound and gradients; no points at all, M_gamma = 0, is refused and has
    no use.
    """
    kernel, points = matern(1.3, 0.8), (BETA,) if basis_type is CoupledBasis else (GAMMA, BETA)
    basis = basis_type(*points, L, whiten=whiten)
    basis.refresh(kernel)
    randomize(basis, rng)
    if basis_type is not CoupledBasis:
        basis.a_gamma.assign(tf.zeros_like(basis.a_gamma))
    model = _model(kernel, basis)
    svgp = gpflow.models.SVGP(
        kernel, model.likelihood, BETA, num_latent_gps=L, num_data=7, whiten=whiten,
        q_mu=basis.q_mu.numpy(), q_sqrt=basis.q_sqrt.numpy(),
    )  # fmt: skip
    assert_allclose(model.prior_kl(), svgp.prior_kl(), rtol=1e-10)
    for left, right in zip(model.predict_f(X, full_cov=True), svgp.predict_f(X, full_cov=True)):
        assert_allclose(left, right, rtol=1e-9, atol=1e-11)
    shared = [kernel.variance, kernel.lengthscales]
    gradients = []
    for m, own in ((model, [basis.q_mu, basis.q_sqrt, basis.beta.Z]),
                   (svgp, [svgp.q_mu, svgp.q_sqrt, svgp.inducing_variable.Z])):  # fmt: skip
        with tf.GradientTape() as tape:
            value = m.elbo((X, Y))
        variables = [p.unconstrained_variable for p in (*own, *shared)]
        gradients.append([value, *tape.gradient(value, variables)])
    for left, right in zip(*gradients):
        assert_allclose(left, right, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("basis_type", [OrthogonalBasis, HybridBasis, SolveBasis, DecoupledBasis])
def test_a_basis_without_mean_points_is_refused(basis_type):
    with pytest.raises(DataError, match="(gamma|alpha) is empty"):
        basis_type(np.zeros((0, 2)), BETA)


def test_mean_points_at_the_inducing_points_have_no_effect(rng):
    kernel = matern(1.3, 0.8)
    basis = OrthogonalBasis(BETA + 0.1, BETA, L, mean_scaling="none")
    basis.gamma.Z.assign(BETA)  # the constructor refuses it
    randomize(basis, rng)
    assert_same_process(kernel, basis, CoupledBasis(BETA, L, q_mu=basis.q_mu, q_sqrt=basis.q_sqrt))


def test_decoupled_with_equal_points_is_coupled(rng):
    kernel = matern(1.3, 0.8)
    coupled = CoupledBasis(BETA, L)
    randomize(coupled, rng)
    decoupled = DecoupledBasis(BETA, BETA, L, covariance="coupled", mean_scaling="none")
    chol = np.linalg.cholesky(numpy_kernel(kernel, 0)(BETA, BETA))
    decoupled.a.assign(np.linalg.solve(chol.T, coupled.q_mu))  # K_b^-1 m = L_b^-T m~
    decoupled.q_sqrt.assign(coupled.q_sqrt)
    assert_same_process(kernel, decoupled, coupled)


def test_inverse_covariance_is_the_coupled_one(rng):
    """S = (K_b^-1 + B)^-1: (D8)."""
    kernel = matern(1.3, 0.8)
    inverse = DecoupledBasis(GAMMA, BETA, L, mean_scaling="none")
    randomize(inverse, rng)
    coupled = DecoupledBasis(
        GAMMA, BETA, L, covariance="coupled", whiten=False, mean_scaling="none"
    )
    coupled.a.assign(inverse.a)
    K_b, C = numpy_kernel(kernel, 0)(BETA, BETA), inverse.chol_B.numpy()
    S = np.linalg.inv(np.linalg.inv(K_b) + C @ np.swapaxes(C, -1, -2))
    coupled.q_sqrt.assign(np.linalg.cholesky(S))
    assert_same_process(kernel, inverse, coupled)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["two", "separate"])
@pytest.mark.parametrize("scaling", ["none", "whitened"])
def test_hybrid_is_orthogonal_with_a_shifted_mean(scaling, kind, rng):
    """(D15) at any parameters, with any jitter."""
    gpflow.config.set_default_jitter(0.1)
    kernel, _ = kernel_of(kind)
    orthogonal = CASES[f"orthogonal-{scaling}"].build(kernel, L, GAMMA, BETA)
    hybrid = CASES[f"hybrid-{scaling}"].build(kernel, L, GAMMA, BETA)
    randomize(orthogonal, rng)
    raw = orthogonal.mean_coefficients(orthogonal.factor(kernel))
    hybrid.a_gamma.assign(hybrid.kernel_mean.scaling.scaled(raw))
    hybrid.q_sqrt.assign(orthogonal.q_sqrt)
    shift = []
    for latent in range(L):
        k = numpy_kernel(kernel, latent)
        chol = np.linalg.cholesky(k(BETA, BETA) + 0.1 * np.eye(len(BETA)))
        shift.append(np.linalg.solve(chol, k(BETA, GAMMA) @ raw.numpy()[:, latent]))
    hybrid.q_mu.assign(orthogonal.q_mu - np.stack(shift, axis=1))
    assert_same_process(kernel, hybrid, orthogonal)


@pytest.mark.exhaustive
@pytest.mark.parametrize("whiten", [True, False])
def test_solve_with_the_prior_covariance_is_orthogonal(whiten, rng):
    """S_v = C_g and m_v = C_g a."""
    kernel = matern(1.3, 0.8)
    orthogonal = OrthogonalBasis(GAMMA, BETA, L, mean_scaling="none", whiten=whiten)
    randomize(orthogonal, rng)
    k = numpy_kernel(kernel, 0)
    K_gb = k(GAMMA, BETA)
    C_g = k(GAMMA, GAMMA) - K_gb @ np.linalg.solve(k(BETA, BETA), K_gb.T)
    chol, m_v = np.linalg.cholesky(C_g), C_g @ orthogonal.a_gamma.numpy()
    solve = SolveBasis(
        GAMMA, BETA, L, whiten=whiten, q_mu=orthogonal.q_mu, q_sqrt=orthogonal.q_sqrt
    )
    solve.v_mu.assign(np.linalg.solve(chol, m_v) if whiten else m_v)
    solve.v_sqrt.assign(np.tile(np.eye(len(GAMMA)) if whiten else chol, (L, 1, 1)))
    assert_same_process(kernel, solve, orthogonal)


@pytest.mark.costly(keep=2)
@pytest.mark.parametrize("name", CASES)
def test_a_new_basis_is_the_prior(name):
    """The inverse parametrisation starts next to it, since the prior is a saddle point of its
    bound.
    """
    kernel, case = matern(1.3, 0.8), CASES[name]
    basis = case.build(kernel, L, GAMMA, BETA)
    if name.startswith("inverse"):
        assert 0 < basis.prior_kl(basis.factor(kernel)) < 0.1
        basis.chol_B.assign(tf.zeros_like(basis.chol_B))
    elif not case.options.get("whiten", True):
        chol = np.linalg.cholesky(numpy_kernel(kernel, 0)(BETA, BETA))
        basis.q_sqrt.assign(np.tile(chol, (L, 1, 1)))
        if name.startswith("solve"):
            k_gb = numpy_kernel(kernel, 0)(GAMMA, BETA)
            C_g = numpy_kernel(kernel, 0)(GAMMA, GAMMA) - k_gb @ np.linalg.solve(
                chol @ chol.T, k_gb.T
            )
            basis.v_sqrt.assign(np.tile(np.linalg.cholesky(C_g), (L, 1, 1)))
    state = basis.factor(kernel)
    mean, cov = basis.mean_and_cov(state, kernel, X, full_cov=True)
    assert_allclose(basis.prior_kl(state), 0.0, atol=1e-10)
    assert_allclose(mean, np.zeros((len(X), L)), atol=1e-12)
    assert_allclose(cov, np.tile(numpy_kernel(kernel, 0)(X, X), (L, 1, 1)), rtol=1e-9, atol=1e-11)
