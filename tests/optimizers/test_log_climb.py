"""The vector of hyperparameters that L-BFGS climbs over, and the densities that it climbs."""

from __future__ import annotations

import time

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import kernels as gk
from numpy.testing import assert_allclose
from scipy.optimize import approx_fprime
from tensorflow_probability import distributions as tfd

from gpflow_decoupled.errors import NumericalError
from gpflow_decoupled.models import NNGP
from gpflow_decoupled.optimizers.log_climb import (
    LogCoordinates,
    LogObjective,
    climb_logarithms,
    with_gradients,
)
from gpflow_decoupled.optimizers.neighbours.neighbour_rounds import RowDensities

N = 30
_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(N, 2))
Y = np.stack([np.sin(2 * X[:, 0]), X[:, 1] * X[:, 0]], axis=1) + 0.2 * _RNG.normal(size=(N, 2))
MISSING = np.where(_RNG.random(Y.shape) < 0.2, np.nan, Y)


def model(Y: np.ndarray = Y, m: int = 6) -> NNGP:
    kernel = gk.Matern32(variance=1.3, lengthscales=[0.8, 40.0])
    kernel.variance.prior = tfd.LogNormal(np.float64(0.0), np.float64(1.0))
    mean_function = gpflow.functions.Constant(np.array([0.1, -0.2]))
    likelihood = gpflow.likelihoods.Gaussian(0.05)
    return NNGP((X, Y), kernel, likelihood, num_neighbours=m, mean_function=mean_function)


def coordinates_of(built: NNGP) -> LogCoordinates:
    return LogCoordinates(built.trainable_parameters)


def test_positive_parameters_move_by_their_logarithms():
    built = model()
    coordinates = coordinates_of(built)
    x = coordinates.pack()
    assert coordinates.is_log.sum() == 4
    coordinates.assign(x + 0.5 * coordinates.is_log)
    factor = np.exp(0.5)
    assert_allclose(built.kernel.lengthscales.numpy(), [0.8 * factor, 40.0 * factor])
    assert_allclose(built.likelihood.variance.numpy() - 1e-6, (0.05 - 1e-6) * factor)
    assert_allclose(built.mean_function.c.numpy(), [0.1, -0.2])
    assert_allclose(coordinates.pack(), x + 0.5 * coordinates.is_log, rtol=1e-9)


def test_a_shared_parameter_has_one_place():
    kernel = gk.Matern32()
    assert len(LogCoordinates([kernel.variance, kernel.variance]).pack()) == 1


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("outputs", [Y, MISSING], ids=["complete", "missing"])
def test_weighted_rows_and_their_gradient(outputs, monkeypatch):
    monkeypatch.setattr("gpflow_decoupled.optimizers.neighbours.neighbour_rounds._BLOCK", 11)
    built = model(outputs)
    coordinates = coordinates_of(built)
    rows, weights, x = np.arange(3, 28), _RNG.uniform(0.5, 2.0, size=25), coordinates.pack()
    near = built.neighbours_of(rows)
    objective = RowDensities(built, coordinates).near(rows, weights)
    value, gradient = objective(x)
    expected = weights @ built.log_likelihood(rows, near).numpy() + built.log_prior_density()
    assert_allclose(value, expected, rtol=1e-9)
    numeric = approx_fprime(x, lambda point: objective(point)[0], 1e-6)
    assert_allclose(gradient, numeric, rtol=1e-4, atol=1e-4)


def test_exact_density_and_its_gradient():
    built = model()
    coordinates = coordinates_of(built)
    x, rows = coordinates.pack(), np.arange(12)
    objective = RowDensities(built, coordinates, compile=False).exact(rows, 2.5)
    value, gradient = objective(x)
    expected = 2.5 * built.exact_log_likelihood(rows) + built.log_prior_density()
    assert_allclose(value, expected, rtol=1e-9)
    numeric = approx_fprime(x, lambda point: objective(point)[0], 1e-6)
    assert_allclose(gradient, numeric, rtol=1e-4, atol=1e-4)


def test_a_climb_without_a_maximum_ends_before_an_overflow():
    parameter = gpflow.Parameter(2.0, transform=gpflow.utilities.positive())
    coordinates = LogCoordinates([parameter])
    terms = with_gradients(lambda: 1e3 * tf.math.log(parameter), coordinates)
    objective = LogObjective(coordinates, lambda: [terms()])
    climb_logarithms(objective, coordinates, 1, evaluations=50)
    assert_allclose(np.log(parameter.numpy()), np.log(2.0) + 12.0)


def test_a_climb_ends_at_the_maximum_of_the_exact_density():
    built = model()
    coordinates = coordinates_of(built)
    objective = RowDensities(built, coordinates).exact(np.arange(N), 1.0)
    run = climb_logarithms(objective, coordinates, N, evaluations=200)
    assert run.value > run.start + 1.0
    assert_allclose(objective(coordinates.pack())[0], run.value)  # the best point stays

    def best_of(parameters: gpflow.models.GPR) -> float:
        gpflow.optimizers.Scipy().minimize(
            parameters.training_loss,
            parameters.trainable_variables,
            tf_fun_args={"autograph": False},
        )
        return -float(parameters.training_loss())

    start = model()
    parts = start.kernel, start.mean_function
    assert run.value > best_of(gpflow.models.GPR((X, Y), *parts, noise_variance=0.05)) - 1e-2


@pytest.mark.exhaustive
def test_a_late_climb_takes_one_iteration():
    built = model()
    coordinates = coordinates_of(built)
    objective = RowDensities(built, coordinates).exact(np.arange(N), 1.0)
    shown: list[str] = []
    late = time.perf_counter() - 1.0
    run = climb_logarithms(
        objective, coordinates, N, evaluations=99, deadline=late, show=shown.append, name="here"
    )
    assert run.value > run.start
    assert [line.split(",")[1] for line in shown] == [" iteration 0", " iteration 1"]
    assert shown[-1].startswith("here, ") and f"{run.value:.6g} nats" in shown[-1]


def test_a_start_that_is_not_finite_is_an_error():
    built = model(m=3)
    built.data = built.data[0], 1e200 * built.data[1]
    coordinates = coordinates_of(built)
    with pytest.raises(NumericalError, match="standardise"):
        climb_logarithms(
            RowDensities(built, coordinates).exact(np.arange(N), 1.0),
            coordinates,
            N,
            evaluations=5,
        )


def test_a_climb_without_time_has_not_converged():
    """The next evaluation would end too late, so the last one ended before."""
    built = model()
    coordinates = coordinates_of(built)

    def objective(x):
        time.sleep(0.2)
        return -float(np.sum(x**4)), -4.0 * x**3

    begins = coordinates.pack()
    deadline = time.perf_counter() + 0.5
    run = climb_logarithms(objective, coordinates, N, evaluations=50, deadline=deadline)
    assert time.perf_counter() < deadline + 0.4
    assert (run.reason, run.converged) == ("time is up", False)
    assert 0.0 < run.rise <= 10.01 * (run.value - run.start)
    assert not np.allclose(coordinates.pack(), begins)
