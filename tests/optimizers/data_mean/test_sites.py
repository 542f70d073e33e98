"""Other likelihoods: the run ends where the bound is stationary in all of q, also where it is not
concave.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from gpflow.kernels import LinearCoregionalization
from gpflow.quadrature import NDiagGHQuadrature
from numpy.testing import assert_allclose

import gpflow_decoupled as gd
from gpflow_decoupled.bases import OrthogonalBasis
from gpflow_decoupled.models import ODVGP, BasisGP
from gpflow_decoupled.optimizers import ConjugateGradients, MeanResult
from gpflow_decoupled.training import MeanSolver, Schedule
from tests.bounds.registry import matern
from tests.optimizers.data_mean.problems import (
    BETA,
    TREND,
    N,
    X,
    Y,
    counts,
    exact_mean,
    labels,
    model_of,
    outliers,
)  # fmt: skip

LIKELIHOODS: dict[str, tuple[Callable[[], gl.Likelihood], np.ndarray]] = {
    "Bernoulli": (gl.Bernoulli, labels()),
    "Poisson": (gl.Poisson, counts()),
    "StudentT": (lambda: gl.StudentT(scale=0.5, quadrature=NDiagGHQuadrature(1, 60)), outliers()),
}


@pytest.fixture(scope="module")
def student() -> tuple[ODVGP, MeanResult]:
    """Solved for StudentT; read only."""
    make, observed = LIKELIHOODS["StudentT"]
    model = model_of(make())
    return model, ConjugateGradients(tolerance=1e-7, max_steps=80).run(model, (X, observed))


def _slopes(model: ODVGP, data: tuple) -> list[np.ndarray]:
    """The gradient of the bound in the coefficients and in q(u), by automatic differentiation of
    `elbo`.
    """
    parts = [model.basis.a_gamma, model.basis.q_mu, model.basis.q_sqrt]
    watched = [part.unconstrained_variable for part in parts]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(watched)
        bound = model.elbo(data)
    return [gradient.numpy() for gradient in tape.gradient(bound, watched)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_the_end_is_a_stationary_point_of_the_bound(
    name: str, student: tuple[ODVGP, MeanResult]
) -> None:
    make, observed = LIKELIHOODS[name]
    data = X, observed
    if name == "StudentT":
        model, result = deepcopy(student[0]), student[1]
    else:
        model = model_of(make())
        result = ConjugateGradients(tolerance=1e-7, max_steps=80).run(model, data)
    assert result.converged and result.gap <= 1e-7
    trace = result.history["elbo"]
    assert len(trace) == result.steps and np.all(np.diff(trace) > -1e-7)
    assert_allclose(result.elbo, float(model.elbo(data)), rtol=1e-10)
    for gradient in _slopes(model, data):
        assert np.abs(gradient).max() < 2e-3  # second order in the nats that are left
    again = ConjugateGradients(tolerance=1e-7).run(model, data)
    assert again.products < result.products / 2 and again.elbo == pytest.approx(
        result.elbo, abs=1e-6
    )


@pytest.mark.exhaustive
def test_curvatures_below_zero_reach_the_covariance(student: tuple[ODVGP, MeanResult]) -> None:
    """With outliers S~^-1 = I - 2 A diag(h) A^T has h above zero; clipped to zero, q(u) would be
    too narrow.
    """
    model = student[0]
    mean, variance = (tf.convert_to_tensor(moment) for moment in model.predict_f(X))
    with tf.GradientTape() as tape:
        tape.watch(variance)
        expected = tf.reduce_sum(
            model.likelihood.variational_expectations(X, mean, variance, outliers())
        )
    h = tape.gradient(expected, variance).numpy()[:, 0]
    assert h.max() > 0.05
    A = np.linalg.solve(
        np.linalg.cholesky(
            model.kernel(BETA).numpy() + gpflow.config.default_jitter() * np.eye(len(BETA))
        ),
        model.kernel(BETA, X).numpy(),
    )
    root = model.basis.q_sqrt.numpy()[0]
    assert_allclose(
        np.linalg.inv(root @ root.T), np.eye(len(BETA)) - 2.0 * (A * h) @ A.T, atol=2e-2
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_the_end_is_that_of_newton_steps_on_stored_mean_points(name: str) -> None:
    make, observed = LIKELIHOODS[name]
    model = model_of(make())
    result = ConjugateGradients(tolerance=1e-7, max_steps=80).run(model, (X, observed))
    stored = BasisGP(
        matern(1.3, 0.8),
        make(),
        OrthogonalBasis(X, BETA, mean_scaling="none"),
        mean_function=TREND,
        num_data=N,
    )
    for part in (
        stored.kernel,
        stored.likelihood,
        stored.mean_function,
        stored.basis.beta,
        stored.basis.gamma,
    ):
        gpflow.set_trainable(part, False)
    options: dict[str, Any] = {
        "schedule": Schedule(ramp_steps=0, anneal=0.0),
        "natural_gradient": 0.5,
    }
    solver = MeanSolver("newton", learning_rate=0.5)
    gd.fit(
        stored,
        (X, observed),
        steps=60,
        batch_size=None,
        mean_solver=solver,
        progress=False,
        **options,
    )
    assert result.elbo == pytest.approx(float(stored.elbo((X, observed))), abs=1e-4)
    assert_allclose(model.predict_f(X[:5])[0], stored.predict_f(X[:5])[0], atol=5e-3)


MIXING = np.array([[1.0, -0.4], [0.3, 0.8], [0.5, 0.5]])


def _mixed() -> tuple[Any, np.ndarray]:
    """A model of three outputs that mix two latents, and observations."""
    kernel = LinearCoregionalization([matern(1.3, 0.8), matern(0.6, 1.4)], MIXING)
    observed = np.hstack([Y, Y[:, :1] - Y[:, 1:]])
    return model_of(gl.Gaussian(0.5), kernel=kernel, latents=2, mean_function=None), observed


def _exact_outputs(model: Any, observed: np.ndarray) -> np.ndarray:
    """The posterior mean of f at X [N, P], from the dense covariance of all outputs."""
    parts = zip(model.kernel.latent_kernels, MIXING.T)
    K = sum(np.kron(np.outer(w, w), kernel(X).numpy()) for kernel, w in parts)
    noise = float(model.likelihood.variance.numpy())
    y = observed.T.reshape(-1)
    return (K @ np.linalg.solve(K + noise * np.eye(len(y)), y)).reshape(observed.T.shape).T


def test_mixed_outputs_with_gaussian_noise_take_one_solve_to_the_exact_mean() -> None:
    model, observed = _mixed()
    result = ConjugateGradients(tolerance=1e-8).run(model, (X, observed))
    assert result.converged and result.steps == 1 and result.gap < 1e-8
    assert_allclose(model.predict_f(X)[0], _exact_outputs(model, observed), atol=1e-4)
    for gradient in _slopes(model, (X, observed)):
        assert np.abs(gradient).max() < 1e-2
    again = ConjugateGradients(tolerance=1e-6).run(model, (X, observed))
    assert again.products <= 4 and again.elbo == pytest.approx(result.elbo, abs=1e-6)


def test_the_gap_of_mixed_outputs_bounds_what_the_solve_left() -> None:
    model, observed = _mixed()
    best = ConjugateGradients(tolerance=1e-8).run(model, (X, observed)).elbo
    rough, _ = _mixed()
    found = ConjugateGradients(tolerance=5.0, rank=4).run(rough, (X, observed))
    assert 0.0 < best - found.elbo < found.gap


@pytest.mark.exhaustive
def test_mixed_labels_take_several_solves() -> None:
    model, observed = _mixed()
    labels = (observed > 0.3).astype(float)
    model = model_of(gl.Bernoulli(), kernel=model.kernel, latents=2, mean_function=None)
    result = ConjugateGradients(tolerance=1e-6, max_steps=80).run(model, (X, labels))
    assert result.converged and result.steps > 2


@pytest.mark.exhaustive
def test_a_start_near_the_end_takes_fewer_products() -> None:
    model, data = model_of(), (X, Y[:, :1])
    first = ConjugateGradients(tolerance=1e-6).run(model, data)
    model.kernel.lengthscales.assign(0.81)
    second = ConjugateGradients(tolerance=1e-6).run(model, data)
    assert second.products < first.products
    assert_allclose(model.basis.a_gamma[:, 0], exact_mean(model.kernel), atol=1e-2)
    third = ConjugateGradients(tolerance=1e-6).run(model, data)
    assert third.products == 1 and third.elbo == pytest.approx(second.elbo, abs=1e-5)
