"""`fit` on nearest-neighbour GPs: climbs on random rows, judged by leave-one-out scores."""

from __future__ import annotations

import itertools
import warnings

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.keras import tf_keras

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError, ModelError, UnknownOptionError
from gpflow_decoupled.models import NNGP
from gpflow_decoupled.optimizers.ascent import INTERRUPTED
from gpflow_decoupled.optimizers.neighbours import (
    Calibration,
    Judged,
    NeighbourRounds,
    neighbour_rounds,
)
from gpflow_decoupled.training.schedules import Limits
from gpflow_decoupled.training.stages import neighbours as neighbour_steps
from gpflow_decoupled.training.stages import neighbours as stage
from gpflow_decoupled.training.stages.mean_on_data import share_of_climbs
from gpflow_decoupled.training.stages.neighbours import NeighbourSteps

pytestmark = pytest.mark.filterwarnings("ignore:The bound still rises")

RNG = np.random.default_rng(2)
X = RNG.uniform(0.0, 1.0, (500, 2))
Y = np.sin(6.0 * X[:, :1]) + 0.1 * RNG.standard_normal((500, 1))
X_TEST = RNG.uniform(0.0, 1.0, (100, 2))
Y_TEST = np.sin(6.0 * X_TEST[:, :1]) + 0.1 * RNG.standard_normal((100, 1))


def model(**options: object) -> NNGP:
    kernel = gpflow.kernels.Matern52(lengthscales=np.ones(2))
    return NNGP((X, Y), kernel, gpflow.likelihoods.Gaussian(0.3), num_neighbours=12, **options)


def values(one: NNGP) -> np.ndarray:
    return np.concatenate([np.ravel(v.numpy()) for v in one.trainable_variables])


def test_fit_learns_and_predicts():
    one = model()
    result = gd.fit(one, evaluation=(X_TEST, Y_TEST), progress=False)
    assert result.converged and result.reason == stage.DONE
    assert 2 <= result.steps <= stage.MOST_CLIMBS
    assert result.history["rmse"][-1] < 0.115
    assert result.history["log_density"][-1] > 0.7
    assert len(result.history["leave_one_out"]) == result.steps
    assert "log likelihood of neighbours" in str(result)
    # of all rows, with the neighbours before the last climb
    assert result.elbo == pytest.approx(float(one.maximum_log_likelihood_objective()), abs=1.0)


def test_noise_at_its_floor_is_warned_of_at_the_end_alone():
    one = NNGP((X, Y), gpflow.kernels.Matern52(), num_neighbours=4)
    one.likelihood.variance.assign(1.005e-6)
    gpflow.set_trainable(one.kernel.variance, False)  # else calibration moves both off the floor
    rounds = NeighbourRounds(one)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rounds.judge()
    with pytest.warns(UserWarning) as caught:
        stage.calibrated(rounds)
    assert any("The noise variance is at its floor" in str(one.message) for one in caught)


def gpml_randn(seed: float, count: int) -> np.ndarray:
    """The normal numbers of GPML's demonstrations, [count, 1]: Park and Miller, Box and Muller."""
    number, uniform = int(seed * 2**31), []
    for _ in range(count):
        number = 7**5 * number % (2**31 - 1)
        uniform.append(number / 2**31)
    first, second = np.split(np.array(uniform), 2)
    size = np.sqrt(-2.0 * np.log(first))
    angle = 2.0 * np.pi * second
    return np.concatenate([size * np.cos(angle), size * np.sin(angle)])[:, None]


def gpml() -> tuple[np.ndarray, np.ndarray]:
    """Rows of demoRegression.m: a Matern 3/2 GP about 0.5 x + 1."""
    x, kernel = gpml_randn(0.3, 20), gpflow.kernels.Matern32(lengthscales=0.25)
    root = np.linalg.cholesky(kernel(x))
    return x, root @ gpml_randn(0.15, 20) + 0.5 * x + 1.0 + 0.1 * gpml_randn(0.2, 20)


