"""The rivals of conjugate computation: gradients of a parametrised q are unbiased, and PG-SVI is
the numpy reference's.
"""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from benchmarks.suites.full_gp.problems import Problem
from benchmarks.suites.rivals.gradients import ESTIMATORS, VGPGradient, by_score_function
from benchmarks.suites.rivals.proximal import ProximalGradient
from benchmarks.suites.rivals.runs import Run, best_runs, trace
from benchmarks.suites.rivals.stochastic import METHODS
from gpflow_decoupled.errors import DataError
from gpflow_decoupled.likelihoods import BernoulliLogit
from gpflow_decoupled.models import CVIGP
from gpflow_decoupled.optimizers import ConjugateComputation
from tests.reference import conjugate as cvi
from tests.reference import proximal as prox
from tests.reference.likelihoods import bernoulli_logit

RNG = np.random.default_rng(0)
N = 6
X = RNG.normal(size=(N, 2))
Y = (RNG.random((N, 1)) < 0.6).astype(float)
SLOPE = 0.4


def kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential(2.0, 1.3)


def mean_function() -> gpflow.functions.MeanFunction:
    return gpflow.functions.Linear(SLOPE * np.ones((2, 1)), 0.1)


def vgp() -> gpflow.models.VGP:
    model = gpflow.models.VGP((X, Y), kernel(), BernoulliLogit(), mean_function=mean_function())
    rng = np.random.default_rng(1)
    model.q_mu.assign(rng.normal(size=(N, 1)))
    model.q_sqrt.assign(np.tril(0.3 * rng.normal(size=(1, N, N))) + 0.7 * np.eye(N))
    return model


def cvi_gp() -> CVIGP:
    model = CVIGP((X, Y), kernel(), BernoulliLogit(), mean_function=mean_function())
    rng = np.random.default_rng(2)
    model.basis.nu.assign(rng.normal(size=(N, 1)))
    model.basis.tau.assign(rng.uniform(0.1, 1.0, (N, 1)))
    return model


def exact_gradient(model: gpflow.models.VGP, rule: VGPGradient) -> np.ndarray:
    with tf.GradientTape() as tape:
        loss = -model.elbo()
    return flat(tape.gradient(loss, rule.variables))


def flat(parts: list[tf.Tensor]) -> np.ndarray:
    return np.concatenate([np.ravel(part) for part in parts])


def many(rule: VGPGradient, rows: np.ndarray) -> np.ndarray:
    """The estimates on each of the minibatches `rows` [draws, B], with draws of their own."""

    def one(case: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        return tf.concat([tf.reshape(part, [-1]) for part in rule.gradient(*case)], axis=0)

    steps = tf.range(len(rows))
    compiled = tf.function(
        lambda: tf.map_fn(one, (tf.constant(rows), steps), fn_output_signature=tf.float64),
        autograph=False,
    )
    return compiled().numpy()


def test_exact_gradient_is_that_of_gpflow() -> None:
    model = vgp()
    rule = VGPGradient(model, None)
    assert_allclose(
        flat(rule.gradient(tf.range(N))), exact_gradient(model, rule), rtol=1e-8, atol=1e-10
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "estimator, samples", [("reparameterised", 1), ("score function", 1), ("score function", 4)]
)
def test_estimates_are_unbiased(estimator: str, samples: int) -> None:
    """The mean of many, on minibatches of two rows, is the gradient within 4.5 standard errors of
    each entry.

    The seeds are fixed; for others, chance alone would fail it with probability 27 entries x 7e-6 =
    2e-4."""
    model, draws = vgp(), 8000
    rule = VGPGradient(model, estimator, samples=samples)
    exact, rng = exact_gradient(model, rule), np.random.default_rng(3)
    found = many(rule, np.stack([rng.permutation(N)[:2] for _ in range(draws)]))
    error = found.std(axis=0) / np.sqrt(draws)
    assert np.linalg.norm(error) < 0.1 * np.linalg.norm(exact)  # so that a wrong factor would show
    assert np.all(np.abs(found.mean(axis=0) - exact) <= 4.5 * error + 1e-12)


@pytest.mark.parametrize("samples", [1, 3])
def test_score_function_is_the_numpy_one(samples: int) -> None:
    """The same draws in numpy, with each density less the mean of the others."""
    rng, seed = np.random.default_rng(4), tf.constant([0, 5])
    mean, variance = rng.normal(size=(N, 1)), rng.uniform(0.2, 1.5, (N, 1))
    epsilon = tf.random.stateless_normal([samples, N, 1], seed, dtype=tf.float64).numpy()[:, :, 0]
    f = (X @ np.full(2, SLOPE) + 0.1) + mean[:, 0] + np.sqrt(variance[:, 0]) * epsilon
    g, h = prox.score_estimates(bernoulli_logit().log_prob(Y[:, 0], f), epsilon, variance[:, 0])
    found = by_score_function(
        vgp(), tf.constant(mean), tf.constant(variance), (X, Y), samples, seed
    )
    assert_allclose(found.g[:, 0], g, rtol=1e-10)
    assert_allclose(found.h[:, 0], h, rtol=1e-10)


@pytest.mark.exhaustive
def test_its_noise_is_the_larger() -> None:
    """At one q and with the same rows and draws."""
    model, spread = vgp(), {}
    for name in ESTIMATORS:
        found = many(VGPGradient(model, name, samples=10), np.tile(np.arange(N), (200, 1)))
        spread[name] = float(np.sum(found.var(axis=0)))
    assert spread["score function"] > 2.0 * spread["reparameterised"]


@pytest.mark.exhaustive
def test_adam_ends_where_conjugate_computation_does() -> None:
    """Exact gradients of `VGP` and sites have one optimum."""
    model, best = vgp(), ConjugateComputation().run(cvi_gp()).elbo
    rule = VGPGradient(model, None, rate=0.03)
    step = tf.function(rule.minimize, autograph=False)
    for _ in range(1500):
        step(tf.range(N))
    assert float(model.elbo()) == pytest.approx(best, abs=1e-4)


@pytest.mark.exhaustive
@pytest.mark.parametrize("rows", [None, [4, 1]])
def test_proximal_steps_are_those_of_numpy(rows: list[int] | None) -> None:
    """Three steps, on all data and on a minibatch; the reference has its sites on f, with the prior
    mean.
    """
    model = cvi_gp()
    rule, K = ProximalGradient(model, 0.3), kernel()(X).numpy()
    offset = X @ np.full(2, SLOPE) + 0.1
    K[np.diag_indices(N)] += gpflow.config.default_jitter()
    prior, expect = (offset, K), cvi.quadrature(bernoulli_logit(), Y[:, 0])
    tau = model.basis.tau.numpy()[:, 0]
    sites = cvi.Sites(model.basis.nu.numpy()[:, 0] + tau * offset, tau)
    inside = np.ones(N) if rows is None else np.isin(np.arange(N), rows) * N / len(rows)
    for step in range(3):
        _, g, h = expect(*cvi.marginals(K, offset, sites))
        sites = prox.site_step(prior, sites, inside * g, inside * h, 0.3)
        assert rule.minimize(None if rows is None else tf.constant(rows), step).ok
    assert_allclose(model.basis.tau[:, 0], sites.tau, rtol=1e-6)
    assert_allclose(model.basis.nu[:, 0], sites.nu - sites.tau * offset, rtol=1e-5, atol=1e-6)


@pytest.mark.exhaustive
def test_proximal_gradient_ends_where_conjugate_computation_does() -> None:
    model, best = cvi_gp(), ConjugateComputation().run(cvi_gp()).elbo
    step = tf.function(ProximalGradient(model, 0.3).minimize, autograph=False)
    for _ in range(100):
        step()
    assert float(model.elbo()) == pytest.approx(best, abs=1e-8)


def test_proximal_gradient_checks_its_settings() -> None:
    for step_size, samples in ((0.0, None), (1.5, None), (0.5, 0)):
        with pytest.raises(DataError):
            ProximalGradient(cvi_gp(), step_size, samples=samples)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["sites", "proximal"])
