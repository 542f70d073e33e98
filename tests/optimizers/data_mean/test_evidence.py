"""Bounds of the evidence at any coefficients: their values, their gradients, their ascent."""

from __future__ import annotations

import time
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose, assert_array_equal

from gpflow_decoupled.bases.optimum import DataMean
from gpflow_decoupled.covariances.neighbourhoods import Conditioning, ordered_neighbours
from gpflow_decoupled.models import ODVGP
from gpflow_decoupled.optimizers import ConjugateGradients
from gpflow_decoupled.optimizers.data_mean.evidence import (
    BOUNDS,
    bound_at_sites,
    evidence_at,
    evidence_bound,
    hyperparameters_of,
)
from gpflow_decoupled.optimizers.log_climb import LogObjective, climb_logarithms
from tests.optimizers.data_mean.problems import (
    NOISE,
    PARTS,
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
from tests.reference import evidence_bounds as eb
from tests.training.problems import slope


def _given(kernel: Any, inputs: np.ndarray, count: int = 5) -> Conditioning:
    """All rows, each with its nearest earlier ones."""
    kernels = getattr(kernel, "latent_kernels", [kernel])
    order = np.random.default_rng(3).permutation(len(inputs))
    near = [ordered_neighbours(one, tf.constant(inputs), order, count) for one in kernels]
    return Conditioning(tf.range(len(inputs)), tf.constant(np.stack(near)))


def _bound(model: ODVGP, a: np.ndarray, bound: str = "diagonal", **options: Any) -> tf.Tensor:
    y = Y[:, : a.shape[1]] - model.mean_function(X)
    mean, weights = (
        model.basis.data_mean,
        tf.fill([N, 1], 1.0 / tf.convert_to_tensor(model.likelihood.variance)),
    )
    return evidence_bound(
        model.kernel, model.basis.beta, mean, y, weights, tf.constant(a), bound=bound, **options
    )


@pytest.mark.costly(keep=3)
@pytest.mark.parametrize("per_row", [False, True], ids=["one noise", "noise of each row"])
@pytest.mark.parametrize("name", PARTS)
def test_bounds_are_those_of_the_reference_and_below_the_evidence(
    name: str, per_row: bool, rng: np.random.Generator
) -> None:
    make, latents = PARTS[name]
    kernel = make()
    model = model_of(kernel=kernel, latents=latents)
    mean = model.basis.data_mean
    mean.set_data(X)
    given = _given(kernel, X)
    weights = rng.uniform(0.5, 20.0, (N, latents)) if per_row else np.full((N, 1), 1.0 / NOISE)
    columns = [weights[:, one % weights.shape[1]] for one in range(latents)]
    dense = [grams_of(kernel, one) for one in range(latents)]
    best = np.stack(
        [dm.coefficients(k.K_x, w, y) for k, w, y in zip(dense, columns, TARGET.T)], axis=1
    )
    noise = rng.normal(size=best.shape)
    exact = sum(eb.evidence(k.K_x, 1.0 / w, y) for k, w, y in zip(dense, columns, TARGET.T))
    for a in (best, 0.0 * best, best + 0.01 * noise, noise):
        expected = dict.fromkeys([*BOUNDS, "mean"], 0.0)
        for one, (k, w) in enumerate(zip(dense, columns)):
            near = given.neighbours[one % given.neighbours.shape[0]].numpy()
            parts = eb.lower_bounds(
                k.K_x, k.Q_x, 1.0 / w, TARGET[:, one], a[:, one], [c[c >= 0] for c in near]
            )
            expected = {bound: value + parts[bound] for bound, value in expected.items()}
        found = {
            bound: float(
                evidence_bound(
                    kernel, model.basis.beta, mean, TARGET[:, :latents],
                    *map(tf.constant, (weights, a)), bound=bound, given=given,
                )
            )
            for bound in BOUNDS
        }  # fmt: skip
        assert_allclose([*found.values()], [expected[bound] for bound in BOUNDS], rtol=1e-9)
        assert found["elbo"] < expected["mean"] < found["diagonal"] < found["neighbours"] < exact


def _random_problem(seed: int, dtype: type) -> tuple[Any, dict[str, Any], np.ndarray]:
    """Kernel, arguments of the bound, and dense noise variances [N, L]; sites have weights and
    observations of their own.
    """
    rng = np.random.default_rng(seed)
    count, latents = 24, 1 + seed % 2
    make = (gpflow.kernels.Matern12, gpflow.kernels.Matern32, gpflow.kernels.Matern52)[seed % 3]
    kernel = make(10 ** rng.uniform(-0.5, 0.5), 10 ** rng.uniform(-0.5, 0.5, 2))
    inputs = rng.normal(size=(count, 2)).astype(dtype)
    inputs[: seed % 4] = inputs[-1]  # rows that repeat
    weights = 10 ** rng.uniform(0.0, 2.0) * np.ones((count, 1))
    if seed % 5:
        weights = weights * rng.uniform(0.2, 5.0, (count, latents))
    y = rng.normal(size=(count, latents))
    K = kernel(inputs).numpy().astype(float)
    D = np.broadcast_to(1.0 / weights, y.shape)
    a = np.stack([dm.coefficients(K, 1.0 / d, one) for d, one in zip(D.T, y.T)], axis=1)
    a += (seed % 3) * 1e-2 * rng.normal(size=a.shape)
    mean = DataMean(2, latents, shared=False)
    mean.set_data(inputs)
    arrays = {name: value.astype(dtype) for name, value in (("y", y), ("weights", weights))}
    beta = gpflow.inducing_variables.InducingPoints(rng.normal(size=(1 + seed % 4, 2)))
    arguments = {
        "kernel": kernel, "beta": beta, "mean": mean, "a": tf.constant(a.astype(dtype)),
        "given": _given(kernel, inputs, count=1 + seed % 7),
        **{name: tf.constant(value) for name, value in arrays.items()},
    }  # fmt: skip
    return kernel, arguments, D


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize(
    "first, last", [(0, 12), pytest.param(12, 250, marks=pytest.mark.exhaustive)]
)
def test_every_bound_is_below_the_evidence_of_random_problems(
    first: int, last: int, dtype: type
) -> None:
    gpflow.config.set_default_float(dtype)
    slack = 1e-6 if dtype is np.float64 else 2e-2
    for seed in range(first, last):
        kernel, arguments, D = _random_problem(seed, dtype)
        K = kernel(arguments["mean"].inputs).numpy().astype(float)
        y = arguments["y"].numpy().astype(float)
        exact = sum(eb.evidence(K, d, one) for d, one in zip(D.T, y.T))
        found = {bound: float(evidence_bound(bound=bound, **arguments)) for bound in BOUNDS}
        assert max(found.values()) <= exact + slack, seed
        assert found["elbo"] <= found["diagonal"] + slack, seed


def test_a_sample_of_rows_estimates_the_bound_without_bias() -> None:
    model = model_of()
    model.basis.data_mean.set_data(X)
    given, a = _given(model.kernel, X), exact_mean(model.kernel)[:, None]
    parts = [
        given._replace(rows=given.rows[i::4], neighbours=given.neighbours[:, i::4])
        for i in range(4)
    ]
    samples = [float(_bound(model, a, "neighbours", given=part)) for part in parts]
    assert np.ptp(samples) > 0.1
    assert_allclose(np.mean(samples), _bound(model, a, "neighbours", given=given), rtol=1e-10)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("name", ["one", "separate"])
def test_gradients_are_finite_differences(name: str, bound: str, rng: np.random.Generator) -> None:
    make, latents = PARTS[name]
    model = model_of(kernel=make(), latents=latents)
    gpflow.set_trainable(model.basis.q_mu, False)
    gpflow.set_trainable(model.basis.q_sqrt, False)
    model.basis.data_mean.set_data(X)
    a, given = rng.normal(size=(N, latents)), _given(model.kernel, X)
    with tf.GradientTape() as tape:
        value = _bound(model, a, bound, given=given)
    gradient = tape.gradient(value, model.trainable_variables)
    direction = [rng.normal(size=variable.shape) for variable in model.trainable_variables]
    assert len(direction) >= 5
    expected = slope(model, lambda: float(_bound(model, a, bound, given=given)), direction)
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
    objective = LogObjective.of_model(
        model, hyperparameters_of(model, mean), evidence_at(model, mean, data)
    )
    run = climb_logarithms(objective, objective.coordinates, len(X), evaluations=5)
    assert_allclose([run.start, run.value], [start, float(_bound(model, a))], rtol=1e-10)
    assert run.value > run.start + 1.0
    for one, value in zip(fixed, before):
        assert_array_equal(one, value)
    assert np.abs(model.kernel.lengthscales.numpy() - moving[0]) > 1e-3
    assert np.abs(model.basis.beta.Z.numpy() - moving[1]).max() > 1e-3
    late = climb_logarithms(
        objective, objective.coordinates, len(X), evaluations=50, deadline=time.perf_counter() - 1.0
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


@pytest.mark.exhaustive
def test_the_ascent_at_sites_raises_the_best_bound() -> None:
    model, data = model_of(gl.Bernoulli()), (X, labels())
    solver = ConjugateGradients(tolerance=1e-6, float32=False)
    elbo = solver.run(model, data).elbo
    mean = model.basis.data_mean
    density = bound_at_sites(model, mean, tuple(map(tf.constant, data)))
    objective = LogObjective.of_model(model, hyperparameters_of(model, mean), density)
    run = climb_logarithms(objective, objective.coordinates, len(X), evaluations=4)
    gain = solver.run(model, data).elbo - elbo
    assert run.value - run.start > 0.1 and gain > 0.5 * (run.value - run.start)


@pytest.mark.exhaustive
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
