"""The rivals of conjugate computation on the weights of a logistic regression: steps, where they
end, and their traces.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from benchmarks.suites.glm.problems import Problem
from benchmarks.suites.rivals.gradients import VGPGradient
from benchmarks.suites.rivals.linear import METHODS, Weighted, weighted
from benchmarks.suites.rivals.runs import trace
from benchmarks.suites.rivals.weights import WeightsProximal
from gpflow_decoupled.models import BasisGP, weights_posterior
from gpflow_decoupled.optimizers import sweep
from tests.reference import conjugate as cvi
from tests.reference import proximal as prox
from tests.reference.likelihoods import bernoulli_logit

N, COLUMNS = 40, 2
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, COLUMNS)) * [1.0, 2.0]
Y = (RNG.random((N, 1)) < 0.6).astype(float)


@pytest.fixture
def problem(tmp_path: Path) -> Weighted:
    """Forty rows of the task whose prior precision is 1."""
    name = "breast_cancer_sklearn"
    X.tofile(tmp_path / f"{name}.X")
    Y.tofile(tmp_path / f"{name}.Y")
    return weighted(Problem(name, str(tmp_path), N, COLUMNS), X, Y)


def q_of(model: BasisGP) -> prox.Gaussian:
    root = model.q_sqrt.numpy()[0]
    return model.q_mu.numpy()[:, 0], root @ root.T


def test_the_root_is_that_of_the_prior(problem: Weighted) -> None:
    """Of X and a column of ones; the weights have the variances 1, 1 and 1e4."""
    ones = np.hstack([X, np.ones([N, 1])])
    assert_allclose(
        tf.matmul(problem.root, problem.root, transpose_b=True),
        ones * [1.0, 1.0, 1e4] @ ones.T,
        rtol=1e-12,
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("rows", [np.arange(N), np.array([4, 1, 30])])
def test_proximal_steps_are_those_of_numpy(problem: Weighted, rows: np.ndarray) -> None:
    """Three steps on all data, or on a minibatch."""
    model = problem.problem.model()
    rule = WeightsProximal(model, problem.data, problem.root, 0.3)
    A, expect = problem.root.numpy()[rows].T, cvi.quadrature(bernoulli_logit(), Y[rows, 0], 20)
    prior, q = (np.zeros(3), np.eye(3)), q_of(model)
    for step in range(3):
        _, g, h = expect(A.T @ q[0], np.diag(A.T @ q[1] @ A))
        q = prox.dense_step(prior, q, N / len(rows) * g, N / len(rows) * h, 0.3, A)
        assert rule.minimize(tf.constant(rows), step)
    for found, expected in zip(q_of(model), q):
        assert_allclose(found, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.exhaustive
def test_a_step_that_is_too_long_is_halved(problem: Weighted) -> None:
    """Draws give some observations slopes of the wrong sign; q stays a Gaussian."""
    model = problem.problem.model()
    rule = WeightsProximal(model, problem.data, problem.root, 1.0, samples=1)
    for step in range(20):
        assert rule.minimize(tf.constant([step]), step), (
            "half of a step can be taken where the whole cannot"
        )
        assert np.all(np.isfinite(model.q_mu)) and np.all(np.linalg.eigvalsh(q_of(model)[1]) > 0.0)


def test_gradients_are_those_of_the_bound(problem: Weighted) -> None:
    model = problem.problem.model()
    rule = VGPGradient(model, None, data=problem.data, root=problem.root)
    with tf.GradientTape() as tape:
        loss = -model.elbo(problem.data)
    expected = tape.gradient(loss, rule.variables)
    for found, wanted in zip(rule.gradient(tf.range(N)), expected):
        assert_allclose(found, wanted, rtol=1e-8, atol=1e-10)


@pytest.mark.exhaustive  # test_ci.py runs them too
def test_all_end_at_one_posterior(problem: Weighted) -> None:
    """PG-SVI and conjugate computation on all rows end where passes in blocks do."""
    best = problem.problem.model()
    optimum = sweep(best, (X, Y), tolerance=1e-12).elbo
    mean, covariance = weights_posterior(best)
    for name, size in (("cvi", 1.0), ("pg-svi", 0.3)):
        started = METHODS[name].start(problem, size, None, 0)
        for step in range(60):
            assert started.step(tf.range(N), tf.constant(step))
        assert float(started.elbo()) == pytest.approx(optimum, abs=1e-7)
        assert_allclose(weights_posterior(started.model)[0], mean, rtol=1e-4, atol=1e-5)
        assert_allclose(weights_posterior(started.model)[1], covariance, rtol=1e-4, atol=1e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", METHODS)
def test_traces_start_at_one_q(problem: Weighted, name: str) -> None:
    """The step that compiles is taken back, its draws too; bounds rise, and passes count the rows
    that were read.
    """
    method = METHODS[name]
    batch, samples = (10, 5) if method.batches else (N, None)
    size = 1e-3 if method.adam else 0.05  # the intercept has a prior deviation of 100
    started = method.start(problem, size, samples, 0)
    first = float(started.elbo())
    rows = iter([np.arange(batch, dtype=np.int32) for _ in range(100_000)])
    found = trace(started, rows, N, 0.2, (X[:2], Y[:2]))
    assert found["passes"][0] == batch / N and found["passes"][-1] == found["steps"] * batch / N
    assert first < found["bounds"][-1] < 0.0 or method.batches
    before = method.start(problem, size, samples, 0)
    before.step(tf.range(batch), tf.constant(0))
    assert float(before.elbo()) == pytest.approx(found["bounds"][0], abs=1e-9)