def test_compiled_steps_draw_anew(kind: str) -> None:
    """A tensor as the number of the step sets the draws as the same number does."""
    made = []
    for number in (lambda k: tf.constant(k), lambda k: k):
        model = cvi_gp()
        if kind == "proximal":
            rule = ProximalGradient(model, 0.2, samples=3)
            step = tf.function(
                lambda k, rule=rule: rule.minimize(tf.constant([0, 2]), k), autograph=False
            )
        else:
            ours = ConjugateComputation(0.2, update="global", samples=3)
            step = tf.function(
                lambda k, ours=ours, model=model: ours.minimize(model, tf.constant([0, 2]), k),
                autograph=False,
            )
        for k in range(3):
            step(number(k))
        made.append(model.basis.nu.numpy())
    assert_allclose(made[0], made[1], rtol=1e-12)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", METHODS)
def test_traces_start_at_the_prior(name: str) -> None:
    """The step that compiles is taken back; bounds rise, and passes count the rows that were
    read.
    """
    problem, batch = (
        Problem("six", X, Y, np.zeros(N, bool), 1.3, 2.0, True),
        2 if METHODS[name].batches else N,
    )
    started = METHODS[name].start(problem, 0.05, 5 if METHODS[name].batches else None, 0)
    prior = float(started.model.elbo())
    rows = iter([np.arange(batch, dtype=np.int32) for _ in range(100_000)])
    found = trace(started, rows, N, 0.2, (X[:2], Y[:2]))
    assert found["losses"][-1] == pytest.approx(
        -float(np.mean(started.model.predict_log_density((X[:2], Y[:2]))))
    )
    assert len(found["losses"]) == len(found["bounds"])
    assert (
        found["seconds"] == sorted(found["seconds"]) and found["steps"] >= len(found["bounds"]) > 1
    )
    assert found["passes"][0] == batch / N and found["passes"][-1] == found["steps"] * batch / N
    assert prior < found["bounds"][0] < found["bounds"][-1] < 0.0 or METHODS[name].batches
    before = METHODS[name].start(problem, 0.05, 5 if METHODS[name].batches else None, 0)
    before.step(tf.range(batch), tf.constant(0))
    assert float(before.model.elbo()) == pytest.approx(found["bounds"][0], abs=1e-9)


def test_the_best_size_has_the_highest_end_or_is_faster() -> None:
    def run(method: str, size: float, *bounds: float) -> Run:
        seconds = [1.0, 8.0, 10.0]
        return Run(
            "six", N, method, size, 2, 5, 3, 0.1, seconds, [1.0, 2.0, 3.0], list(bounds), [], ""
        )

    runs = [
        run("cvi-local", 0.5, -1.0, -3.0, -2.0),
        run("cvi-local", 0.1, -9.0, -2.0, -2.5),
        run("pg-svi-batches", 0.5, -1.0, -1.0, float("nan")),
        run("pg-svi-batches", 0.1, -9.0, -8.0, -8.0),
        run("pg-svi", 0.1, -9.0, -2.0, -2.0),
        run("pg-svi", 0.5, -2.5, -2.0, -2.0002),
    ]
    assert [best.size for best in best_runs(runs)] == [0.1, 0.1, 0.5]