def trend(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, 3.0, (20, 1))
    return x, np.sin(4.0 * x) + 1.0 + 0.5 * x + 0.1 * rng.standard_normal(x.shape)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("seed", [None, *range(8)])
def test_few_rows_end_where_lbfgs_on_the_loss_ends(seed: int | None):
    """Judged by four rows of twenty, runs ended at 30 nats for -1; GPML prints 14.13."""
    data = gpml() if seed is None else trend(seed)
    one, other = (
        NNGP(
            data,
            gpflow.kernels.SquaredExponential(),
            gpflow.likelihoods.Gaussian(0.01),
            num_neighbours=19,
        )
        for _ in range(2)
    )
    result = gd.fit(one, progress=False, compile=False)
    loss = other.training_loss_closure(compile=False)
    gpflow.optimizers.Scipy().minimize(loss, other.trainable_variables, compile=False)
    assert result.converged
    assert float(one.training_loss()) < float(loss()) + 1e-4
    if seed is None:
        assert float(one.training_loss()) == pytest.approx(14.13, abs=0.005)


@pytest.mark.exhaustive
def test_a_run_that_finds_nothing_better_predicts_as_before():
    """The value that it reports is near the start's."""
    kernel = gpflow.kernels.Matern52(lengthscales=0.3)
    one = NNGP((X[:, :1], Y), kernel, gpflow.likelihoods.Gaussian(0.01), num_neighbours=12)
    first = gd.fit(one, progress=False)
    before = one.predict_y(X[:50, :1])
    second = gd.fit(one, steps=1, progress=False)  # a warning is an error here
    assert second.elbo == pytest.approx(first.elbo, abs=25.0)
    # variance and lengthscale may move along a ridge of equal scores
    for now, then in zip(one.predict_y(X[:50, :1]), before):
        np.testing.assert_allclose(now, then, rtol=0.1, atol=0.02)


@pytest.mark.exhaustive
def test_same_seed_same_trace():
    ends = []
    for seed in (0, 0, 1):
        one = model()
        gd.fit(one, steps=2, seed=seed, progress=False)
        ends.append(values(one))
    np.testing.assert_array_equal(ends[0], ends[1])
    assert np.max(np.abs(ends[0] - ends[2])) > 1e-6


@pytest.mark.exhaustive
def test_a_limit_of_steps_and_a_limit_of_seconds():
    assert gd.fit(model(), steps=1, progress=False).steps == 1
    with pytest.warns(UserWarning, match="leave-one-out error is"):  # after one iteration
        result = gd.fit(model(), seconds=1e-3, progress=False)
    assert result.steps == 1 and result.reason == "time is up" and not result.converged


def test_a_first_climb_that_is_undone_leaves_the_values_and_a_finite_likelihood(monkeypatch):
    falling = itertools.count()

    def judge(rounds: NeighbourRounds) -> Judged:
        scores = np.full(len(rounds.judges), -float(next(falling)))
        return Judged(scores[0], spread=1.0, error=1.0, scores=scores)

    monkeypatch.setattr(NeighbourRounds, "judge", judge)
    unchanged = lambda it, deadline: Calibration(judge(it), False)  # noqa: E731
    monkeypatch.setattr(NeighbourRounds, "calibrate", unchanged)
    monkeypatch.setattr(stage, "ROWS", 0)  # rows are sampled
    one = model()
    before = values(one)
    result = gd.fit(one, steps=1, progress=False)
    np.testing.assert_array_equal(values(one), before)
    assert result.steps == 1 and np.isfinite(result.elbo)


@pytest.mark.exhaustive
def test_an_interrupt_keeps_what_was_found(monkeypatch):
    one, before = model(), values(model())

    def show(self, text):
        if "iteration 5" in text:
            raise KeyboardInterrupt

    monkeypatch.setattr("gpflow_decoupled.training.options.ProgressLine.show", show)
    result = gd.fit(one, progress=False)
    assert result.reason == INTERRUPTED
    assert np.max(np.abs(values(one) - before)) > 1e-3


