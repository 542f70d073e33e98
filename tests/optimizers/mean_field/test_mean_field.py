"""Mean-field conjugate computation against exact posteriors, coordinate ascent and general
optimizers.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from gpflow_decoupled.distributions.families import Gamma
from gpflow_decoupled.optimizers import MeanFieldCVI
from gpflow_decoupled.optimizers.mean_field import Moved, move_groups
from tests.reference import mean_field as reference

from . import mean_field_problems as problems

X, Y = problems.regression_data()
SEED = tf.constant([0, 0], tf.int32)


def rate(graph) -> np.ndarray:
    return np.array(Gamma.shape_and_rate(graph["rate"].natural))


def values(graph) -> list[np.ndarray]:
    return [part.numpy() for part in tf.nest.flatten(graph.current())]


def best_rate() -> tuple[np.ndarray, float]:
    """Shape and rate under the log-normal prior, and the bound, by a general optimizer."""
    return reference.best_positive(
        lambda p: reference.gamma_bound(problems.COUNTS, *p, *problems.LOG_RATE), 2
    )


def distance(graph, other) -> float:
    return max(np.max(np.abs(a - b)) for a, b in zip(values(graph), values(other)))


def test_gamma_poisson_is_exact_after_one_sweep():
    a, b, evidence = reference.gamma_poisson(problems.COUNTS, 2.0, 0.5)
    graph = problems.gamma_poisson()
    assert graph.elbo() < evidence
    report = MeanFieldCVI().minimize(graph)
    assert report.ok and report.shortened == 0
    assert_allclose(rate(graph), [a, b], rtol=1e-14)
    assert_allclose(graph.elbo(), evidence, rtol=1e-13)
    result = MeanFieldCVI(0.6).run(graph)
    assert result.reason == "converged" and result.steps == 1 and result.history["change"][0] == 0.0
    assert_allclose(result.elbo, evidence, rtol=1e-13)


@pytest.mark.exhaustive
def test_unknown_mean_and_precision_have_the_exact_means():
    """The factorised q has the posterior's means of m and of t; its bound is below by its
    divergence, and no more.
    """
    x = np.array([0.3, -0.4, 1.9, 0.8, 1.1, 0.2])
    prior = reference.NormalGamma(0.2, 0.5, 2.0, 1.5)
    exact, evidence = reference.normal_gamma(x, prior)
    graph = problems.normal_gamma(x, *prior)
    result = MeanFieldCVI().run(graph, tolerance=1e-28)
    assert np.all(np.diff(result.history["elbo"]) >= -1e-12)
    mean, precision = graph["mean"], graph["precision"]
    assert_allclose(mean.expectation[0], [exact.center], rtol=1e-10)
    assert_allclose(precision.expectation[1], exact.a / exact.b, rtol=1e-10)
    variance = float(mean.distribution.variance()[0])
    gap = reference.normal_gamma_divergence(
        exact.center, variance, *Gamma.shape_and_rate(precision.natural), exact
    )
    assert_allclose(result.elbo, evidence - gap, rtol=1e-10)


@pytest.fixture(scope="module")
def fitted_regression():
    """The optimum, with the trace that led there."""
    graph = problems.regression(X, Y)
    return graph, MeanFieldCVI().run(graph, tolerance=1e-28)


@pytest.mark.exhaustive
def test_full_sequential_steps_are_message_passing(fitted_regression):
    graph, result = fitted_regression
    p, prior = X.shape[1], problems.REGRESSION_PRIOR
    q, trace = reference.Regression(np.zeros(p), np.eye(p), 1.0, 1.0), []
    for _ in range(result.steps):
        q = reference.regression_sweep(X, Y, q, *prior)
        trace.append(reference.regression_bound(X, Y, q, *prior))
    assert_allclose(result.history["elbo"], trace, rtol=1e-12)
    assert result.reason == "converged" and np.all(np.diff(trace) > -1e-12)
    mean, cov = graph["w"].family.mean_and_covariance(graph["w"].natural)
    assert_allclose(mean, q.mean, rtol=1e-10)
    assert_allclose(cov, q.cov, rtol=1e-10)
    assert_allclose(Gamma.shape_and_rate(graph["t"].natural), [q.a, q.b], rtol=1e-10)
    assert result.elbo < reference.regression_evidence(X, Y, *prior) < result.elbo + 0.5


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "options", [{"step_size": 0.5, "schedule": "parallel"}, {"step_size": lambda step: 0.8}]
)
def test_the_posterior_does_not_depend_on_the_step(options, fitted_regression):
    graph = problems.regression(X, Y)
    result = MeanFieldCVI(**options).run(graph, tolerance=1e-25)
    assert result.reason == "converged"
    assert_allclose(result.elbo, fitted_regression[1].elbo, rtol=1e-13)
    assert distance(graph, fitted_regression[0]) < 1e-9


@pytest.mark.exhaustive
def test_local_minibatches_end_at_the_optimum_itself(fitted_regression):
    graph = problems.regression(X, Y)
    result = MeanFieldCVI(0.9).run(graph, steps=100, batch_size=6)
    assert distance(graph, fitted_regression[0]) < 1e-7
    known = result.history["elbo"][np.isfinite(result.history["elbo"])]
    assert len(known) == 25 and known[-1] == pytest.approx(fitted_regression[1].elbo)


def test_global_minibatches_average_to_the_full_step():
    """(C19): from the same messages, the mean over all parts of the data is a step on all of
    them.
    """
    rule = MeanFieldCVI(0.3, schedule="parallel", update="global")
    full = problems.regression(X, Y)
    rule.minimize(full)
    steps, size = [], tf.constant(0.3, tf.float64)
    for rows in np.array_split(np.random.default_rng(0).permutation(len(X)), 4):
        graph = problems.regression(X, Y)
        data = {
            key: tuple(tf.gather(part, rows) for part in parts) for key, parts in graph.data.items()
        }
        now = Moved.at(graph.current())
        then = move_groups(graph, now, [["w", "t"]], size, data, SEED, scale=4.0)
        steps.append(tf.nest.flatten(then.messages))
    for parts, expected in zip(zip(*steps), values(full)):
        assert_allclose(np.mean(parts, axis=0), expected, atol=1e-12)


@pytest.mark.exhaustive
@pytest.mark.parametrize("update, share", [("local", 1.0), ("global", 4.0)])
def test_a_minibatch_counts_for_itself_or_for_all(update, share):
    """Of the first parameter of the noise a quarter of the data asks for N / 8; it starts at
    zero.
    """
    graph = problems.regression(X, Y)
    MeanFieldCVI(0.3, update=update).run(graph, steps=1, batch_size=len(X) // 4)
    assert_allclose(graph.messages["data"]["t"][0], 0.3 * share * len(X) / 8)


@pytest.mark.exhaustive
@pytest.mark.parametrize("update", ["local", "global"])
def test_rows_of_their_own_move_with_their_minibatch(update):
    """A mixture: assignments of the rows first, then means and weights; compared with the run on
    all data.
    """
    x = problems.mixture_data()
    whole = problems.mixture(x)
    expected = MeanFieldCVI().run(whole, tolerance=1e-20)
    assert np.all(np.diff(expected.history["elbo"]) >= -1e-10) and expected.steps > 3
    graph = problems.mixture(x)
    decaying = {"step_size": lambda step: (1.0 + step) ** -0.7, "update": "global"}
    rule = MeanFieldCVI(**({} if update == "local" else decaying), seed=1)
    result = rule.run(graph, steps=60, batch_size=20)
    if update == "local":
        assert_allclose(result.elbo, expected.elbo, rtol=1e-9)
        assert distance(graph, whole) < 1e-4
    else:
        assert expected.elbo - 1.0 < result.elbo < expected.elbo
    assert_allclose(graph.elbo(), result.elbo)
    assert np.max(np.abs(graph["z"].expectation[0] - whole["z"].expectation[0])) < 0.05


@pytest.mark.exhaustive
@pytest.mark.parametrize("schedule", ["sequential", "parallel"])
def test_non_conjugate_gamma(schedule):
    """A log-normal prior; the fixed point is the best Gamma, and its bound is one."""
    graph = problems.log_normal_rate()
    result = MeanFieldCVI(schedule=schedule).run(graph, tolerance=1e-24)
    best, bound = best_rate()
    assert_allclose(rate(graph), best, rtol=1e-6)
    assert_allclose(result.elbo, bound, rtol=1e-12)
    assert result.elbo < reference.gamma_evidence(problems.COUNTS, *problems.LOG_RATE)
    assert np.all(np.diff(result.history["elbo"]) >= -1e-9)


@pytest.mark.exhaustive
def test_non_conjugate_beta():
    graph = problems.logit_normal_odds()
    result = MeanFieldCVI(0.7).run(graph, tolerance=1e-24)
    arguments = problems.SUCCESSES, problems.TRIALS
    best, bound = reference.best_positive(
        lambda c: reference.beta_bound(*arguments, c, *problems.LOG_ODDS), 2
    )
    assert_allclose(np.array(graph["odds"].natural) + 1.0, best, rtol=1e-6)
    assert_allclose(result.elbo, bound, rtol=1e-12)
    assert result.elbo < reference.beta_evidence(*arguments, *problems.LOG_ODDS)


def test_steps_that_lower_the_bound_are_halved():
    """Parallel full steps overshoot where variables are coupled; the means at the optimum are those
    of the joint.
    """
    graph = problems.coupled_gaussians()
    rule = MeanFieldCVI(schedule="parallel")
    result = rule.run(graph, steps=100)
    assert result.shortened_steps > 0
    assert np.all(np.diff(result.history["elbo"]) >= -1e-9)
    precision = np.eye(3) + problems.COUPLING * (1.0 - np.eye(3))
    means = [graph[name].expectation[0][0] for name in graph.families]
    assert_allclose(means, np.linalg.solve(precision, problems.PULL), atol=1e-3)


@pytest.mark.exhaustive
def test_steps_stay_in_the_domain():
    """From far away a full step asks for a negative shape; the step is halved, counted, and the
    optimum is found.
    """
    graph = problems.log_normal_rate()
    far = Gamma().natural(50.0, 0.1)
    graph.assign(tf.nest.map_structure(lambda part: 0.0 * part, graph.current()))
    for message, value in zip(graph.messages["prior"]["rate"], far):
        message.assign(value)
    report = MeanFieldCVI().minimize(copy.deepcopy(graph))
    assert report.ok and report.shortened > 0
    result = MeanFieldCVI().run(graph, tolerance=1e-20)
    assert result.reason == "converged" and result.shortened_steps > 0 and "halvings" in str(result)
    best, _ = best_rate()
    assert_allclose(rate(graph), best, rtol=1e-6)


@pytest.mark.exhaustive
def test_sampled_messages_are_unbiased():
    """Over 400 seeds the message of the sampled prior averages to the exact one, within four
    standard errors.
    """
    exact, sampled = problems.log_normal_rate(), problems.log_normal_rate(samples=5)
    naturals = {"rate": Gamma().natural(7.0, 3.0)}
    expected = exact.outgoing("prior", naturals, ["rate"], (), SEED)["rate"]

    def message_of(seed: tf.Tensor) -> tf.Tensor:
        return tf.stack(sampled.outgoing("prior", naturals, ["rate"], (), seed)["rate"])

    message = tf.function(message_of, autograph=False)
    draws = np.array([message(tf.constant([seed, 1], tf.int32)) for seed in range(400)])
    assert np.all(draws.std(0) > 0)
    assert np.all(np.abs(draws.mean(0) - expected) < 4 * draws.std(0) / 20)


@pytest.mark.exhaustive
def test_stochastic_gradients_find_the_optimum_and_repeat_themselves():
    runs = []
    for seed, steps in ((0, 100), (0, 3), (1, 3)):
        graph = problems.log_normal_rate(samples=20)
        rule = MeanFieldCVI(lambda step: 0.5 / (1.0 + 0.1 * step), seed=seed)
        runs.append((rule.run(graph, steps=steps, tolerance=0.0).history["elbo"], rate(graph)))
    (first, found), (again, _), (other, _) = runs
    assert_allclose(first[:3], again, rtol=0)
    assert np.all(first[:3] != other)
    best, bound = best_rate()
    assert_allclose(found, best, rtol=0.1)
    late = first[-50:]  # estimates of the bound
    assert abs(np.mean(late) - bound) < 4 * np.std(late) / np.sqrt(50)


@pytest.mark.exhaustive
def test_history_and_state_are_those_of_the_run():
    graph = problems.log_normal_rate()
    result = MeanFieldCVI(0.4).run(graph, steps=5)
    assert list(result.history) == ["step", "seconds", "step_size", "change", "elbo"]
    assert_allclose(result.history["step_size"], 0.4)
    assert result.reason == "steps done" and result.steps == len(result.history["elbo"]) == 5
    assert_allclose(graph.elbo(), result.elbo)
    twin = copy.deepcopy(graph)
    MeanFieldCVI().run(twin)
    assert_allclose(graph.elbo(), result.elbo)
    assert twin.elbo() > graph.elbo()
    assert len(tf.train.Checkpoint(graph=graph).graph.trainable_variables) == 4


@pytest.mark.exhaustive
def test_single_precision_and_xla():
    import gpflow

    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        graph = problems.gamma_poisson()
        MeanFieldCVI().minimize(graph)
        assert rate(graph).dtype == np.float32
        exact = reference.gamma_poisson(problems.COUNTS, 2.0, 0.5)[:2]
        assert_allclose(rate(graph), exact, rtol=1e-6)
    graph = problems.log_normal_rate()
    now, size = Moved.at(graph.current()), tf.constant(0.5, tf.float64)

    def moved() -> Moved:
        return move_groups(graph, now, [["rate"]], size, graph.data, SEED)

    compiled, plain = tf.function(moved, jit_compile=True, autograph=False)(), moved()
    for left, right in zip(tf.nest.flatten(compiled), tf.nest.flatten(plain)):
        assert_allclose(left, right, rtol=1e-9)
