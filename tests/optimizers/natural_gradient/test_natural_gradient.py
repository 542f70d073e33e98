"""The closed-form natural gradient against GPflow's optimizer and against the numpy version."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from gpflow.quadrature import NDiagGHQuadrature
from numpy.testing import assert_allclose

from gpflow_decoupled.bases import CoupledBasis, DecoupledBasis, HybridBasis, OrthogonalBasis
from gpflow_decoupled.likelihoods import CategoricalLogit
from gpflow_decoupled.models import BasisGP
from gpflow_decoupled.optimizers import NaturalGradient
from tests.bounds.registry import kernel_of, matern
from tests.optimizers.problems import (
    BETA,
    GAMMA,
    JITTER,
    NOISE,
    NUM_DATA,
    SCALE,
    TREND,
    X,
    decoupled_model,
    grams_of,
    moments,
    observations,
    randomize,
)
from tests.reference import collapsed as col
from tests.reference import decoupled as ref
from tests.reference import likelihoods as lik
from tests.reference import natural_gradient as ng

LIKELIHOODS = {  # name: (likelihood, latents)
    "gaussian": (lambda: gl.Gaussian(NOISE), 1),
    "gaussian-2": (lambda: gl.Gaussian(NOISE), 2),
    # with as many nodes as GPflow needs for our digits
    "bernoulli": (lambda: gl.Bernoulli(quadrature=NDiagGHQuadrature(1, 100)), 1),
    "poisson": (gl.Poisson, 1),
    "multiclass": (lambda: gl.MultiClass(3), 3),
    "softmax": (lambda: CategoricalLogit(3), 3),
    "heteroskedastic": (gl.HeteroskedasticTFPConditional, 2),
}


def _both_steps(model: Any, data: tuple, q_mu: Any, q_sqrt: Any, rho: float) -> tuple[list, list]:
    """(q_mu, q_sqrt) after a step of GPflow's optimizer and after one of ours, from the same
    start.
    """
    start = [q_mu.numpy(), q_sqrt.numpy()]
    gpflow.optimizers.NaturalGradient(gamma=rho).minimize(
        lambda: model.training_loss(data), [(q_mu, q_sqrt)]
    )
    theirs = [q_mu.numpy(), q_sqrt.numpy()]
    q_mu.assign(start[0])
    q_sqrt.assign(start[1])
    report = NaturalGradient(rho).minimize(model, data)
    assert report.ok and report.shortened == 0 and report.clipped == 0
    ours = [q_mu.numpy(), q_sqrt.numpy()]
    assert np.abs(ours[0] - start[0]).max() > 1e-3
    return theirs, ours


def _assert_same(theirs: list, ours: list) -> None:
    for left, right in zip(theirs, ours):
        assert_allclose(right, left, rtol=1e-8, atol=1e-8)


@pytest.mark.exhaustive
@pytest.mark.parametrize("whiten", [True, False])
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_step_is_gpflows_on_svgp(name, whiten):
    likelihood, latents = LIKELIHOODS[name][0](), LIKELIHOODS[name][1]
    data = (X, observations(likelihood, latents))
    mean_function = None if name.startswith("multi") else TREND
    model = gpflow.models.SVGP(
        matern(1.3, 0.8), likelihood, BETA, mean_function=mean_function, num_latent_gps=latents,
        whiten=whiten, num_data=NUM_DATA,
    )  # fmt: skip
    randomize(model.q_mu, model.q_sqrt)
    _assert_same(*_both_steps(model, data, model.q_mu, model.q_sqrt, 0.3))


@pytest.mark.exhaustive
@pytest.mark.parametrize("whiten", [True, False])
@pytest.mark.parametrize("kind", ["separate", "coregionalisation"])
def test_step_is_gpflows_with_many_outputs(kind, whiten, rng):
    """Linear coregionalisation mixes 2 latents into 3 outputs: (D51)."""
    if kind == "separate":
        kernel, outputs = kernel_of("separate")[0], 2
    else:
        parts = [matern(1.3, 0.8), matern(0.6, 1.4)]
        kernel, outputs = (
            gpflow.kernels.LinearCoregionalization(parts, W=rng.normal(size=(3, 2))),
            3,
        )
    points = gpflow.inducing_variables.SharedIndependentInducingVariables(
        gpflow.inducing_variables.InducingPoints(BETA)
    )
    model = gpflow.models.SVGP(
        kernel, gl.Poisson(), points, num_latent_gps=2, whiten=whiten, num_data=NUM_DATA
    )
    randomize(model.q_mu, model.q_sqrt)
    data = (X, observations(model.likelihood, outputs))
    _assert_same(*_both_steps(model, data, model.q_mu, model.q_sqrt, 0.3))
    basis = CoupledBasis(points, 2, whiten=whiten, q_mu=model.q_mu, q_sqrt=model.q_sqrt)
    twin = BasisGP(kernel, model.likelihood, basis, num_data=NUM_DATA)
    _assert_same(*_both_steps(twin, data, model.q_mu, model.q_sqrt, 0.3))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["gaussian-2", "bernoulli", "poisson"])
@pytest.mark.parametrize("basis", [OrthogonalBasis, HybridBasis])
@pytest.mark.parametrize("whiten", [True, False])
def test_step_is_gpflows_beside_mean_points(basis, name, whiten):
    """Coefficients and a mean function belong to the total mean, not to the part that (D46)
    projects.
    """
    likelihood, latents = LIKELIHOODS[name][0](), LIKELIHOODS[name][1]
    model = decoupled_model(likelihood, basis=basis, latents=latents, whiten=whiten)
    data = (X, observations(likelihood, latents))
    _assert_same(*_both_steps(model, data, model.basis.q_mu, model.basis.q_sqrt, 0.4))


@pytest.mark.exhaustive
@pytest.mark.parametrize("whiten", [True, False])
def test_many_steps_of_one_optimizer_are_gpflows(whiten):
    """Also where the kernel, or q itself, was changed between steps by something else."""
    model = decoupled_model(gl.Poisson(), latents=2, whiten=whiten)
    basis, Y = model.basis, observations(model.likelihood, 2)
    twin = decoupled_model(gl.Poisson(), latents=2, whiten=whiten)
    optimizer, data = NaturalGradient(0.3), (tf.constant(X), tf.constant(Y))
    theirs = gpflow.optimizers.NaturalGradient(0.3)
    step = tf.function(lambda: optimizer.minimize(model, data).ok, autograph=False)
    pair = [(twin.basis.q_mu, twin.basis.q_sqrt)]
    other = tf.function(
        lambda: theirs.minimize(lambda: twin.training_loss(data), pair), autograph=False
    )
    for number in range(8):
        for m in (model, twin):
            if number == 3:
                m.kernel.variance.assign(2.0)
            if number == 5:
                m.basis.q_sqrt.assign(0.5 * m.basis.q_sqrt)
        assert step()
        other()
        _assert_same(
            [twin.basis.q_mu.numpy(), twin.basis.q_sqrt.numpy()],
            [basis.q_mu.numpy(), basis.q_sqrt.numpy()],
        )


@pytest.mark.exhaustive
def test_one_optimizer_serves_two_models():
    optimizer, models = (
        NaturalGradient(0.3),
        [decoupled_model(gl.Poisson(), latents=n) for n in (1, 2)],
    )
    twins = [decoupled_model(gl.Poisson(), latents=n) for n in (1, 2)]
    for _ in range(2):
        for model, twin in zip(models, twins):
            data = (X, observations(model.likelihood, model.num_latent_gps))
            optimizer.minimize(model, data)
            NaturalGradient(0.3).minimize(twin, data)
            assert_allclose(model.basis.q_sqrt, twin.basis.q_sqrt, rtol=1e-10, atol=1e-11)
            assert_allclose(model.basis.q_mu, twin.basis.q_mu, rtol=1e-10, atol=1e-11)


@pytest.mark.exhaustive
def test_step_of_a_covariance_alone_is_gpflows_covariance():
    """The decoupled basis has a natural gradient for S only: that of a coupled model with the same
    moments.
    """
    likelihood, Y = gl.Gaussian(NOISE), observations(gl.Gaussian(NOISE), 2)
    model = BasisGP(
        matern(1.3, 0.8), likelihood, DecoupledBasis(GAMMA, BETA, 2, covariance="coupled")
    )
    model.num_data = NUM_DATA
    twin = gpflow.models.SVGP(model.kernel, likelihood, BETA, num_latent_gps=2, num_data=NUM_DATA)
    randomize(twin.q_mu, twin.q_sqrt)
    model.basis.q_sqrt.assign(twin.q_sqrt)
    coefficients = np.random.default_rng(0).normal(size=model.basis.a.shape)
    model.basis.a.assign(coefficients)
    NaturalGradient(0.4).minimize(model, (X, Y))
    gpflow.optimizers.NaturalGradient(0.4).minimize(
        lambda: twin.training_loss((X, Y)), [(twin.q_mu, twin.q_sqrt)]
    )
    assert_allclose(model.basis.q_sqrt, twin.q_sqrt, rtol=1e-9, atol=1e-10)
    assert_allclose(model.basis.a, coefficients)


REFERENCES = {"gaussian": lik.gaussian(NOISE), "poisson": lik.poisson()}


def _reference_targets(model: Any, k: Any, Y: np.ndarray, name: str) -> tuple:
    a, m, S = moments(model, k)
    q = ref.orthogonal(k, a, m, S)
    trend = TREND(X).numpy()[:, 0]
    _, g, h = lik.expectation(REFERENCES[name], Y[:, 0], q.mean + trend, np.diag(q.cov))
    return a, m, S, g, h


@pytest.mark.exhaustive
@pytest.mark.parametrize("rho", [0.1, 1.0])
@pytest.mark.parametrize("name", REFERENCES)
def test_step_is_the_reference(name, rho):
    """(D44), unwhitened, with jitter and a minibatch."""
    gpflow.config.set_default_jitter(JITTER)
    model = decoupled_model(LIKELIHOODS[name][0]())
    Y, k = observations(model.likelihood), grams_of(model)
    _, m, S, g, h = _reference_targets(model, k, Y, name)
    NaturalGradient(rho).minimize(model, (X, Y))
    a, new_m, new_S = moments(model, k)
    expected_m, expected_S = ng.natural_gradient_step(k, m, S, g, h, rho, SCALE)
    assert_allclose(new_m, expected_m, rtol=1e-9, atol=1e-10)
    assert_allclose(new_S, expected_S, rtol=1e-9, atol=1e-10)


def test_gaussian_step_of_size_one_is_the_optimum_for_these_coefficients():
    gpflow.config.set_default_jitter(JITTER)
    model = decoupled_model(gl.Gaussian(NOISE), num_data=len(X))
    Y, k = observations(model.likelihood), grams_of(model)
    NaturalGradient().minimize(model, (X, Y))
    a, m, S = moments(model, k)
    y = (Y - TREND(X).numpy())[:, 0]
    assert_allclose(m, k.chol @ col.whitened_mean_given_gamma(k, y, NOISE, a), rtol=1e-9)
    assert_allclose(S, col.optimal_covariance(k, NOISE), rtol=1e-9)


@pytest.mark.exhaustive
def test_step_size_may_be_a_variable_or_a_function():
    model = decoupled_model(gl.Poisson())
    data = (tf.constant(X), tf.constant(observations(model.likelihood)))
    start = [model.basis.q_mu.numpy(), model.basis.q_sqrt.numpy()]
    size = tf.Variable(0.1, dtype=tf.float64)
    results = {}
    for kind, gamma in (("variable", size), ("function", lambda: size), ("number", 0.3)):
        optimizer = NaturalGradient(gamma)
        step = tf.function(
            lambda optimizer=optimizer: optimizer.minimize(model, data).ok, autograph=False
        )
        for value in (0.1, 0.3):
            size.assign(value)
            model.basis.q_mu.assign(start[0])
            model.basis.q_sqrt.assign(start[1])
            assert step()
            results[kind, value] = model.basis.q_mu.numpy()
    assert_allclose(results["variable", 0.3], results["number", 0.3], rtol=1e-12)
    assert_allclose(results["function", 0.3], results["number", 0.3], rtol=1e-12)
    assert_allclose(results["function", 0.1], results["variable", 0.1], rtol=1e-12)
    assert np.abs(results["variable", 0.1] - results["variable", 0.3]).max() > 1e-3


def test_models_without_a_full_covariance_are_refused():
    diagonal = gpflow.models.SVGP(matern(1.0, 1.0), gl.Gaussian(), BETA, q_diag=True)
    with pytest.raises(TypeError, match="q_diag=False"):
        NaturalGradient().minimize(diagonal, (X, observations(gl.Gaussian())))
    with pytest.raises(
        TypeError,
        match="NaturalGradient.minimize takes a model of the class BasisGP or SVGP, and got VGP",
    ):
        NaturalGradient().minimize(
            gpflow.models.VGP((X, X[:, :1]), matern(1.0, 1.0), gl.Gaussian()), (X, X)
        )