@pytest.mark.exhaustive
def test_intervals_that_are_far_off_are_calibrated_with_a_warning(monkeypatch):
    one = model()
    climbed = NeighbourRounds.start

    def overconfident(self, *arguments):
        outcome = climbed(self, *arguments)
        for part in (self.model.kernel.variance, self.model.likelihood.variance):
            part.assign(part.numpy() / 4.0)
        return outcome

    monkeypatch.setattr(NeighbourRounds, "start", overconfident)
    monkeypatch.setattr(neighbour_rounds, "UNCERTAIN", 1.0)  # by the judging rows alone
    with pytest.warns(UserWarning, match="intervals were too narrow"):
        gd.fit(one, steps=1, progress=False)
    assert NeighbourRounds(one).judge().spread == pytest.approx(1.0, abs=0.05)


@pytest.mark.exhaustive
def test_a_warning_does_not_claim_a_calibration_that_was_not_made():
    one = model()
    one.likelihood.variance.assign(3.0)
    gpflow.set_trainable(one.likelihood, False)
    with pytest.warns(UserWarning, match="too wide, and stay so, since the noise"):
        gd.fit(one, steps=1, progress=False)
    assert float(one.likelihood.variance.numpy()) == pytest.approx(3.0)


@pytest.mark.exhaustive
def test_a_standardized_model_is_trained_in_its_units():
    def build(X, Y):
        return NNGP((X, Y), gpflow.kernels.Matern52(lengthscales=np.ones(2)), num_neighbours=12)

    one = gd.Standardized(build, (X, 100.0 * Y + 7.0))
    one.fit(steps=2, progress=False)
    mean, variance = one.predict_y(X_TEST)
    assert np.sqrt(np.mean((mean - (100.0 * Y_TEST + 7.0)) ** 2)) < 12.0
    assert 6.0 < np.sqrt(np.mean(variance)) < 16.0
    with pytest.raises(ModelError, match="no bound of the evidence"):
        one.elbo()


@pytest.mark.exhaustive
def test_several_outputs_and_missing_entries():
    both = np.concatenate([Y, 2.0 * Y**2], axis=1)
    both[::3, 1] = np.nan
    one = NNGP((X, both), gpflow.kernels.Matern52(lengthscales=np.ones(2)), num_neighbours=12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = gd.fit(one, steps=2, progress=False)
    assert np.isfinite(result.elbo)


@pytest.mark.exhaustive
def test_rows_that_all_contradict_others_are_learned_from():
    """A few inputs, each with many outputs: no row is left to draw beside these."""
    x = np.repeat(X[:3], 20, axis=0)
    one = NNGP((x, Y[:60]), gpflow.kernels.Matern52(), num_neighbours=5)
    result = gd.fit(one, steps=2, progress=False, compile=False)
    assert np.isfinite(result.elbo)


@pytest.mark.exhaustive
def test_single_precision():
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        small = NNGP(
            (X.astype(np.float32), Y.astype(np.float32)),
            gpflow.kernels.Matern52(lengthscales=np.ones(2, np.float32)),
            num_neighbours=12,
        )
        assert np.isfinite(gd.fit(small, steps=2, progress=False).elbo)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"natural_gradient": 0.1}, "closed form"),
        ({"optimizer": "lbfgs"}, "L-BFGS climbs"),
        ({"mean_solver": "adam"}, "does not use"),
        ({"initialize": "auto"}, "exact density of random rows"),
    ],
)
def test_options_that_would_be_ignored_are_refused(options, message):
    one = model()
    before = values(one)
    with pytest.raises(UnknownOptionError, match=message):
        gd.fit(one, progress=False, **options)
    np.testing.assert_array_equal(values(one), before)


