"""Two bounds of the evidence at any coefficients: against the reference and GPflow's CGLB, their
gradients, their ascent.
"""

from __future__ import annotations

import time
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from gpflow.kernels import SeparateIndependent
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from gpflow_decoupled.models import ODVGP
from gpflow_decoupled.optimizers import ConjugateGradients
from gpflow_decoupled.optimizers.data_mean.evidence import BOUNDS, evidence_bound
from gpflow_decoupled.optimizers.data_mean.hyperparameters import (
    bound_at_sites,
    climb,
    evidence_at,
    hyperparameters_of,
)
from tests.bounds.registry import matern
from tests.optimizers.data_mean.problems import (
    BETA,
    NOISE,
    TARGET,
    N,
    X,
    Y,
    exact_mean,
    grams_of,
    labels,
    model_of,
    outliers,
)
from tests.reference import data_mean as dm
from tests.training.problems import slope

PARTS = {
    "one": (lambda: matern(1.3, 0.8), 1),
    "two latents": (lambda: matern(1.3, 0.8), 2),
    "separate": (lambda: SeparateIndependent([matern(1.3, 0.8), matern(0.6, 1.4)]), 2),
}


def _bound(model: ODVGP, a: np.ndarray, bound: str = "evidence", **options: Any) -> tf.Tensor:
    y = Y[:, : a.shape[1]] - model.mean_function(X)
    mean, weights = (
        model.basis.data_mean,
        tf.fill([N, 1], 1.0 / tf.convert_to_tensor(model.likelihood.variance)),
    )
    return evidence_bound(
        model.kernel, model.basis.beta, mean, y, weights, tf.constant(a), bound=bound, **options
    )


@pytest.mark.parametrize("name", PARTS)
def test_bounds_are_those_of_the_reference_and_below_the_evidence_at_any_coefficients(
    name: str,
) -> None:
    make, latents = PARTS[name]
    kernel = make()
    model = model_of(kernel=kernel, latents=latents)
    model.basis.data_mean.set_data(X)
    best = np.stack([exact_mean(kernel, latent) for latent in range(latents)], axis=1)
    evidence = sum(
        dm.log_evidence(grams_of(kernel, one).K_x, TARGET[:, one], NOISE) for one in range(latents)
    )
    noise = np.random.default_rng(2).normal(size=best.shape)
    for a in (best, 0.0 * best, best + 0.01 * noise, noise):
        expected = dict.fromkeys(BOUNDS, 0.0)
        for one in range(latents):
            k = grams_of(kernel, one)
            for bound, function in (("evidence", dm.evidence_bound), ("elbo", dm.bound)):
                expected[bound] += function(k.K_x, k.Q_x, TARGET[:, one], NOISE, a[:, one])
        found = {bound: float(_bound(model, a, bound)) for bound in BOUNDS}
        assert_allclose(list(found.values()), list(expected.values()), rtol=1e-10)
        assert found["elbo"] < found["evidence"] < evidence


@pytest.mark.parametrize("name", PARTS)
def test_every_observation_may_have_its_own_noise(name: str, rng: np.random.Generator) -> None:
    make, latents = PARTS[name]
    kernel, weights, y = (
        make(),
        rng.uniform(0.5, 20.0, size=(N, latents)),
        rng.normal(size=(N, latents)),
    )
    model = model_of(kernel=kernel, latents=latents)
    mean = model.basis.data_mean
    mean.set_data(X)
    for a in (np.zeros((N, latents)), 0.1 * rng.normal(size=(N, latents))):
        found = evidence_bound(
            kernel, model.basis.beta, mean, *map(tf.constant, (y, weights, a)), bound="elbo"
        )
        expected = evidence = 0.0
        for one in range(latents):
            k = grams_of(kernel, one)
            expected += dm.site_bound(k.K_x, k.Q_x, weights[:, one], y[:, one], a[:, one])
            evidence += stats.multivariate_normal.logpdf(
                y[:, one], cov=k.K_x + np.diag(1.0 / weights[:, one])
            )
        assert_allclose(found, expected, rtol=1e-10)
        assert found < evidence


def test_the_evidence_bound_is_that_of_gpflow_at_its_own_vector() -> None:
    kernel = matern(1.3, 0.8)
    theirs = gpflow.models.CGLB(
        (X, TARGET[:, :1]), kernel, inducing_variable=BETA, noise_variance=NOISE
    )
    expected = theirs.maximum_log_likelihood_objective()
    model = model_of(kernel=kernel)
    model.basis.data_mean.set_data(X)
    assert_allclose(_bound(model, theirs.aux_vec.numpy().T), expected, rtol=1e-9)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("name", ["one", "separate"])
