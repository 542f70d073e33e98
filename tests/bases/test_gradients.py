"""Gradients of the bound by finite differences: every basis, every Parameter, stationary kernels
and others.
"""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import (
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Polynomial,
    RationalQuadratic,
    SquaredExponential,
)
from numpy.testing import assert_allclose

from gpflow_decoupled.bases import OrthogonalBasis
from gpflow_decoupled.models import BasisGP
from tests.bounds.registry import CASES, OWNERS, kernel_of, randomize

POINTS = 2.0 * np.random.default_rng(3).uniform(-1, 1, size=(13, 2))
BETA, GAMMA, X = POINTS[:4], POINTS[4:9], POINTS[9:]
Y = np.random.default_rng(4).poisson(2.0, size=(4, 2)).astype(float)
STEP = 1e-5


def assert_gradients(model: BasisGP, data: tuple, rtol: float = 1e-6) -> None:
    """Along one random direction in each variable."""
    variables, rng = list(model.trainable_variables), np.random.default_rng(0)
    with tf.GradientTape() as tape:
        value = model.elbo(data)
    gradients = tape.gradient(value, variables)
    assert len(variables) > 3
    for variable, gradient in zip(variables, gradients):
        start, direction = variable.numpy(), rng.normal(size=variable.shape)
        ends = []
        for sign in (1.0, -1.0):
            variable.assign(start + sign * STEP * direction)
            ends.append(float(model.elbo(data)))
        variable.assign(start)
        slope = (ends[0] - ends[1]) / (2 * STEP)
        assert_allclose(
            np.sum(gradient * direction), slope, rtol=rtol, atol=1e-6, err_msg=variable.name
        )


# a model with sites owns its data, and its sites are not trainable: it is tested with that model
PAIRS = [(name, "separate") for name in CASES if CASES[name].basis not in OWNERS]
PAIRS += [
    (name, "two")
    for name in ("coupled-unwhitened", "solve-unwhitened", "orthogonal-whitened", "inverse-none")
]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name, kind", PAIRS)
def test_gradient_in_every_parameter(name, kind):
    kernel, latents = kernel_of(kind)
    basis = CASES[name].build(kernel, latents, GAMMA, BETA)
    randomize(basis, np.random.default_rng(0), 0.5)
    model = BasisGP(kernel, gpflow.likelihoods.Poisson(), basis, num_data=9)
    assert_gradients(model, (tf.constant(X), tf.constant(Y)))


KERNELS: dict[str, Any] = {
    "squared exponential": lambda: SquaredExponential(1.3, [0.7, 1.2]),
    "matern32": lambda: Matern32(1.3, [0.7, 1.2]),
    "matern52": lambda: Matern52(1.3, [0.7, 1.2]),
    "matern12": lambda: Matern12(1.3, [0.7, 1.2]),
    "rational quadratic": lambda: RationalQuadratic(1.3, 0.9),
    "active dims": lambda: (
        Matern52(1.3, 0.7, active_dims=[1]) + SquaredExponential(0.4, active_dims=[0])
    ),
    "product": lambda: Matern32(1.3, 0.9) * Polynomial(2, variance=0.1),
    "slice": lambda: Matern32(0.5, 0.7, active_dims=slice(0, 1)) + Linear(0.3) + Matern52(),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", KERNELS)
def test_any_kernel(name, rng):
    """Value and gradient; the Gram matrices are GPflow's."""
    kernel = KERNELS[name]()
    basis = OrthogonalBasis(GAMMA, BETA, 2, mean_scaling="none")
    randomize(basis, rng, 0.5)
    model = BasisGP(kernel, gpflow.likelihoods.Poisson(), basis, num_data=9)
    state = basis.factor(kernel)
    K_b = kernel(BETA).numpy() + 1e-6 * np.eye(4)
    chol = np.linalg.cholesky(K_b)
    A = np.linalg.solve(chol, kernel(BETA, X).numpy())
    t = np.linalg.solve(chol, kernel(BETA, GAMMA).numpy() @ basis.a_gamma.numpy())
    mean = kernel(X, GAMMA).numpy() @ basis.a_gamma.numpy() + A.T @ (basis.q_mu.numpy() - t)
    assert_allclose(basis.mean_and_cov(state, kernel, X)[0], mean, rtol=1e-8, atol=1e-9)
    assert_gradients(model, (tf.constant(X), tf.constant(Y)), rtol=1e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["coupled", "orthogonal-none", "inverse-none", "solve-unwhitened"])
def test_second_derivative(name):
    """Of the bound, along one direction of all hyperparameters."""
    kernel, latents = kernel_of("two")
    basis = CASES[name].build(kernel, latents, GAMMA, BETA)
    randomize(basis, np.random.default_rng(0), 0.5)
    model, data = BasisGP(kernel, gpflow.likelihoods.Poisson(), basis, num_data=9), (X, Y)
    variables = list(kernel.trainable_variables)

    def slope() -> tf.Tensor:
        with tf.GradientTape() as tape:
            value = model.elbo(data)
        return tf.add_n(tape.gradient(value, variables))

    with tf.GradientTape() as outer:
        first = slope()
    second = tf.add_n(outer.gradient(first, variables))
    starts, ends = [variable.numpy() for variable in variables], []
    for sign in (1.0, -1.0):
        for variable, start in zip(variables, starts):
            variable.assign(start + sign * STEP)
        ends.append(float(slope()))
    assert_allclose(second, (ends[0] - ends[1]) / (2 * STEP), rtol=1e-5)
