"""Multipliers of some observations alone: the bound against brute force, what it reaches, batches,
bad input.
"""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from gpflow_decoupled.errors import DataError, NumericalError
from gpflow_decoupled.models import LCLGLM, LCLGP
from gpflow_decoupled.optimizers import ConstraintSubset, LinearlyConstrainedLagrangian
from gpflow_decoupled.optimizers.lagrangian.constraint_subset import SubsetBound
from tests.bounds.registry import matern
from tests.optimizers.lagrangian.lcl_problems import (
    CONCAVE,
    gram,
    inputs,
    labels,
    model,
    prior_mean,
    randomize,
    site_functions,
)
from tests.reference import lcl

ROWS = np.array([1, 4, 5, 8])


def some_multipliers(built: LCLGP, rows: np.ndarray = ROWS) -> tuple[tf.Tensor, tf.Tensor]:
    """Of the rows [M, L], one lambda of zero; the model is left with these, and zeros elsewhere."""
    randomize(built)
    alpha, lam = (np.zeros(built.basis.alpha.shape) for _ in range(2))
    alpha[rows], lam[rows] = built.basis.alpha.numpy()[rows], built.basis.lam.numpy()[rows]
    lam[rows[0]] = 0.0
    built.basis.alpha.assign(alpha)
    built.basis.lam.assign(lam)
    return tf.constant(alpha[rows]), tf.constant(lam[rows])


def brute_force(name: str, built: LCLGP) -> float:
    """(V1) of the q that the model's multipliers say, with N x N inverses and one integral at a
    time.
    """
    total = 0.0
    for latent in range(built.num_latent_gps):
        K, m_0 = gram(built, latent), prior_mean(built, latent)
        q = lcl.posterior(
            K, m_0, built.basis.alpha.numpy()[:, latent], built.basis.lam.numpy()[:, latent]
        )
        total += lcl.bound(K, m_0, *q, site_functions(name, built, latent))
    return total


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", CONCAVE)
def test_bound_is_that_of_brute_force(name):
    built = model(name, 10, latents=2)
    bound = SubsetBound(built, ROWS, compile=False)
    value = bound.evaluate(*some_multipliers(built)).bound
    assert_allclose(value, brute_force(name, built), atol=1e-7)
    assert_allclose(value, built.elbo(), atol=1e-9)


def with_white_noise(N: int) -> LCLGP:
    """A kernel that depends on whether two rows are one observation, as no kernel of two arrays of
    inputs can.
    """
    kernel = gpflow.kernels.Matern52() + gpflow.kernels.White(0.5)
    return LCLGP((inputs(N), labels("Poisson", inputs(N))), kernel, gpflow.likelihoods.Poisson())


@pytest.mark.exhaustive
def test_white_noise_counts_where_an_observation_meets_itself():
    built = with_white_noise(10)
    multipliers = some_multipliers(built)
    assert_allclose(
        SubsetBound(built, ROWS, compile=False).evaluate(*multipliers).bound,
        built.elbo(),
        atol=1e-9,
    )
    result = ConstraintSubset(10, tolerance=1e-9).run(with_white_noise(10))
    assert_allclose(
        result.elbo,
        LinearlyConstrainedLagrangian(compile=False).run(with_white_noise(10)).elbo,
        atol=1e-3,
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["Poisson", "Laplace"])
def test_gradient_is_that_of_the_value(name):
    """By differences along random directions, at a lambda of zero on one side."""
    built, rng = model(name, 10, latents=2), np.random.default_rng(2)
    bound = SubsetBound(built, ROWS)
    alpha, lam = some_multipliers(built)
    at, h = bound.evaluate(alpha, lam), 1e-5
    along, up = rng.normal(size=alpha.shape), rng.uniform(size=lam.shape)
    ahead = [bound.evaluate(alpha + s * h * along, lam).bound for s in (1.0, -1.0)]
    assert_allclose((ahead[0] - ahead[1]) / (2 * h), np.sum(along * at.g_alpha), rtol=1e-6)
    one, two = (bound.evaluate(alpha, lam + s * h * up).bound - at.bound for s in (1.0, 2.0))
    assert_allclose((4.0 * one - two) / (2 * h), np.sum(up * at.g_lam), rtol=1e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["Poisson", "logit"])
