"""Rounds on left-out labels: what they climb, what they keep, and what ends them."""

from __future__ import annotations

import time

import gpflow
import numpy as np
import pytest

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError, ModelError, UnknownOptionError
from gpflow_decoupled.likelihoods import BernoulliLogit, CategoricalLogit
from gpflow_decoupled.models import NNGP
from gpflow_decoupled.models.neighbours import LabelNNGP
from gpflow_decoupled.models.neighbours.labels import log_densities_of_labels
from gpflow_decoupled.optimizers import LabelRounds
from gpflow_decoupled.optimizers.ascent import INTERRUPTED
from gpflow_decoupled.optimizers.log_climb import LogCoordinates, LogObjective
from gpflow_decoupled.optimizers.neighbours.label_rounds import LabelRound
from gpflow_decoupled.optimizers.neighbours.neighbour_rounds import RowDensities
from gpflow_decoupled.training.stages.neighbour_labels import MOST_CLIMBS

RNG = np.random.default_rng(4)
X = RNG.uniform(size=(400, 3))
HEIGHT = np.sin(7.0 * X[:, :1])  # of one column: the others are irrelevant
Y = np.digitize(HEIGHT, [-0.5, 0.5]).astype(float)


def model(mean: str = "neighbours") -> LabelNNGP:
    kernel = gpflow.kernels.Matern32(lengthscales=np.ones(3))
    return NNGP((X, Y), kernel, CategoricalLogit(3), num_neighbours=10, mean=mean)


@pytest.mark.exhaustive
def test_fit_learns_kernel_and_factors():
    one = model()
    before = [factor.numpy() for factor in one.factors]
    untrained = np.mean(one.left_out_scores(np.arange(400)))
    result = gd.fit(one, progress=False)
    assert result.converged and 2 <= result.steps <= MOST_CLIMBS
    assert "leave-one-out log density" in str(result)
    scores = result.history["leave_one_out"]
    assert scores[-1] >= scores[0] > untrained + 0.1
    lengthscales = one.kernel.lengthscales.numpy()
    assert lengthscales[1:].min() > 3.0 * lengthscales[0]
    assert all(abs(now.numpy() - was) > 1e-3 for now, was in zip(one.factors, before))
    new = np.random.default_rng(5).uniform(size=(300, 3))
    label = np.digitize(np.sin(7.0 * new[:, 0]), [-0.5, 0.5])
    probabilities = one.predict_y(new)[0].numpy()
    assert np.mean(np.argmax(probabilities, axis=1) == label) > 0.95
    assert np.mean(np.log(probabilities[np.arange(300), label])) > -0.2


def test_a_climb_raises_the_log_densities_of_its_rows_which_are_no_judges(
    monkeypatch: pytest.MonkeyPatch,
):
    one, near, seen = model(), RowDensities.near, []

    def watched(self: RowDensities, rows: np.ndarray, *others: object) -> LogObjective:
        seen.append(rows)
        return near(self, rows, *others)

    monkeypatch.setattr(RowDensities, "near", watched)
    rounds = LabelRounds(one, rows=100, evaluations=4, compile=False)
    rounds.scores.assign(rounds.judge())
    climbed = rounds.run(0).climbed
    assert climbed.value > climbed.start
    (rows,) = seen
    assert len(rows) == 100 and not np.isin(rows, rounds.judges).any()
    found = 4.0 * np.sum(one.log_likelihood(rows, one.neighbours_of(rows)))
    # its neighbours were found at the lengthscales of its start
    assert climbed.value == pytest.approx(found, abs=20.0)


@pytest.mark.exhaustive
def test_a_round_that_was_undone_is_the_last(monkeypatch: pytest.MonkeyPatch):
    plain = LabelRounds.run

    def undone(self: LabelRounds, *arguments: object) -> LabelRound:
        return plain(self, *arguments)._replace(kept=False)

    monkeypatch.setattr(LabelRounds, "run", undone)
    result = gd.fit(model(), progress=False, compile=False)
    assert result.steps == 2 and result.converged


def test_a_round_that_predicts_no_better_is_undone():
    one = model()
    rounds = LabelRounds(one, rows=50, evaluations=3, compile=False)
    rounds.scores.assign(np.zeros(80))  # nothing can be better
    before = [variable.numpy() for variable in one.trainable_variables]
    assert not rounds.run(0).kept
    for variable, was in zip(one.trainable_variables, before):
        np.testing.assert_array_equal(variable.numpy(), was)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("mean", ["neighbours", "data"])
