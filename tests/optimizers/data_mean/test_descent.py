"""Stochastic dual descent: the recursion of the reference, the dense solve, a gap that contains the
distance, safeguards.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose, assert_array_equal

from gpflow_decoupled.compilation import Compiled
from gpflow_decoupled.models import ODVGP
from gpflow_decoupled.optimizers import ConjugateGradients, StochasticDualDescent
from gpflow_decoupled.optimizers.data_mean.solve_mean import DualDescent
from tests.bounds.registry import matern, numpy_kernel
from tests.interrupts import interrupt_call
from tests.optimizers.data_mean.problems import (
    BETA,
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
    system_of,
)
from tests.reference import data_mean as dm
from tests.reference import grams as gr

_RNG = np.random.default_rng(7)
MANY = _RNG.uniform(-2.0, 2.0, (300, 2))
OBSERVED = np.sin(2.0 * MANY[:, :1]) + np.sqrt(NOISE) * _RNG.normal(size=(300, 1))


def _descent(**options: Any) -> DualDescent:
    settings = {"tolerance": 1e-12, "epochs": 30, "correct_every": 30, "batch_size": 7, "seed": 3}
    return DualDescent(StochasticDualDescent(**{**settings, **options}))


# --- the recursion


@pytest.mark.exhaustive
@pytest.mark.parametrize("momentum, rounds", [(0.9, 1), (0.0, 2)])
@pytest.mark.parametrize("name", PARTS)
def test_the_coefficients_are_those_of_the_reference_on_the_same_rows(
    name: str, momentum: float, rounds: int
) -> None:
    """With precisions that differ by a factor of thirty; each round begins with a step of conjugate
    gradients.
    """
    make, latents = PARTS[name]
    kernel, rng = make(), np.random.default_rng(4)
    weights, target, a = (
        rng.uniform(0.3, 10.0, (N, latents)),
        TARGET[:, :latents],
        np.zeros((N, latents)),
    )
    system = system_of(weights, target, 15, kernel=kernel)
    solve = _descent(momentum=momentum, correct_every=30 // rounds)
    rates = solve.rate(system).numpy()
    found = solve(system, tf.constant(a), tf.constant(a), deadline=np.inf, report=lambda *_: None)
    assert solve.share == 1.0 and found.reason == "epochs done" and len(found.gaps) == rounds + 1
    rows, steps = np.random.default_rng(3), 30 // rounds * 9  # of 7 rows, 63 per epoch
    matrices = [
        grams_of(kernel, one).K_x + np.diag(1.0 / weights[:, one]) for one in range(latents)
    ]
    for _ in range(rounds):
        batches = np.stack([rows.integers(0, N, 7) for _ in range(steps)])
        r = np.stack([target[:, one] - K @ a[:, one] for one, K in enumerate(matrices)], axis=1)
        z = system.precondition(tf.constant(r)).numpy()
        for one, K in enumerate(matrices):
            w, z_one = weights[:, one], z[:, one]
            begun = a[:, one] + z_one * (r[:, one] @ z_one) / (z_one @ K @ z_one)
            parts = (
                K - np.diag(1.0 / w),
                w,
                target[:, one],
                begun,
                batches,
                rates[one],
                momentum,
                100.0 / steps,
            )
            a[:, one] = dm.descent(*parts)
            assert np.abs(a[:, one] - begun).max() > 0.01 * np.abs(begun).max()
    assert_allclose(found.a, a, rtol=0.0, atol=1e-10)


def test_the_step_size_is_that_of_its_formula() -> None:
    weights = np.random.default_rng(4).uniform(0.3, 10.0, (N, 1))
    system, k = system_of(weights, TARGET[:, :1], N, beta=X), grams_of(matern(1.3, 0.8))  # Q is K
    H = np.eye(N) + np.sqrt(weights * weights.T) * k.K_x
    expected = 0.5 / (np.linalg.eigvalsh(H)[-1] + N / 7 * np.diag(H).max() / (1.0 - 0.8))
    assert_allclose(_descent(step_size=0.5, momentum=0.8).rate(system), [expected], rtol=1e-4)


def test_a_step_is_compiled_once_for_all_systems_of_a_run() -> None:
    system, solve = system_of(np.ones((N, 1)), TARGET[:, :1], 15), _descent(epochs=1)
    nothing = tf.zeros((N, 1), tf.float64)
    for weight in (1.0, 2.0):
        at = replace(system, weights=tf.fill((N, 1), tf.constant(weight, tf.float64)))
        solve(at, nothing, nothing, deadline=np.inf, report=lambda *_: None)
    assert solve.compiled(system).traces == 1


# --- the end of a run


def _dense(a: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """What `dm.gap` and `dm.distance` take, for many rows."""
    k = gr.build_grams(
        numpy_kernel(matern(1.3, 0.8), 0), MANY, BETA, MANY, gpflow.config.default_jitter()
    )
    return k.K_x, k.Q_x, np.full(300, 1.0 / NOISE), OBSERVED[:, 0], a


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("epochs", [1, 5, 30])
def test_the_gap_contains_the_distance_wherever_a_run_ends(epochs: int) -> None:
    model = model_of(mean_function=None)
    result = StochasticDualDescent(tolerance=1e-9, epochs=epochs, batch_size=20).run(
        model, (MANY, OBSERVED)
    )
    assert (result.converged, result.reason, result.products) == (
        False,
        "epochs done",
        epochs + 2 * -(-epochs // 10),
    )
    K, Q, w, y, a = at = _dense(model.basis.a_gamma.numpy()[:, 0])
    assert 0.0 < dm.distance(*at) <= result.gap
    assert_allclose(
        [result.gap, result.gaps[-1], result.history["gap"][-1]], dm.gap(*at), rtol=1e-5
    )
    assert_allclose(result.elbo, dm.bound(K, Q, y, NOISE, a), rtol=1e-9)
    assert_allclose(result.elbo, float(model.elbo((MANY, OBSERVED))), rtol=1e-10)


@pytest.mark.exhaustive
@pytest.mark.parametrize("float32", [False, True])
def test_it_converges_to_the_dense_solve(float32: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By steps in float32 as well, which for so few rows are computed in float64 unless told
    otherwise.
    """
    monkeypatch.setattr("gpflow_decoupled.covariances.products._SMALL", 0)
    model = model_of(mean_function=None)
    settings = {"tolerance": 1e-4, "epochs": 300, "batch_size": 20, "float32": float32}
    result = StochasticDualDescent(**settings).run(model, (MANY, OBSERVED))
    assert (
        result.converged
        and result.reason == "converged"
        and result.gap <= 1e-4
        and result.products < 250
    )
    K, _, w, y, a = _dense(model.basis.a_gamma.numpy()[:, 0])
    error = a - dm.coefficients(K, w, y)
    assert (
        error @ error <= 2.0 * result.gap / NOISE
    )  # the dual is at most the gap above its least value
    assert np.abs(K @ error).max() < 2e-3