def test_mean_of_all_batches_of_a_partition_is_the_whole(name):
    built = model(name, 12)
    bound = SubsetBound(built, ROWS, compile=False)
    multipliers = some_multipliers(built)
    batches = np.random.default_rng(0).permutation(12).reshape(4, 3)
    parts = [bound.estimate(*multipliers, tf.constant(batch)) for batch in batches]
    for mean, whole in zip(
        (np.mean(part, axis=0) for part in zip(*parts)), bound.evaluate(*multipliers)
    ):
        assert_allclose(mean, whole, rtol=1e-10)
    assert np.std([part.bound for part in parts]) > 1e-2


@pytest.mark.exhaustive
def test_passes_in_blocks_are_one_pass(monkeypatch):
    built = model("Poisson", 11)
    multipliers = some_multipliers(built)
    whole = SubsetBound(built, ROWS, compile=False).evaluate(*multipliers)
    monkeypatch.setattr("gpflow_decoupled.optimizers.lagrangian.constraint_subset._BLOCK", 4)
    for part, other in zip(SubsetBound(built, ROWS).evaluate(*multipliers), whole):
        assert_allclose(part, other, rtol=1e-10)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["Poisson", "logit"])
def test_bound_grows_with_the_subset_up_to_that_of_all(name):
    """Each row is needed: below the best Gaussian for M < N, it for M = N; the model is left with
    what the result says.
    """
    best = LinearlyConstrainedLagrangian(tolerance=1e-6, compile=False).run(model(name, 12)).elbo
    found = []
    for size in (3, 6, 12):
        built = model(name, 12)
        result = ConstraintSubset(size, tolerance=1e-6, seed=3).run(built)
        found.append(result.elbo)
        assert np.sum(built.basis.lam.numpy() != 0.0) <= size and np.all(
            built.basis.lam.numpy() >= 0.0
        )
        assert np.sum(built.basis.alpha.numpy() != 0.0) <= size
        assert_allclose(built.elbo(), result.elbo, atol=1e-9)
        assert (
            result.converged
            and result.reason == "converged"
            and np.all(np.diff(result.history["elbo"]) >= 0.0)
        )
    assert found[0] < found[1] < best - 1e-2
    assert_allclose(found[2], best, atol=1e-4)


@pytest.mark.exhaustive
def test_rows_are_nested_and_a_run_goes_on_from_the_last():
    """Sizes with one seed are nested, so that a larger run starts where the smaller one ended."""
    built, fresh = model("Poisson", 20), model("Poisson", 20)
    small = ConstraintSubset(5, seed=1).run(built)
    rows = np.flatnonzero(built.basis.lam.numpy())
    large = ConstraintSubset(9, seed=1).run(built)
    assert set(rows) <= set(np.flatnonzero(built.basis.alpha.numpy()))
    assert_allclose(large.history["elbo"][0], small.elbo, atol=1e-9)
    assert large.elbo > small.elbo
    given = ConstraintSubset(rows=rows).run(fresh)
    assert_allclose(given.elbo, small.elbo, atol=1e-3)
    assert set(np.flatnonzero(fresh.basis.alpha.numpy())) <= set(rows)
    other = ConstraintSubset(rows=np.setdiff1d(np.arange(20), rows)[:5]).run(
        built
    )  # not from there: from nothing
    assert other.history["elbo"][0] < large.elbo


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["Poisson", "logit"])
def test_batches_reach_what_all_data_do(name):
    """Within 0.2 nats of the bound of L-BFGS-B on the same rows, and the bound is that of all
    data.
    """
    whole = ConstraintSubset(8, seed=2).run(model(name, 30)).elbo
    built = model(name, 30)
    result = ConstraintSubset(8, batch_size=7, steps=600, seed=2).run(built)
    assert result.reason == "steps done" and not result.converged and result.inner_steps == 600
    assert_allclose(built.elbo(), result.elbo, atol=1e-9)
    assert whole - 0.2 < result.elbo < whole + 1e-4
    assert result.elbo > result.history["elbo"][0] + 0.01
    lam = built.basis.lam.numpy()
    assert np.all(lam >= 0.0) and np.sum(np.any(lam > 0.0, axis=1)) == 8


