"""Rows with the same input: with all inputs as neighbours models are the dense ones of all rows."""

from __future__ import annotations

from collections.abc import Callable

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import Kernel, Matern32, White
from gpflow.likelihoods import Bernoulli, Gaussian
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal

from gpflow_decoupled.likelihoods import CategoricalLogit, RowLikelihood
from gpflow_decoupled.models import NNGP
from gpflow_decoupled.optimizers import SiteSweeps
from gpflow_decoupled.pathwise import pathwise_samples

RNG = np.random.default_rng(5)
N, U = 40, 9
PLACES = RNG.normal(size=(U, 2))
ROWS = np.concatenate([np.arange(U), RNG.integers(0, U - 3, N - U)])  # three of them are one row's
X = PLACES[ROWS]
Y = np.sin(2.0 * X) + RNG.normal(scale=[0.2, 0.5], size=(N, 2))
XNEW = RNG.normal(size=(5, 2))
KNOWN = RNG.uniform(0.02, 0.3, size=(N, 1))
JITTER = 1e-6


def _kernel() -> Kernel:
    return Matern32(variance=1.3, lengthscales=[0.7, 1.1])


def _of_inputs() -> Gaussian:
    return Gaussian(scale=gpflow.functions.Linear(A=[[0.05], [0.02]], b=[0.4]))


Case = tuple[Callable[[], Kernel], Callable[[], Gaussian], np.ndarray, bool]
"""Kernel, likelihood, its variances [N, 2], and whether entries are missing."""
_BY_INPUT = np.square(X @ [[0.05], [0.02]] + 0.4) + np.zeros((N, 2))
CASES: dict[str, Case] = {
    "one noise": (_kernel, lambda: Gaussian(0.1), np.full((N, 2), 0.1), False),
    "each row": (_kernel, lambda: Gaussian(KNOWN), KNOWN + np.zeros((N, 2)), False),
    "of inputs": (_kernel, _of_inputs, _BY_INPUT, True),
    "missing": (_kernel, lambda: Gaussian(0.1), np.full((N, 2), 0.1), True),
    "some columns": (
        lambda: Matern32(active_dims=[1]) * gpflow.kernels.Constant(1.2),
        lambda: Gaussian(0.1), np.full((N, 2), 0.1), True,
    ),
    "white": (lambda: _kernel() + White(0.2), lambda: Gaussian(0.1), np.full((N, 2), 0.1), False),
}  # fmt: skip