class Noise(gpflow.kernels.Static):
    """White noise as a kernel of a user's own."""

    def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
        return (
            tf.zeros([len(X), len(X2)], X.dtype)
            if X2 is not None
            else tf.linalg.diag(self.K_diag(X))
        )


@pytest.mark.exhaustive
def test_noise_kernels_and_rows_that_repeat() -> None:
    """White noise of a row belongs to its own entry of the matrix, and not to that of its copy."""
    inputs = np.vstack([X, X[:20]])
    kernel = gpflow.kernels.Matern52(lengthscales=0.9) + Noise(0.5)
    observed = np.vstack([Y[:, :1], Y[:20, 1:]])
    model = model_of(kernel=kernel, mean_function=None)
    result = StochasticDualDescent(tolerance=1e-8, epochs=1000, batch_size=16).run(
        model, (inputs, observed)
    )
    assert result.converged
    a = np.linalg.solve(kernel(inputs).numpy() + NOISE * np.eye(80), observed)
    assert_allclose(model.basis.a_gamma, a, atol=1e-3)


@pytest.mark.exhaustive
def test_sites_of_another_likelihood() -> None:
    data = X, labels()
    model, other = model_of(gl.Bernoulli()), model_of(gl.Bernoulli())
    result = StochasticDualDescent(tolerance=1e-3, batch_size=20).run(model, data)
    expected = ConjugateGradients(tolerance=1e-6).run(other, data)
    assert result.converged and result.steps > 1
    assert result.elbo == pytest.approx(expected.elbo, abs=5e-3)
    assert np.all(np.diff(result.history["elbo"]) > -1e-3)
    assert_allclose(model.predict_f(X[:5])[0], other.predict_f(X[:5])[0], atol=0.02)