def test_calibrated_factors_are_the_best_ones_for_the_judges(mean: str):
    one = model(mean=mean)
    one.mean_factor.assign(40.0)
    rounds = LabelRounds(one, compile=False)
    start = np.log([factor.numpy() for factor in one.factors])
    rounds.calibrate()
    found = np.log([factor.numpy() for factor in one.factors])
    assert found[0] < start[0] - 0.5
    left_out = one.left_out(rounds.judges, mean=mean, exact=True)

    def objective(x: np.ndarray) -> float:
        for factor, value in zip(one.factors, np.exp(x)):
            factor.assign(value)
        moments = [f * m for f, m in zip(one.factors, left_out)]
        data = (part.numpy()[rounds.judges] for part in one.data)
        densities = log_densities_of_labels(one.likelihood, tuple(data), *moments).numpy()
        return float(np.sum(densities) - 0.5 * np.sum(np.square(x - start)))

    best = objective(found)
    np.testing.assert_allclose(best, np.sum(rounds.scores) - 0.5 * np.sum((found - start) ** 2))
    for step in ([0.1, 0.0], [-0.1, 0.0], [0.0, 0.3]):
        assert objective(found + step) < best


def test_calibration_never_makes_predictions_surer():
    one = model()
    one.mean_factor.assign(0.1)
    one.variance_factor.assign(1e-3)
    LabelRounds(one, compile=False).calibrate()
    assert one.mean_factor.numpy() <= 0.1 * (1.0 + 1e-9)
    assert one.variance_factor.numpy() >= 1e-3 * (1.0 - 1e-9)


def test_fixed_factors_are_not_calibrated():
    one = model()
    gpflow.set_trainable(one.mean_factor, False)
    rounds = LabelRounds(one, compile=False)
    before = [factor.numpy() for factor in one.factors]
    assert rounds.calibrate() is not None
    assert one.mean_factor.numpy() == before[0]
    assert one.variance_factor.numpy() >= before[1] * (1.0 - 1e-9)
    gpflow.set_trainable(one.variance_factor, False)
    assert rounds.calibrate() is None


@pytest.mark.exhaustive
def test_fit_ends_with_calibrated_factors():
    one = model()
    result = gd.fit(one, steps=2, progress=False, compile=False)
    rounds = LabelRounds(one, compile=False)
    at_the_end = [factor.numpy() for factor in one.factors]
    nats = float(np.mean(one.left_out_scores(rounds.judges)))
    assert result.elbo == pytest.approx(400.0 * nats)
    assert nats >= result.history["leave_one_out"][-1]
    rounds.calibrate()
    for factor, was in zip(one.factors, at_the_end):
        assert abs(np.log(factor.numpy() / was)) < 0.5


@pytest.mark.exhaustive
@pytest.mark.parametrize("error", [KeyboardInterrupt, None])
def test_an_interrupt_keeps_the_best_point(monkeypatch: pytest.MonkeyPatch, error: object):
    one = model()
    rounds = LabelRounds(one, rows=50, compile=False)
    plain, calls = LogCoordinates.gradient, []

    def third(*arguments: object) -> np.ndarray:
        calls.append(1)
        if len(calls) == 3 and error:
            raise error
        return plain(*arguments)

    monkeypatch.setattr(LogCoordinates, "gradient", third)
    outcome = rounds.run(0)
    assert (outcome.climbed.reason == INTERRUPTED) == bool(error)
    assert outcome.kept and outcome.climbed.value >= outcome.climbed.start


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore:The bound still rises")
def test_limits_of_time():
    rounds = LabelRounds(model(), rows=50, compile=False)
    rounds.scores.assign(rounds.judge())
    assert rounds.run(0, deadline=0.0).climbed.evaluations <= 2
    assert rounds.has_time(float("inf")) and not rounds.has_time(time.perf_counter())
    result = gd.fit(model(), seconds=1e-3, progress=False)
    assert result.steps == 1 and not result.converged


def test_options_without_a_meaning_are_refused():
    with pytest.raises(UnknownOptionError, match="batch_size"):
        gd.fit(model(), batch_size=10)
    with pytest.raises(DataError, match="update"):
        gd.fit(model(), (X, Y))
    fixed = model()
    gpflow.set_trainable(fixed, False)
    with pytest.raises(DataError, match="No Parameter of the NNGP is trainable"):
        gd.fit(fixed)
    with pytest.raises(ModelError, match="LabelRounds takes .* LabelNNGP, and got SiteNNGP"):
        LabelRounds(NNGP((X, Y % 2.0), one_kernel(), BernoulliLogit(), num_neighbours=3))
    with pytest.raises(DataError):
        LabelRounds(model(), rows=0)


def one_kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.Matern32()