@pytest.mark.exhaustive
def test_minibatches_climb_the_same_likelihood():
    """One batch of all rows has the gradient of all, and pools follow each other."""
    one = model()
    descent = tf_keras.optimizers.SGD(1.0)
    steps = NeighbourSteps(one, descent, 10_000, 0, compile=False)
    rows, weights = NeighbourRounds(one).samples.sample(6000, 0)
    assert steps.batch_size == len(rows) == 400  # but for the judging rows
    with tf.GradientTape() as tape:
        value = 500 / 400 * tf.reduce_sum(one.log_likelihood(rows, one.neighbours_of(rows)))
    expected = tape.gradient(value, one.trainable_variables)
    before = [variable.numpy() for variable in one.trainable_variables]
    output = steps._climb(tf.range(400))
    assert bool(output.ok)
    np.testing.assert_allclose(output.elbo, value, rtol=1e-9)
    for variable, old, gradient in zip(one.trainable_variables, before, expected):
        np.testing.assert_allclose(variable.numpy() - old, gradient, rtol=1e-7)


@pytest.mark.exhaustive
def test_adam_learns_and_draws_pools(monkeypatch):
    monkeypatch.setattr(neighbour_steps, "_PASSES", 1)
    drawn = []
    draw = NeighbourSteps._draw
    monkeypatch.setattr(
        NeighbourSteps, "_draw", lambda it, number: drawn.append(number) or draw(it, number)
    )
    one = model()
    adam = tf_keras.optimizers.Adam(0.1)
    options = {"steps": 40, "compile": False, "progress": False}
    result = gd.fit(one, optimizer=adam, batch_size=100, **options)
    assert result.steps == 40 and drawn == list(range(1, 10))  # four batches are a pool
    history = result.history["elbo"]
    assert np.mean(history[-10:]) > np.mean(history[:10]) + 100.0
    relevant, other = one.kernel.lengthscales.numpy()
    assert other > 1.5 * relevant
    assert 0.5 * 0.01 < float(one.likelihood.variance.numpy()) < 2.0 * 0.01


@pytest.mark.parametrize("size", [0, 2.5])
def test_a_bad_size_of_a_batch_is_refused(size):
    with pytest.raises(DataError, match="batch_size"):
        gd.fit(model(), batch_size=size, progress=False)


def test_data_and_a_model_with_nothing_to_train_are_refused():
    with pytest.raises(DataError, match=r"model.update\(data\)"):
        gd.fit(model(), (X, Y))
    fixed = model()
    gpflow.set_trainable(fixed, False)
    with pytest.raises(DataError, match="No Parameter of the NNGP is trainable"):
        gd.fit(fixed)


@pytest.mark.exhaustive
def test_a_run_ends_with_the_mean_of_all_rows(monkeypatch):
    one = model(mean="data")
    gd.fit(one, steps=1, progress=False)
    assert one.mean_is_solved
    K = one.kernel(X).numpy() + np.diag(np.full(500, one.likelihood.variance.numpy()))
    expected = one.kernel(X_TEST, X).numpy() @ np.linalg.solve(K, Y)
    np.testing.assert_allclose(one.predict_f(X_TEST)[0], expected, atol=2e-3)

    def interrupted(self, **options):
        raise KeyboardInterrupt

    late = model(mean="data")
    monkeypatch.setattr(type(late), "solve_mean", interrupted)
    result = gd.fit(late, steps=1, progress=False)
    assert result.reason == INTERRUPTED and not late.mean_is_solved
    assert np.max(np.abs(values(late) - values(model()))) > 1e-3


def test_a_limit_of_seconds_leaves_time_for_the_mean():
    one = model(mean="data")
    assert share_of_climbs(one, Limits(None, 1e-9)) == 0.5
    assert 0.99 < share_of_climbs(one, Limits(None, 1e6)) < 1.0
    assert share_of_climbs(one, Limits(3, 1e-9)) == 1.0
    assert share_of_climbs(model(), Limits(None, 1e-9)) == 1.0
