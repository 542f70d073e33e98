"""Minibatches, streams and Monte Carlo: unbiased steps, the visited observations alone, and the
same fixed point.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose

from gpflow_decoupled.bases import site as site_basis
from gpflow_decoupled.errors import DataError
from gpflow_decoupled.models import CVIGP
from gpflow_decoupled.optimizers import ConjugateComputation
from gpflow_decoupled.optimizers.data_passes import by_quadrature, by_sampling
from tests.bounds.registry import matern
from tests.models.conjugate_problems import (
    TREND,
    X,
    conjugate_model,
    gram,
    observations,
    prior_mean,
    problem,
    random_sites,
    sites_on_f,
)
from tests.reference import conjugate as conj
from tests.reference import likelihoods as lik

ROWS = [6, 0, 3]


def _targets(model: CVIGP) -> conj.Sites:
    """Of all observations, from q of all sites."""
    K, m_0 = gram(model), prior_mean(model)
    mean, variance = conj.marginals(K, m_0, sites_on_f(model))
    expect = conj.quadrature(lik.poisson(), model.data[1].numpy()[:, 0], order=60)
    _, g, h = expect(mean, variance)
    return conj.site_target(mean, g, h)


def _centred(sites: conj.Sites, model: CVIGP) -> tuple[np.ndarray, np.ndarray]:
    return sites.nu - sites.tau * prior_mean(model), sites.tau


@pytest.mark.costly(keep=3)
@pytest.mark.parametrize("visited", [len(X), 5, 0])
@pytest.mark.parametrize("update", ["local", "global"])
def test_a_step_is_that_of_the_reference(update, visited):
    """(C20) and (C19), where some sites are zero still: they drop out, (C21)."""
    model = conjugate_model(gl.Poisson())
    random_sites(model)
    for site in (model.basis.nu, model.basis.tau):
        site.assign(site.numpy() * (np.arange(len(X)) < visited)[:, None])
    old, target = sites_on_f(model), _targets(model)
    picked = conj.Sites(target.nu[ROWS], target.tau[ROWS])
    step = conj.local_step if update == "local" else conj.global_step
    nu, tau = _centred(step(old, ROWS, picked, 0.4), model)
    ConjugateComputation(0.4, update=update).minimize(model, ROWS)
    assert_allclose(model.basis.nu.numpy()[:, 0], nu, rtol=1e-8, atol=1e-9)
    assert_allclose(model.basis.tau.numpy()[:, 0], tau, rtol=1e-8, atol=1e-9)


def test_only_visited_observations_are_looked_at(monkeypatch):
    sizes, original = [], site_basis.prior_variance

    def recorded(kernel, inputs, full_cov):
        sizes.append(len(inputs))
        return original(kernel, inputs, full_cov=full_cov)

    monkeypatch.setattr(site_basis, "prior_variance", recorded)
    model, optimizer = conjugate_model(gl.Poisson()), ConjugateComputation(0.5)
    for rows in ([1, 2], [2, 3, 4], [0], [1]):
        optimizer.minimize(model, rows)
    assert sizes == [2, 4, 5, 5]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["Poisson, separate", "Student-t, coregionalised"])
@pytest.mark.parametrize("update", ["local", "global"])
def test_a_batch_of_all_data_is_a_full_step(update, name):
    batch, full = problem(name), problem(name)
    ConjugateComputation(0.4, update=update).minimize(batch, list(range(len(X)))[::-1])
    ConjugateComputation(0.4).minimize(full)
    assert_allclose(batch.basis.nu, full.basis.nu, rtol=1e-9, atol=1e-10)
    assert_allclose(batch.basis.tau, full.basis.tau, rtol=1e-9, atol=1e-10)


@pytest.mark.exhaustive
def test_global_steps_average_to_the_full_step():
    """Over all subsets of all observations but one."""
    steps, model, optimizer = (
        [],
        problem("Poisson, separate"),
        ConjugateComputation(0.05, update="global"),
    )
    start = model.basis.nu.numpy(), model.basis.tau.numpy()
    for rows in combinations(range(len(X)), len(X) - 1):
        model.basis.nu.assign(start[0])
        model.basis.tau.assign(start[1])
        assert optimizer.minimize(model, list(rows)).ok
        steps.append((model.basis.nu.numpy(), model.basis.tau.numpy()))
    full = problem("Poisson, separate")
    ConjugateComputation(0.05).minimize(full)
    nu, tau = (np.mean(part, axis=0) for part in zip(*steps))
    assert np.ptp([step[0] for step in steps], axis=0).min() > 1e-3
    assert_allclose(nu, full.basis.nu, rtol=1e-10, atol=1e-12)
    assert_allclose(tau, full.basis.tau, rtol=1e-10, atol=1e-12)


@pytest.mark.exhaustive
def test_local_steps_of_constant_size_end_at_the_fixed_point():
    """Because at the optimum no minibatch moves anything."""
    batches, full = conjugate_model(gl.Poisson()), conjugate_model(gl.Poisson())
    result = ConjugateComputation(0.7).run(batches, steps=36, batch_size=4)
    ConjugateComputation().run(full, tolerance=1e-24)
    assert_allclose(batches.basis.nu, full.basis.nu, rtol=1e-3, atol=1e-3)
    assert_allclose(batches.elbo(), full.elbo(), rtol=1e-7)
    optimum = full.basis.nu.numpy()
    ConjugateComputation(0.7).minimize(full, [2, 5])
    assert_allclose(full.basis.nu, optimum, rtol=1e-9, atol=1e-9)
    assert result.steps == 36 and result.reason == "steps done"
    known = np.isfinite(result.history["elbo"])
    assert list(np.flatnonzero(known)) == list(range(2, 36, 3))  # the ends of epochs
    assert result.elbo == pytest.approx(float(batches.elbo()))


@pytest.mark.exhaustive
def test_global_steps_that_decay_end_near_the_fixed_point():
    model, full = conjugate_model(gl.Poisson()), conjugate_model(gl.Poisson())
    rule = ConjugateComputation(lambda t: 0.4 / (1.0 + t / 10.0) ** 0.9, update="global")
    rule.run(model, steps=40, batch_size=6)
    ConjugateComputation().run(full)
    assert float(full.elbo()) - 0.1 < float(model.elbo()) <= float(full.elbo()) + 1e-9


@pytest.mark.exhaustive
def test_a_stream_ends_where_training_from_scratch_does():
    Y = observations(gl.Poisson())
    stream = CVIGP((X[:4], Y[:4]), matern(1.3, 0.8), gl.Poisson(), mean_function=TREND)
    rule, scratch = ConjugateComputation(), conjugate_model(gl.Poisson(), Y=Y)
    rule.run(stream)
    for start in (4, 6):
        stream.update((X[start : start + 2], Y[start : start + 2]))
        rule.minimize(stream, [start, start + 1])  # the new points alone
    stream.update((X[8:], Y[8:]))
    for model in (stream, scratch):
        rule.run(model, tolerance=1e-24)
    assert_allclose(stream.basis.nu, scratch.basis.nu, rtol=1e-9, atol=1e-10)
    assert_allclose(stream.elbo(), scratch.elbo(), rtol=1e-12)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["probit", "heteroscedastic", "Student-t, coregionalised"])
def test_sampled_expectations_are_unbiased(name):
    """The mean over many seeds, within four standard errors; and no bias that these hide."""
    model = problem(name)
    state = model.basis.factor(model.kernel)
    variance = 0.1 * state.variance  # so narrow that the quadrature is exact
    exact = by_quadrature(model, state.mean, variance, model.data)
    draw = tf.function(
        lambda seed: by_sampling(model, state.mean, variance, model.data, 400, seed),
        autograph=False,
    )
    draws = [draw(tf.constant([5, step])) for step in range(100)]
    for field in ("value", "g", "h"):
        values = np.stack([getattr(found, field) for found in draws])
        error = values.std(axis=0, ddof=1) / np.sqrt(len(draws))
        expected = getattr(exact, field).numpy()
        assert values.shape[1:] == expected.shape
        assert np.all(np.abs(values.mean(axis=0) - expected) < 4 * error + 1e-3 * np.abs(expected))
        assert error.max() < 0.1 * max(1.0, np.abs(expected).max())


def test_draws_differ_between_observations_and_seeds():
    """One vector of draws for all data would be unbiased too, but noisier."""
    Y = np.ones((len(X), 1))
    model = CVIGP((X, np.concatenate([Y[:-1], 0 * Y[:1]])), matern(1.3, 0.8), gl.Bernoulli())
    zeros, ones = tf.zeros_like(model.basis.nu), tf.ones_like(model.basis.nu)
    first, second = (
        by_sampling(model, zeros, ones, model.data, 3, tf.constant([0, s])).g.numpy()
        for s in (0, 1)
    )
    assert len(np.unique(np.round(np.abs(first), 12))) == len(X)
    assert np.all(first != second)


@pytest.mark.exhaustive
@pytest.mark.parametrize("batch_size", [None, 4])
def test_runs_on_samples_end_near_the_fixed_point(batch_size):
    model, full = conjugate_model(gl.Bernoulli()), conjugate_model(gl.Bernoulli())
    rule = ConjugateComputation(lambda t: 1.0 / (1.0 + 0.1 * t) ** 0.9, samples=30)
    rule.run(model, steps=40, batch_size=batch_size)
    ConjugateComputation().run(full)
    assert float(full.elbo()) - 0.05 < float(model.elbo()) <= float(full.elbo()) + 1e-9
    assert_allclose(model.predict_f(X)[0], full.predict_f(X)[0], atol=0.15)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "options", [{}, {"samples": 5, "step_size": 0.3}], ids=["quadrature", "samples"]
)
def test_a_seed_fixes_the_trace(options):
    traces = []
    for seed in (0, 0, 1):
        model = conjugate_model(gl.Poisson())
        traces.append(
            ConjugateComputation(seed=seed, **options)
            .run(model, steps=6, batch_size=2)
            .history["change"]
        )
    assert_allclose(traces[0], traces[1], rtol=0)
    assert np.abs(traces[0] - traces[2]).max() > 1e-6


@pytest.mark.parametrize("rows, message", [
    ([], "rows has shape \\(0,\\); it must be \\[B\\], the indices of at least one observation"),
    ([[1, 2]], "rows has shape \\(1, 2\\)"),
    ([3, len(X)], f"rows must be indices from 0 to {len(X) - 1}"),
    ([-1], "rows must be indices from 0"),
])  # fmt: skip
def test_rows_that_are_no_rows_change_nothing(rows, message):
    model = problem("Poisson, separate")
    before = model.basis.nu.numpy()
    with pytest.raises(DataError, match=message):
        ConjugateComputation().minimize(model, rows)
    np.testing.assert_array_equal(model.basis.nu, before)


@pytest.mark.parametrize("batch_size", [0, -1, len(X) + 1])
def test_batch_sizes_are_checked(batch_size):
    message = f"batch_size={batch_size} must be from 1 to the number of observations, {len(X)}"
    with pytest.raises(DataError, match=message):
        ConjugateComputation(0.5).run(conjugate_model(gl.Poisson()), batch_size=batch_size)
