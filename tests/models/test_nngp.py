"""The nearest-neighbour GP against exact regression, and against its slow version."""

from __future__ import annotations

from typing import Any
from unittest import mock

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import kernels as gk
from gpflow.likelihoods import Gaussian
from numpy.testing import assert_allclose

from gpflow_decoupled.covariances import neighbourhoods as grams
from gpflow_decoupled.errors import NumericalError
from gpflow_decoupled.models import NNGP
from gpflow_decoupled.models.neighbours import posterior
from tests.reference import neighbours as ref

N, NOISE, JITTER = 40, 0.05, 1e-6
FEW = 6
_RNG = np.random.default_rng(3)
X = _RNG.normal(size=(N, 2))
Y = np.stack([np.sin(2 * X[:, 0]), X[:, 1] * X[:, 0]], axis=1) + 0.2 * _RNG.normal(size=(N, 2))
XNEW = _RNG.normal(size=(7, 2))
VARIANCE = 1.3
indexed = np.concatenate([X[:, :1], _RNG.integers(0, 3, size=(N, 1))], axis=1)

KERNELS: dict[str, Any] = {
    "Matern12": lambda: gk.Matern12(variance=VARIANCE, lengthscales=[0.8, 1.5]),
    "Matern52": lambda: gk.Matern52(variance=VARIANCE, lengthscales=[0.8, 1.5]),
    "RationalQuadratic": lambda: gk.RationalQuadratic(variance=VARIANCE, alpha=0.7),
    "one column": lambda: gk.SquaredExponential(variance=VARIANCE, active_dims=[1]),
    "sum": lambda: gk.Matern32(variance=VARIANCE) + gk.Linear(variance=0.3),
    "product": lambda: gk.Matern32(active_dims=[0]) * gk.Periodic(gk.Matern52(active_dims=[1])),
    "linear": lambda: gk.Linear(variance=[0.3, 0.5]),
    "Coregion": lambda: gk.Matern32(active_dims=[0]) * gk.Coregion(3, 1, active_dims=[1]),
    "ArcCosine": gk.ArcCosine,
    "White": lambda: gk.Matern32() + gk.White(variance=0.1),
}


def model(
    kernel: gk.Kernel | None = None,
    m: int = N,
    Y: np.ndarray = Y,
    X: np.ndarray = X,
    **options: Any,
) -> NNGP:
    kernel = KERNELS["Matern52"]() if kernel is None else kernel
    options.setdefault("likelihood", Gaussian(NOISE))
    return NNGP((X, Y), kernel, num_neighbours=m, **options)


def observed_covariance(kernel: gk.Kernel, X: np.ndarray = X, noise: Any = NOISE) -> np.ndarray:
    """K^ [N, N], with the model's jitter."""
    K = kernel(X).numpy()
    return K + np.diag(noise * np.ones(len(X)) + JITTER * np.diag(K))


def log_normal(y: np.ndarray, K: np.ndarray) -> float:
    return float(
        -0.5 * (len(y) * np.log(2 * np.pi) + np.linalg.slogdet(K)[1] + y @ np.linalg.solve(K, y))
    )


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", KERNELS)
def test_all_neighbours_give_the_exact_gp(name):
    kernel, inputs = KERNELS[name](), indexed if name == "Coregion" else X
    ours, K = model(kernel, X=inputs), observed_covariance(kernel, inputs)
    expected = sum(log_normal(y, K) for y in Y.T)
    assert_allclose(ours.maximum_log_likelihood_objective(), expected, rtol=1e-7)
    new = inputs[:5] + [0.1, 0.0]
    cross, prior = kernel(new, inputs).numpy(), kernel(new).numpy()
    if name == "White":
        assert not np.any(cross == prior[:, :1])
    for full_cov in (False, True):
        mean, cov = ours.predict_f(new, full_cov=full_cov)
        exact = prior - cross @ np.linalg.solve(K, cross.T)
        exact = np.stack([exact] * 2) if full_cov else np.stack([np.diag(exact)] * 2, axis=1)
        assert_allclose(mean, cross @ np.linalg.solve(K, Y), rtol=1e-6, atol=1e-8)
        assert_allclose(cov, exact, rtol=1e-6, atol=1e-8)
    left_out = ours.leave_one_out()
    for column, y in enumerate(Y.T):
        mean, variance = ref.leave_one_out(K, y)
        assert_allclose(left_out.mean[:, column], mean, rtol=1e-6, atol=1e-7)
        assert_allclose(left_out.variance[:, column], variance, rtol=1e-6)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["Matern12", "Matern52", "one column"])
def test_few_neighbours_are_those_of_the_slow_version(name):
    kernel = KERNELS[name]()
    ours, K = model(kernel, FEW), observed_covariance(kernel)
    scaled = X[:, [1]] if name == "one column" else X / kernel.lengthscales.numpy()
    order = np.random.default_rng(0).permutation(N)  # the model's, with seed=0
    neighbours = ref.earlier(scaled, list(order), FEW)
    found = ours.neighbours_of(np.arange(N)).numpy()[0]
    assert [set(row) - {-1} for row in found] == [set(row) for row in neighbours]
    terms = sum(ref.log_likelihood(K, y, neighbours) for y in Y.T)
    assert_allclose(ours.log_likelihood(np.arange(N), found[None]), terms, rtol=1e-8)
    assert_allclose(ours.maximum_log_likelihood_objective(), terms.sum(), rtol=1e-8)
    mean, variance = ours.predict_f(XNEW)
    cross, scaled_new = kernel(XNEW, X).numpy(), scaled_inputs(kernel, XNEW)
    for k, x in enumerate(scaled_new):
        near = ref.nearest(x, scaled, FEW)
        for column, y in enumerate(Y.T):
            expected = ref.prediction(K, y, cross[k], kernel.variance.numpy(), near)
            assert_allclose((mean[k, column], variance[k, column]), expected, rtol=1e-7, atol=1e-9)