def test_gradients_are_finite_differences(name: str, bound: str, rng: np.random.Generator) -> None:
    make, latents = PARTS[name]
    model = model_of(kernel=make(), latents=latents)
    gpflow.set_trainable(model.basis.q_mu, False)
    gpflow.set_trainable(model.basis.q_sqrt, False)
    model.basis.data_mean.set_data(X)
    a = rng.normal(size=(N, latents))
    with tf.GradientTape() as tape:
        value = _bound(model, a, bound)
    gradient = tape.gradient(value, model.trainable_variables)
    direction = [rng.normal(size=variable.shape) for variable in model.trainable_variables]
    assert len(direction) >= 5
    expected = slope(model, lambda: float(_bound(model, a, bound)), direction)
    assert_allclose(sum(np.sum(g * d) for g, d in zip(gradient, direction)), expected, rtol=1e-5)


@pytest.mark.exhaustive
def test_the_ascent_moves_hyperparameters_and_nothing_of_q() -> None:
    model = model_of()
    mean = model.basis.data_mean
    mean.set_data(X)
    mean.coefficients.assign(exact_mean(model.kernel)[:, None])
    gpflow.set_trainable(model, True)  # also what must not move
    gpflow.set_trainable(model.likelihood, False)
    gpflow.set_trainable(model.mean_function, False)
    fixed = [
        model.basis.q_mu,
        model.basis.q_sqrt,
        mean.coefficients,
        model.likelihood.variance,
        mean.points.Z,
    ]
    before, moving = (
        [one.numpy() for one in fixed],
        [model.kernel.lengthscales.numpy(), model.basis.beta.Z.numpy()],
    )
    data = tf.constant(X), tf.constant(Y[:, :1])
    a = mean.coefficients.numpy()
    start = float(_bound(model, a))
    run = climb(
        model, hyperparameters_of(model, mean), evidence_at(model, mean, data), evaluations=5
    )
    assert_allclose([run.start, run.value], [start, float(_bound(model, a))], rtol=1e-10)
    assert run.value > run.start + 1.0
    for one, value in zip(fixed, before):
        assert_array_equal(one, value)
    assert np.abs(model.kernel.lengthscales.numpy() - moving[0]) > 1e-3
    assert np.abs(model.basis.beta.Z.numpy() - moving[1]).max() > 1e-3
    objective = evidence_at(model, mean, data)
    late = climb(
        model,
        hyperparameters_of(model, mean),
        objective,
        evaluations=50,
        deadline=time.perf_counter() - 1.0,
    )
    assert late.evaluations < 10 and late.value >= late.start


LIKELIHOODS = {
    "Bernoulli": (gl.Bernoulli, labels),
    "Student-t": (lambda: gl.StudentT(0.4), outliers),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_the_ascent_at_sites_has_the_gradient_of_the_best_bound(name: str) -> None:
    """The bound is that of the best q(f) at given hyperparameters, which is found anew for each
    finite difference.
    """
    make, observe = LIKELIHOODS[name]
    model, data = model_of(make()), (X, observe())
    gpflow.set_trainable(model.basis.beta, False)
    solver = ConjugateGradients(tolerance=1e-9, float32=False)
    solver.run(model, data)
    objective = bound_at_sites(model, model.basis.data_mean, tuple(map(tf.constant, data)))
    variables = hyperparameters_of(model, model.basis.data_mean)
    with tf.GradientTape() as tape:
        value = objective()
    gradient = tape.gradient(value, variables)
    start = [variable.numpy() for variable in variables]
    for index, one in enumerate(gradient):
        found = []
        for step in (1e-3, -1e-3):
            variables[index].assign(start[index] + step * np.sign(one))
            found.append(solver.run(model, data).elbo)
        variables[index].assign(start[index])
        assert_allclose((found[0] - found[1]) / 2e-3, np.sum(np.abs(one)), rtol=1e-3)


def test_the_ascent_at_sites_raises_the_best_bound() -> None:
    model, data = model_of(gl.Bernoulli()), (X, labels())
    solver = ConjugateGradients(tolerance=1e-6, float32=False)
    elbo = solver.run(model, data).elbo
    mean = model.basis.data_mean
    run = climb(
        model,
        hyperparameters_of(model, mean),
        bound_at_sites(model, mean, tuple(map(tf.constant, data))),
        evaluations=4,
    )
    gain = solver.run(model, data).elbo - elbo
    assert run.value - run.start > 0.1 and gain > 0.5 * (run.value - run.start)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("at", ["noise", "sites"])
def test_single_precision_is_left_where_its_rounding_exceeds_the_noise(
    at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A W A^T in float32 may then have eigenvalues below -1, and the bound is no number."""
    monkeypatch.setattr("gpflow_decoupled.covariances.products._SMALL", 0)
    objective_of, found = {"noise": evidence_at, "sites": bound_at_sites}[at], list[float]()
    for noise in (0.1, 2e-6):
        model = model_of(gl.Gaussian(noise))
        data = tf.constant(X), tf.constant(Y[:, :1])
        model.basis.data_mean.set_data(X)
        low, full = (
            float(objective_of(model, model.basis.data_mean, data, dtype)())
            for dtype in (tf.float32, None)
        )
        assert np.isfinite(full)
        found.append(abs(low - full))
    assert found[0] > 0.0 == found[1], "single precision, and full precision to the last bit"