def _dense(case: Case, Y: np.ndarray, column: int, keep: np.ndarray) -> tuple:
    """Mean, variance of f and log density by rows `keep` of one output, as functions."""
    kernel, noise = case[0](), case[2][keep, column] + JITTER * case[0]()(X[keep], full_cov=False)
    K = kernel(X[keep]).numpy() + np.diag(noise)  # the kernel's white noise is of each row
    trend = lambda inputs: 0.3 * inputs[:, 0] - 0.2  # noqa: E731
    residuals = Y[keep, column] - trend(X[keep])

    def predict(inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        cross = kernel(X[keep], inputs).numpy()
        gain = np.linalg.solve(K, cross)
        variance = kernel(inputs, full_cov=False).numpy() - np.sum(cross * gain, axis=0)
        return trend(inputs) + gain.T @ residuals, variance

    return predict, multivariate_normal.logpdf(residuals, cov=K)


def _observed(case: Case) -> np.ndarray:
    gaps = np.zeros((N, 2), bool)
    if case[3]:  # in one output alone, so that each row is observed once
        gaps[RNG.choice(N, 12, replace=False), 1] = True
    return np.where(gaps, np.nan, Y)


def _model(case: Case, Y: np.ndarray, **options: object) -> NNGP:
    trend = gpflow.functions.Linear(A=[[0.3, 0.3], [0.0, 0.0]], b=[-0.2, -0.2])
    options = {"num_neighbours": N, "mean_function": trend, **options}
    return NNGP((X, Y), case[0](), case[1](), **options)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", [name for name in CASES if name != "one noise"])
def test_all_inputs_as_neighbours_give_the_dense_model(name):
    case = CASES[name]
    Y = _observed(case)
    model, there = _model(case, Y), ~np.isnan(Y)
    rows = np.array([0, U - 1, U + 3])
    left_out, likelihood = model.leave_one_out(rows), 0.0
    predicted = model.predict_f(XNEW)
    for column in range(2):
        keep = np.flatnonzero(there[:, column])
        predict, density = _dense(case, Y, column, keep)
        likelihood += density
        for ours, dense in zip(predicted, predict(XNEW)):
            assert_allclose(ours[:, column], dense, rtol=1e-6, atol=1e-8)
        for place, row in enumerate(rows):
            mean, variance = _dense(case, Y, column, keep[keep != row])[0](X[row : row + 1])
            variance += case[2][row, column] + JITTER * case[0]()(X[:1], full_cov=False)[0]
            assert_allclose(left_out.mean[place, column], mean[0], rtol=1e-6, atol=1e-8)
            assert_allclose(left_out.variance[place, column], variance[0], rtol=1e-6)
    assert_allclose(model.maximum_log_likelihood_objective(), likelihood, rtol=1e-8)
    assert_allclose(model.evidence().lower, likelihood, rtol=1e-6)


@pytest.mark.exhaustive
def test_joint_predictions_draws_and_gradients_know_all_rows():
    case = CASES["one noise"]
    model = _model(case, Y)
    predict, _ = _dense(case, Y, 0, np.arange(N))
    mean, cov = model.predict_f(XNEW, full_cov=True)
    assert_allclose(mean[:, 0], predict(XNEW)[0], rtol=1e-6)
    assert_allclose(tf.linalg.diag_part(cov)[0], predict(XNEW)[1], rtol=1e-6)
    draws = pathwise_samples(model, 1000, num_frequencies=3000, seed=0)(XNEW).numpy()[:, :, 0]
    error = np.sqrt(predict(XNEW)[1] / 1000)
    assert np.all(np.abs(draws.mean(axis=0) - predict(XNEW)[0]) < 5.0 * error)
    assert_allclose(draws.var(axis=0), predict(XNEW)[1], rtol=0.25)
    with tf.GradientTape() as tape:
        loss = model.training_loss()
    slopes = tape.gradient(loss, model.trainable_variables)
    for variable, slope in zip(model.trainable_variables, slopes):
        value, losses = variable.numpy(), []
        for step in (1e-5, -1e-5):
            variable.assign(value + step)
            losses.append(float(model.training_loss()))
        variable.assign(value)
        assert_allclose(np.sum(slope), (losses[0] - losses[1]) / 2e-5, rtol=1e-4, atol=1e-5)


def test_the_spread_is_of_all_rows_of_the_nearest_inputs():
    case, k = CASES["one noise"], 3
    model = _model(case, Y, spread_neighbours=k, prediction_neighbours=k)
    model.spread_factor.assign(1.2)
    model.spread_prior.assign(2.0)
    _, variance, spread = model.posterior().fused_with_spread(XNEW)
    plain = _model(case, Y, prediction_neighbours=k).predict_f(XNEW)[1]
    for row, x in enumerate(XNEW):
        near = np.argsort(np.linalg.norm((PLACES - x) / [0.7, 1.1], axis=1))[:k]
        rows = np.isin(ROWS, near)
        K = case[0]()(X[rows]).numpy() + (0.1 + JITTER * 1.3) * np.eye(rows.sum())
        residuals = Y[rows] - 0.3 * X[rows, :1] + 0.2
        square = np.sum(residuals * np.linalg.solve(K, residuals), axis=0) / rows.sum()
        assert_allclose(spread[row], 1.2 * (2.0 + k * square) / (2.0 + k), rtol=1e-6)
    assert_allclose(variance, plain * spread, rtol=1e-9)


@pytest.mark.exhaustive
def test_new_rows_at_old_inputs_join_them():
    case = CASES["one noise"]
    whole, part = (
        _model(case, Y),
        NNGP((X[:30], Y[:30]), _kernel(), Gaussian(0.1), num_neighbours=4),
    )
    part.maximum_log_likelihood_objective()
    part.update((X[30:], Y[30:]))
    fresh = NNGP((X, Y), _kernel(), Gaussian(0.1), num_neighbours=4)
    fresh._order = part._order
    ours, theirs = (one.maximum_log_likelihood_objective() for one in (part, fresh))
    assert_allclose(ours, theirs, rtol=1e-10)
    assert not np.isclose(ours, whole.maximum_log_likelihood_objective())


def test_rows_share_terms_so_that_random_ones_are_unbiased():
    model = _model(CASES["one noise"], Y, num_neighbours=4)
    rows = np.arange(N)
    terms = model.log_likelihood(rows, model.neighbours_of(rows)).numpy()
    assert_allclose(np.sum(terms), model.maximum_log_likelihood_objective(), rtol=1e-10)
    some = rows[7:19]
    assert_allclose(model.log_likelihood(some, model.neighbours_of(some)), terms[some], rtol=1e-8)


@pytest.mark.exhaustive
@pytest.mark.parametrize("compiled", [False, True])
def test_six_columns_of_yes_and_no_have_64_inputs(compiled, rng):
    """Many of them as far as others: neighbours are the first, in graphs as outside of them."""
    bits = rng.integers(0, 2, size=(3000, 6)).astype(float)
    y = bits @ rng.normal(size=(6, 1)) + 0.5 * rng.normal(size=(3000, 1))
    kernel, new = Matern32(lengthscales=2.0), np.array([[0, 1, 1, 0, 0, 1], [1, 1, 1, 0, 1, 1.0]])
    model = NNGP((bits, y), kernel, Gaussian(0.25), num_neighbours=10)
    predict = tf.function(model.predict_f, autograph=False) if compiled else model.predict_f
    found = predict(tf.constant(new))
    places = np.stack(np.meshgrid(*[[0.0, 1.0]] * 6), axis=-1).reshape(-1, 6)
    count = np.array([np.sum(np.all(bits == one, axis=1)) for one in places])
    value = np.array([np.mean(y[np.all(bits == one, axis=1)]) for one in places])
    first = np.array([np.flatnonzero(np.all(bits == one, axis=1))[0] for one in places])
    for row, x in enumerate(new):
        near = np.lexsort((first, np.sum(np.square(places - x), axis=1)))[:10]
        K = kernel(places[near]).numpy() + np.diag((0.25 + JITTER) / count[near])
        cross = kernel(places[near], x[None]).numpy()[:, 0]
        assert_allclose(found[0][row, 0], cross @ np.linalg.solve(K, value[near]), rtol=1e-8)
        assert_allclose(found[1][row, 0], 1.0 - cross @ np.linalg.solve(K, cross), rtol=1e-8)


@pytest.mark.exhaustive
def test_evidence_of_many_rows_is_that_of_their_inputs(rng):
    inputs = np.repeat(np.linspace(0.0, 3.0, 7), 290)[:, None]
    y = np.sin(inputs) + 0.3 * rng.normal(size=inputs.shape)
    model = NNGP((inputs, y), Matern32(), Gaussian(0.09), num_neighbours=5)
    K = Matern32()(inputs).numpy() + (0.09 + JITTER) * np.eye(len(y))
    half = np.sum(np.log(np.diag(np.linalg.cholesky(K))))
    exact = -0.5 * np.sum(y * np.linalg.solve(K, y)) - half - 0.5 * len(y) * np.log(2.0 * np.pi)
    found = model.evidence()
    assert_allclose((found.lower, found.upper), exact, rtol=1e-8)
    assert found.num_data == len(y)


@pytest.mark.exhaustive
def test_sites_of_rows_with_one_input_add(rng):
    model = NNGP((X, (Y[:, :1] > 0.0).astype(float)), _kernel(), Bernoulli(), num_neighbours=N)
    nu, precision = rng.normal(size=(N, 1)), rng.uniform(0.01, 3.0, size=(N, 1))
    model.assign_sites(tf.range(N), tf.constant(nu), tf.constant(precision))
    K, values = _kernel()(X).numpy(), (nu / precision)[:, 0]
    noise = 1.0 / precision[:, 0] + JITTER * 1.3
    rows = np.arange(N)
    found = tf.reduce_sum(model.log_partition(rows, model.gaussian.neighbours_of(rows)))
    expected = multivariate_normal.logpdf(values, cov=K + np.diag(noise))
    expected += 0.5 * np.sum(np.log(2.0 * np.pi / precision[:, 0]) + values * nu[:, 0])
    assert_allclose(found, expected, rtol=1e-8)
    moments = model.moments()
    for row in (0, U - 1, U + 3):
        keep = rows != row
        gain = np.linalg.solve(K[keep][:, keep] + np.diag(noise[keep]), K[keep, row])
        mean, variance = gain @ values[keep], 1.3 - gain @ K[keep, row]
        shrunk = 1.0 / (1.0 / variance + precision[row, 0])
        assert_allclose(moments.variance[row, 0], shrunk, rtol=1e-6)
        assert_allclose(moments.mean[row, 0], shrunk * (mean / variance + nu[row, 0]), rtol=1e-6)


def test_a_label_is_left_out_of_its_input():
    labels = np.digitize(Y[:, :1], [-0.5, 0.5]).astype(float)
    model = NNGP((X, labels), _kernel(), CategoricalLogit(3), num_neighbours=N)
    rows = np.array([0, U - 1, U + 3])
    targets, noise = model.gaussian.data[1].numpy(), 0.1 + JITTER * 1.3
    found = model.left_out(rows)
    for place, row in enumerate(rows):
        keep = np.arange(N) != row
        K = _kernel()(X[keep]).numpy() + noise * np.eye(N - 1)
        cross = _kernel()(X[keep], X[row : row + 1]).numpy()[:, 0]
        assert_allclose(found[0][place], cross @ np.linalg.solve(K, targets[keep]), rtol=1e-6)
        assert_allclose(found[1][place], 1.3 - cross @ np.linalg.solve(K, cross), rtol=1e-6)


def test_distinct_inputs_are_their_own(rng):
    """No sums are made, minus zero is zero, and noise that is hidden in a product is not shared."""
    model = NNGP((PLACES, Y[:U]), _kernel(), num_neighbours=4)
    assert model.groups[0].copies is None
    zeros = np.array([[0.0], [-0.0], [1.0]])
    model = NNGP((zeros, Y[:3]), Matern32(), num_neighbours=2)
    assert list(model.groups[0].copies.first) == [0, 2]
    hidden = Matern32() * (Matern32() + White())
    assert NNGP((zeros, Y[:3]), hidden, num_neighbours=2).groups[0].copies is None


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("outputs", [1, 2])
def test_rows_of_huge_known_noise_are_no_neighbours(outputs: int):
    """Nine of ten rows say nothing: four neighbours are then four of those that say something."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0.0, 3.0, (200, 1)), axis=0)
    telling = np.arange(200) % 10 == 0
    Y = np.where(telling[:, None], np.sin(2.0 * X) * np.ones(outputs), -9999.0)
    noise = np.where(telling, 0.01, 1e12)[:, None]

    def model(rows: np.ndarray) -> NNGP:
        return NNGP(
            (X[rows], Y[rows]),
            gpflow.kernels.Matern52(),
            gpflow.likelihoods.Gaussian(variance=noise[rows]),
            num_neighbours=4,
        )

    Xnew = np.linspace(0.1, 2.9, 7)[:, None]
    full, few = model(np.arange(200)), model(np.flatnonzero(telling))
    for found, expected in zip(full.predict_f(Xnew), few.predict_f(Xnew)):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    posteriors = full.posterior().predict_f(Xnew), few.posterior().predict_f(Xnew)
    np.testing.assert_allclose(*(mean for mean, _ in posteriors), atol=1e-6)
    near = full.neighbours_of(np.arange(200)).numpy()
    assert telling[near[near >= 0]].all() and (near >= 0).sum() > 3 * 200
    # they count in the likelihood as what they are: noise
    alone = np.sum(-0.5 * np.log(2.0 * np.pi * noise) - 0.5 * Y**2 / noise, axis=1)[~telling]
    found = full.log_likelihood(np.flatnonzero(~telling), near[:, ~telling])
    np.testing.assert_allclose(found, alone, atol=1e-6)


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", ["noise", "weight"])
def test_rows_that_say_nothing_have_no_sites(number: str):
    rng = np.random.default_rng(1)
    X = np.sort(rng.uniform(0.0, 3.0, (100, 1)), axis=0)
    telling = np.arange(100) % 10 == 0
    y = np.where(telling[:, None], np.sin(2.0 * X), -9999.0)
    column = {"noise": np.where(telling, 0.0, 1e12), "weight": 1.0 * telling}[number]
    likelihood = RowLikelihood(gpflow.likelihoods.Gaussian(0.01), [number])
    data = X, np.hstack([y, column[:, None]])
    few = tuple(part[telling] for part in data)
    kernel, Xnew = gpflow.kernels.Matern52(), np.linspace(0.1, 2.9, 7)[:, None]
    moments = []
    for rows in (data, few):
        model = NNGP(rows, kernel, likelihood, num_neighbours=4)
        SiteSweeps(model).run(tolerance=1e-9)
        moments.append(model.predict_f(Xnew))
    np.testing.assert_allclose(moments[0], moments[1], atol=1e-6)