def scaled_inputs(kernel: gk.Kernel, X: np.ndarray) -> np.ndarray:
    """The active columns divided by the lengthscales."""
    return kernel.slice(X)[0] / kernel.lengthscales.numpy()


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("seed", range(3))
def test_variance_is_never_below_the_exact_one_and_falls_with_neighbours(seed):
    kernel = gk.Matern32(lengthscales=0.3 + np.random.default_rng(seed).random(2))
    variances = [model(kernel, m).predict_f(XNEW)[1].numpy() for m in (2, 5, 10, 20, N)]
    for more, fewer in zip(variances[1:], variances):
        assert np.all(fewer >= more - 1e-12) and np.any(fewer > more + 1e-6)


@pytest.mark.exhaustive
def test_random_rows_give_an_unbiased_gradient():
    ours = model(m=FEW, mean_function=gpflow.functions.Constant([0.1, 0.2]))
    variables, rows = ours.trainable_variables, np.arange(N).reshape(8, 5)

    def gradient(rows: np.ndarray) -> list[np.ndarray]:
        neighbours = ours.neighbours_of(rows)
        with tf.GradientTape() as tape:
            loss = -tf.reduce_sum(ours.log_likelihood(rows, neighbours)) * N / len(rows)
        return [part.numpy() for part in tape.gradient(loss, variables)]

    with tf.GradientTape() as tape:
        loss = ours.training_loss()
    whole = tape.gradient(loss, variables)
    parts = [gradient(batch) for batch in rows]
    for k, expected in enumerate(whole):
        assert_allclose(np.mean([part[k] for part in parts], axis=0), expected, rtol=1e-9)
        assert np.ptp([part[k] for part in parts], axis=0).max() > 1e-3


def test_gradient_is_that_of_finite_differences():
    ours = model(KERNELS["Matern12"](), FEW, mean_function=gpflow.functions.Constant([0.1, 0.2]))
    loss = tf.function(ours.training_loss, autograph=False)
    with tf.GradientTape() as tape:
        value = loss()
    for variable, gradient in zip(
        ours.trainable_variables, tape.gradient(value, ours.trainable_variables)
    ):
        start = variable.numpy()
        step = np.zeros_like(start)
        step.flat[-1] = 1e-5
        values = []
        for sign in (1, -1):
            variable.assign(start + sign * step)
            values.append(float(loss()))
        variable.assign(start)
        assert_allclose(np.ravel(gradient)[-1], (values[0] - values[1]) / 2e-5, rtol=1e-5)


def test_order_of_rows_changes_no_prediction():
    order = np.random.default_rng(5).permutation(N)
    ours, shuffled = model(m=FEW), model(m=FEW, X=X[order], Y=Y[order])
    for mine, theirs in zip(ours.predict_y(XNEW), shuffled.predict_y(XNEW)):
        assert_allclose(mine, theirs, rtol=1e-10)


@pytest.mark.exhaustive
def test_many_blocks_by_a_graph_predict_as_one_does(monkeypatch):
    ours = model(m=FEW)
    expected = ours.predict_f(XNEW)
    monkeypatch.setattr(posterior, "_ENTRIES", 2 * (FEW + 1) ** 2)  # blocks of two rows
    ours = ours.posterior()
    with mock.patch.object(posterior, "Compiled", wraps=posterior.Compiled) as compiled:
        for blocks, whole in zip(ours.predict_f(XNEW[:7]), expected):
            assert_allclose(blocks, whole[:7], rtol=1e-12)
    assert compiled.call_count == 1
    monkeypatch.setattr(posterior, "_FUSED", 3)
    with mock.patch.object(grams, "_compiled", wraps=grams._compiled) as fused:
        for blocks, whole in zip(ours.predict_f(XNEW[:7]), expected):
            assert_allclose(blocks, whole[:7], rtol=1e-12)
    assert fused.call_count > 0
    ours.kernel.variance.unconstrained_variable.assign(np.nan)
    with pytest.raises(NumericalError, match="model.kernel.variance has entries that are NaN"):
        ours.predict_f(XNEW)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("size", [N, 1500])
def test_prediction_of_a_row_does_not_depend_on_the_others(size, rng):
    inputs = rng.normal(size=(size, 2))
    ours = model(m=FEW, X=inputs, Y=np.sin(inputs))
    mean, variance = ours.predict_f(XNEW)
    for k in range(len(XNEW)):
        alone = ours.predict_f(XNEW[k : k + 1])
        assert_allclose(alone[0][0], mean[k], rtol=1e-12)
        assert_allclose(alone[1][0], variance[k], rtol=1e-12)
