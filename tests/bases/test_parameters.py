"""Natural and expectation parameters of bases with mean points, and the two covariances of the
decoupled basis.
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
    InducingBasis,
    MeanOnDataBasis,
    OrthogonalBasis,
)
from gpflow_decoupled.bases.parameters import (
    ExpectationParameters,
    MomentParameters,
    NaturalParameters,
    assign_moments,
    legendre_pair,
    moment_parameters,
    with_covariance,
)
from gpflow_decoupled.errors import DataError, ModelError, NumericalError, UnknownOptionError
from gpflow_decoupled.inducing.variables import as_inducing
from gpflow_decoupled.models import BasisGP
from gpflow_decoupled.optimizers import NaturalGradient, optimal_parameters
from tests.bounds.registry import kernel_of, matern, numpy_kernel, randomize
from tests.reference import decoupled as dec
from tests.reference import grams as gr
from tests.reference import natural_gradient as ng

POINTS = 2.0 * np.random.default_rng(3).uniform(-1, 1, size=(16, 2))
BETA, GAMMA, X = POINTS[:4], POINTS[4:9], POINTS[9:]
JITTER = 1e-6
BASES = {"orthogonal": OrthogonalBasis, "hybrid": HybridBasis}
bases = pytest.mark.parametrize("name", BASES)


def _basis(name: str, kernel: Any, latents: int = 1, **options: Any) -> InducingBasis:
    basis = BASES[name](*_points(kernel), latents, **options)
    basis.refresh(kernel)
    randomize(basis, np.random.default_rng(0))
    return basis


def _points(kernel: Any) -> tuple[Any, Any]:
    """gamma and beta, as inducing variables of this kernel."""
    return as_inducing(GAMMA, "gamma", kernel), as_inducing(BETA, "beta", kernel)


def _arrays(parameters: tuple) -> list[np.ndarray]:
    return [np.asarray(part) for part in parameters]


def _same(left: tuple, right: tuple, tolerance: float = 1e-8) -> None:
    for one, other in zip(_arrays(left), _arrays(right), strict=True):
        assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def _process(basis: InducingBasis, kernel: Any) -> list[np.ndarray]:
    state = basis.factor(kernel)
    return _arrays((*basis.mean_and_cov(state, kernel, X, full_cov=True), basis.prior_kl(state)))


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["two", "separate"])
@pytest.mark.parametrize("whiten", [True, False])
@bases
def test_parameters_are_those_of_the_paper_and_come_back(
    name: str, whiten: bool, kind: str
) -> None:
    """(D36) to (D39) against the reference, every round trip, and the Parameters of a fresh
    basis.
    """
    kernel, latents = kernel_of(kind)
    basis = _basis(name, kernel, latents, whiten=whiten)
    pair, moments = legendre_pair(basis, kernel), moment_parameters(basis, kernel)
    natural, means = pair.natural(moments), pair.expectation(moments)
    for latent in range(latents):
        k = gr.build_grams(numpy_kernel(kernel, latent), X, BETA, GAMMA, JITTER)
        a, m, S = (
            np.asarray(moments.a)[:, latent],
            np.asarray(moments.mean)[:, latent],
            np.asarray(moments.covariance)[latent],
        )
        if name == "hybrid":
            a_b = dec.orthogonal_to_hybrid(k, a, m)
            expected = (
                *ng.hybrid_natural_parameters(k, a, a_b, S),
                *ng.hybrid_expectation_parameters(k, a, a_b, S),
            )
        else:
            expected = (*ng.natural_parameters(a, m, S), *ng.expectation_parameters(k, a, m, S))
        found = [np.asarray(part) for part in (*natural, *means)]
        flat = [part[latent] if part.ndim == 3 else part[:, latent] for part in found]
        flat[3] = flat[3] - JITTER * a  # of C_g, which is factorised
        _same(tuple(flat), expected, 1e-7)
    _same(pair.moments_of_natural(natural), moments)
    _same(pair.moments_of_expectation(means), moments)
    fresh = BASES[name](*_points(kernel), latents, whiten=not whiten, mean_scaling="diagonal")
    fresh.refresh(kernel)
    assign_moments(fresh, kernel, pair.moments_of_natural(natural))
    _same(tuple(_process(fresh, kernel)), tuple(_process(basis, kernel)))


@pytest.mark.exhaustive
def test_either_basis_takes_the_moments_of_the_other() -> None:
    kernel = matern(1.3, 0.8)
    orthogonal, hybrid = _basis("orthogonal", kernel), _basis("hybrid", kernel)
    assign_moments(hybrid, kernel, moment_parameters(orthogonal, kernel))
    _same(tuple(_process(hybrid, kernel)), tuple(_process(orthogonal, kernel)))


@bases
def test_the_two_are_a_legendre_pair(name: str) -> None:
    """The gradient of (D60) in the natural parameters is the expectation parameters."""
    kernel = matern(1.3, 0.8)
    basis = _basis(name, kernel)
    pair, moments = legendre_pair(basis, kernel), moment_parameters(basis, kernel)
    natural = pair.natural(moments)
    with tf.GradientTape() as tape:
        tape.watch(natural)
        value = pair.log_partition(natural)
    slope = tape.gradient(value, natural)
    symmetric = 0.5 * (slope[2] + tf.linalg.matrix_transpose(slope[2]))
    _same((slope[0], slope[1], symmetric), pair.expectation(moments))


def _bound(moments: MomentParameters, k: gr.Grams, likelihood: Any, Y: np.ndarray) -> tf.Tensor:
    """The bound of q(f) from dense matrices, with the divergence (D14)."""
    a, m, S = moments.a[:, 0], moments.mean[:, 0], moments.covariance[0]
    inverse, P = tf.constant(np.linalg.inv(k.K_b)), tf.constant(k.projection)
    mean = tf.linalg.matvec(P, m, transpose_a=True) + tf.linalg.matvec(tf.constant(k.C_xg), a)
    variance = np.diag(k.C_x) + tf.reduce_sum(P * (S @ P), axis=0)
    expected = likelihood.variational_expectations(
        tf.constant(X), mean[:, None], variance[:, None], tf.constant(Y)
    )
    norm = tf.tensordot(a, tf.linalg.matvec(tf.constant(k.C_g), a), 1) + tf.tensordot(
        m, tf.linalg.matvec(inverse, m), 1
    )
    kl = (
        norm
        + tf.linalg.trace(inverse @ S)
        - tf.linalg.logdet(S)
        + np.linalg.slogdet(k.K_b)[1]
        - len(k.K_b)
    )
    return tf.reduce_sum(expected) - 0.5 * kl


@bases
def test_a_step_through_them_is_the_step_in_closed_form(name: str) -> None:
    """By automatic differentiation in the expectation parameters: q(f(beta)) as (D46) moves it, and
    a as (D41) does.

    The coordinates of the hybrid basis tie a and m together, and the step is the same.
    """
    kernel, rho = matern(1.3, 0.8), 0.3
    nodes = gpflow.quadrature.NDiagGHQuadrature(1, 100)  # of GPflow's expectations
    likelihood = gpflow.likelihoods.Bernoulli(invlink=tf.sigmoid, quadrature=nodes)
    Y = (X[:, :1] > 0.0).astype(float)
    basis = _basis(name, kernel)
    k = gr.build_grams(numpy_kernel(kernel, 0), X, BETA, GAMMA, JITTER)
    pair, moments = legendre_pair(basis, kernel), moment_parameters(basis, kernel)
    means = pair.expectation(moments)
    with tf.GradientTape() as tape:
        tape.watch(means)
        value = _bound(pair.moments_of_expectation(means), k, likelihood, Y)
    model = BasisGP(kernel, likelihood, basis, num_data=len(X))
    assert_allclose(value, model.elbo((X, Y)), rtol=1e-9)
    gradient = tape.gradient(value, means)
    slope = (*gradient[:2], 0.5 * (gradient[2] + tf.linalg.matrix_transpose(gradient[2])))
    natural = NaturalParameters(*(now + rho * g for now, g in zip(pair.natural(moments), slope)))
    moved = pair.moments_of_natural(natural)

    with tf.GradientTape() as tape:
        mean, variance = map(tf.identity, model.predict_f(X))
        tape.watch(mean)
        expected = tf.reduce_sum(
            likelihood.variational_expectations(tf.constant(X), mean, variance, tf.constant(Y))
        )
    g = tape.gradient(expected, mean).numpy()[:, 0]
    a = ng.gamma_step_exact(k, np.asarray(moments.a)[:, 0], g, rho, epsilon=JITTER)
    assert_allclose(moved.a[:, 0], a, rtol=1e-6, atol=1e-8)
    NaturalGradient(rho, mean=None).minimize(model, (X, Y))
    after = moment_parameters(basis, kernel)
    assert np.max(np.abs(after.mean - moments.mean)) > 1e-2
    _same(moved[1:], after[1:], 1e-7)


@pytest.mark.exhaustive
@pytest.mark.parametrize("whiten", [True, pytest.param(False, marks=pytest.mark.exhaustive)])
def test_the_covariances_of_the_decoupled_basis(whiten: bool) -> None:
    """From the inverse form to the coupled one and back: the same q(f), with B = S^-1 - K_b^-1,
    (D8).
    """
    kernel = matern(1.3, 0.8)
    basis = DecoupledBasis(GAMMA, BETA, 2, whiten=whiten, mean_scaling="diagonal")
    basis.refresh(kernel)
    randomize(basis, np.random.default_rng(0))
    coupled = with_covariance(basis, kernel, "coupled")
    _same(tuple(_process(coupled, kernel)), tuple(_process(basis, kernel)))
    K_b = gr.matern32(BETA, BETA, 1.3, 0.8) + JITTER * np.eye(4)
    for latent in range(2):
        root = np.asarray(coupled.q_sqrt)[latent]
        root = np.linalg.cholesky(K_b) @ root if whiten else root
        C = np.tril(np.asarray(basis.chol_B)[latent])
        assert_allclose(
            np.linalg.inv(root @ root.T) - np.linalg.inv(K_b), C @ C.T, rtol=1e-6, atol=1e-6
        )  # (D8)
    back = with_covariance(coupled, kernel, "inverse")
    _same(tuple(_process(back, kernel)), tuple(_process(basis, kernel)), 1e-7)
    same = with_covariance(basis, kernel, "inverse")
    _same(tuple(_process(same, kernel)), tuple(_process(basis, kernel)), 1e-7)


@pytest.mark.exhaustive
@pytest.mark.parametrize("data", [0, 200])
def test_a_covariance_that_equals_the_prior_in_some_directions_has_an_inverse_form(
    data: int,
) -> None:
    """S = K_b, and the best S of a smooth kernel on many points, which the data do not tell from
    K_b in most directions.
    """
    kernel, rng = gpflow.kernels.SquaredExponential(lengthscales=0.3), np.random.default_rng(0)
    inputs = rng.uniform(size=(200, 1))
    basis = DecoupledBasis(inputs[:30], np.linspace(0.0, 1.0, 30)[:, None], covariance="coupled")
    if data:
        model = BasisGP(kernel, gpflow.likelihoods.Gaussian(0.01), basis, num_data=data)
        optimal_parameters(model, (inputs, np.sin(6.0 * inputs))).assign(model)
    inverse = with_covariance(basis, kernel, "inverse")
    for one, other in zip(
        *(part.mean_and_cov(part.factor(kernel), kernel, inputs) for part in (inverse, basis))
    ):
        assert_allclose(one, other, rtol=1e-9, atol=1e-9)
    assert_allclose(
        *(part.prior_kl(part.factor(kernel)) for part in (inverse, basis)), rtol=1e-9, atol=1e-9
    )


def test_what_is_refused_changes_nothing() -> None:
    kernel = matern(1.3, 0.8)
    wide = DecoupledBasis(GAMMA, BETA, covariance="coupled")
    wide.q_sqrt.assign(2.0 * wide.q_sqrt)
    with pytest.raises(DataError, match="S is not below K_beta.* least eigenvalue .* is -0.75"):
        with_covariance(wide, kernel, "inverse")
    with pytest.raises(UnknownOptionError, match="covariance='full'"):
        with_covariance(wide, kernel, "full")
    coupled = CoupledBasis(BETA)
    with pytest.raises(ModelError, match="Only a DecoupledBasis has two forms .* got CoupledBasis"):
        with_covariance(coupled, kernel, "inverse")
    for basis in (coupled, wide, MeanOnDataBasis(BETA)):
        with pytest.raises(
            ModelError,
            match=f"known for OrthogonalBasis and HybridBasis, and got {type(basis).__name__}",
        ):
            legendre_pair(basis, kernel)
    hybrid = _basis("hybrid", kernel)
    before, moments = _process(hybrid, kernel), moment_parameters(hybrid, kernel)
    cases = [
        (
            moments._replace(a=moments.a[1:]),
            DataError,
            r"a has shape \(4, 1\); it must be \[5, 1\]",
        ),
        (
            moments._replace(mean=np.nan * moments.mean),
            DataError,
            "mean has entries that are not finite",
        ),
        (
            moments._replace(covariance=-moments.covariance),
            NumericalError,
            "the covariance S .* not positive definite",
        ),
    ]
    for bad, error, message in cases:
        with pytest.raises(error, match=message):
            assign_moments(hybrid, kernel, bad)
    _same(tuple(_process(hybrid, kernel)), tuple(before), 1e-15)
    pair = legendre_pair(hybrid, kernel)
    means = pair.expectation(moments)
    outside = ExpectationParameters(
        means.gamma, means.beta, tf.zeros_like(means.second)
    )  # S = -m m^T
    with pytest.raises(NumericalError, match="the covariance S"):
        assign_moments(hybrid, kernel, pair.moments_of_expectation(outside))