@pytest.mark.exhaustive
def test_batches_are_reproducible():
    one, two, three = (
        ConstraintSubset(rows=ROWS, batch_size=5, steps=4, seed=seed, compile=False)
        .run(model("Poisson", 12))
        .history["elbo"]
        for seed in (1, 1, 2)
    )
    assert_allclose(one, two, rtol=0.0)
    assert not np.allclose(one[1:], three[1:], rtol=1e-9)


@pytest.mark.exhaustive
def test_kernels_of_one_s_own_and_linear_models():
    """A kernel a latent; and the weight form, whose bound is computed by another formula."""
    X = inputs(14)
    kernel = gpflow.kernels.SeparateIndependent([matern(1.0, 0.6), matern(0.5, 1.5)])
    built = LCLGP((X, labels("Poisson", X, 2)), kernel, gpflow.likelihoods.Poisson())
    assert_allclose(ConstraintSubset(6, compile=False).run(built).elbo, built.elbo(), atol=1e-9)
    linear = LCLGLM((X, labels("Poisson", X)), gpflow.likelihoods.Poisson(), intercept_variance=4.0)
    full = LCLGLM((X, labels("Poisson", X)), gpflow.likelihoods.Poisson(), intercept_variance=4.0)
    result = ConstraintSubset(6, compile=False).run(linear)
    assert linear.basis.form == "weight"
    assert_allclose(linear.elbo(), result.elbo, atol=1e-8)
    assert result.elbo < LinearlyConstrainedLagrangian(compile=False).run(full).elbo
    assert np.all(np.isfinite(linear.predict_f(X)[1]))


def test_no_step_forms_an_array_of_all_pairs():
    built = model("Gaussian", 300)
    bound = SubsetBound(built, ROWS, compile=False)
    one = tf.TensorSpec([4, 1], tf.float64)
    graph = (
        tf.function(bound.estimate, autograph=False)
        .get_concrete_function(one, one, tf.TensorSpec([6], tf.int32))
        .graph
    )
    sizes = [
        out.shape.num_elements()
        for op in graph.get_operations()
        for out in op.outputs
        if out.shape.rank
    ]
    assert len(sizes) > 50 and max(size or 0 for size in sizes) <= 300 * 2  # X itself


@pytest.mark.parametrize(
    "options, match",
    [
        ({}, "either size"),
        ({"size": 3, "rows": ROWS}, "either size"),
        ({"size": 0}, "size=0 must be a whole number of at least 1"),
        ({"size": 3, "batch_size": 0}, "batch_size"),
        ({"size": 3, "steps": 0}, "steps"),
        ({"size": 3, "tolerance": 0.0}, "tolerance"),
        ({"size": 3, "learning_rate": float("nan")}, "learning_rate"),
    ],
)
def test_bad_settings(options, match):
    with pytest.raises(DataError, match=match):
        ConstraintSubset(**options)


@pytest.mark.parametrize(
    "options, match",
    [
        ({"size": 11}, "at most 10"),
        ({"size": 3, "batch_size": 11}, "batch_size=11"),
        ({"rows": [1, 2, 1]}, "np.unique"),
        ({"rows": [1, 10]}, "0 to 9"),
        ({"rows": [-1, 3]}, "0 to 9"),
        ({"rows": [0.5]}, "whole numbers"),
        ({"rows": []}, "whole numbers"),
        ({"rows": [[1, 2]]}, "must be"),
    ],
)
def test_what_does_not_fit_the_data(options, match):
    built = model("Poisson", 10)
    with pytest.raises(DataError, match=match):
        ConstraintSubset(**options).run(built)
    assert not np.any(built.basis.alpha)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "likelihood", [gpflow.likelihoods.StudentT(), gpflow.likelihoods.Bernoulli()]
)
def test_refuses_likelihoods_that_are_not_log_concave(likelihood):
    X = inputs(10)
    built = LCLGP((X, labels("logit", X)), matern(1.0, 0.8), likelihood)
    with pytest.raises(DataError, match="not log-concave"):
        ConstraintSubset(3).run(built)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("batch_size", [None, 5])
def test_no_finite_start(batch_size):
    built = model("Poisson", 10, variance=1e5)
    with pytest.raises(NumericalError, match="smaller variance"):
        ConstraintSubset(3, batch_size, steps=3).run(built)
    assert not np.any(built.basis.alpha)