@pytest.mark.exhaustive
def test_a_run_goes_on_from_the_coefficients_that_are_there() -> None:
    model, data = model_of(), (X, Y[:, :1])
    solver = StochasticDualDescent(tolerance=1e-3, epochs=500, correct_every=250, batch_size=10)
    first = solver.run(model, data)
    model.kernel.lengthscales.assign(0.81)
    second = solver.run(model, data)
    assert first.converged and second.converged and 1 < second.products < first.products < 200
    third = solver.run(model, data)
    assert third.products == 1 and third.elbo == pytest.approx(second.elbo, abs=1e-9)
    assert_allclose(model.basis.a_gamma[:, 0], exact_mean(model.kernel), atol=0.2)


@pytest.mark.exhaustive
def test_the_seed_chooses_the_rows() -> None:
    found = []
    for seed in (0, 0, 1):
        model = model_of()
        StochasticDualDescent(tolerance=1e-9, epochs=3, batch_size=10, seed=seed).run(
            model, (X, Y[:, :1])
        )
        found.append(model.basis.a_gamma.numpy())
    assert_array_equal(found[0], found[1])
    assert np.abs(found[0] - found[2]).max() > 1e-3


# --- steps that are too long


@pytest.mark.exhaustive
def test_a_step_size_that_is_too_long_is_halved_until_the_residual_falls() -> None:
    system = system_of(np.full((N, 1), 1.0 / NOISE), TARGET[:, :1], 15)
    start, solve = (
        tf.zeros((N, 1), tf.float64),
        _descent(step_size=1000.0, epochs=300, tolerance=0.1),
    )
    found = solve(system, start, start, deadline=np.inf, report=lambda *_: None)
    assert 2.0**-14 <= solve.share <= 2.0**-7
    assert found.reason == "converged" and found.gap <= 0.1
    k = grams_of(matern(1.3, 0.8))
    at = k.K_x, k.Q_x, np.full(N, 1.0 / NOISE), TARGET[:, 0], found.a.numpy()[:, 0]
    assert_allclose(found.gap, dm.gap(*at), rtol=1e-6)
    assert found.gaps[-1] == found.gap and np.all(np.isfinite(found.gaps))


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", [1e3, 1e200])
def test_a_descent_that_diverges_returns_no_less_than_its_start(
    size: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it ends within an epoch, before anything was halved."""
    model, data = model_of(), (X, Y[:, :1])
    ConjugateGradients(tolerance=1e-3).run(model, data)
    before, a = float(model.elbo(data)), model.basis.a_gamma.numpy()
    solver = StochasticDualDescent(tolerance=1e-9, epochs=1, batch_size=3, step_size=size)
    for at in (2, 15, 1000):
        with monkeypatch.context() as patch:
            interrupt_call(patch, Compiled, "__call__", at)
            result = solver.run(model, data)
        assert result.elbo >= before - 1e-9 and result.reason == (
            "interrupted" if at < 20 else "epochs done"
        )
        assert np.abs(model.basis.a_gamma.numpy() - a).max() < 0.1
        assert np.isfinite(result.gap) and result.gap == result.gaps[-1] <= 2e-3


@pytest.mark.exhaustive
def test_an_average_that_is_not_finite_is_not_what_is_returned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten epochs of six steps, two steps to infinity and an interrupt: the ten epochs are kept."""
    call, count = Compiled.__call__, iter(range(1, 1000))

    def step(self: Compiled, *arguments: Any) -> Any:
        number, state = next(count), call(self, *arguments)
        if number == 63:
            raise KeyboardInterrupt
        return tf.nest.map_structure(lambda part: part / 0.0, state) if number > 60 else state

    model, data = model_of(), (X, Y[:, :1])
    with monkeypatch.context() as patch:
        patch.setattr(Compiled, "__call__", step)
        result = StochasticDualDescent(tolerance=1e-9, batch_size=10, correct_every=50).run(
            model, data
        )
    assert result.reason == "interrupted" and np.isfinite(result.elbo)
    whole = StochasticDualDescent(tolerance=1e-9, batch_size=10, epochs=10).run(model_of(), data)
    assert (
        len(result.gaps) == 2 and whole.gap < 0.1 * result.gaps[0] and result.gap < 3.0 * whole.gap
    )


@pytest.mark.exhaustive
def test_a_model_that_is_solved_for_already_is_left_alone() -> None:
    model: ODVGP = model_of()
    ConjugateGradients(tolerance=1e-6).run(model, (X, Y[:, :1]))
    a = model.basis.a_gamma.numpy()
    result = StochasticDualDescent(tolerance=1e-3).run(model, (X, Y[:, :1]))
    assert result.converged and result.products == 1
    assert_array_equal(model.basis.a_gamma, a)
