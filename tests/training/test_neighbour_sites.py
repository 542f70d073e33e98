"""`fit` on sites by neighbours: rounds of passes and climbs, judged by leave-one-out scores."""

from __future__ import annotations

import itertools
import time

import gpflow
import numpy as np
import pytest

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError, UnknownOptionError
from gpflow_decoupled.models import NNGP
from gpflow_decoupled.optimizers import SiteRounds, SiteSweeps
from gpflow_decoupled.optimizers.ascent import INTERRUPTED
from gpflow_decoupled.optimizers.log_climb import LogCoordinates
from gpflow_decoupled.optimizers.neighbours import SweepReport
from gpflow_decoupled.training.stages.neighbour_sites import MOST_ROUNDS

RNG = np.random.default_rng(4)
X = RNG.uniform(size=(400, 3))
LOGITS = 8.0 * np.sin(7.0 * X[:, :1])  # of one column: the others are irrelevant
Y = (RNG.uniform(size=LOGITS.shape) < 1.0 / (1.0 + np.exp(-LOGITS))).astype(float)


def model() -> NNGP:
    kernel = gpflow.kernels.Matern52(lengthscales=np.ones(3))
    likelihood = gd.likelihoods.BernoulliLogit()
    return NNGP((X, Y), kernel, likelihood, num_neighbours=15)


@pytest.mark.exhaustive
def test_fit_learns_kernel_and_sites():
    one = model()
    result = gd.fit(one, evaluation=(X, Y), progress=False)
    assert result.converged and 2 <= result.steps <= MOST_ROUNDS
    assert "leave-one-out log density" in str(result) and result.clipped_sites == 0
    scores = result.history["leave_one_out"]
    assert scores[-1] > scores[0] + 0.05
    lengthscales = one.kernel.lengthscales.numpy()
    assert lengthscales[1:].min() > 3.0 * lengthscales[0]
    # the classes differ by the sign of the first column's sine alone
    probability, _ = one.predict_y(X)
    assert np.mean((probability.numpy() > 0.5) == (LOGITS > 0.0)) > 0.95


def test_a_round_that_predicts_worse_is_undone():
    one = model()
    rounds = SiteRounds(one, rows=50, evaluations=7, compile=False)
    rounds.start()
    rounds.scores.assign(rounds.scores + 1.0)  # nothing can be better
    before = [variable.numpy() for variable in (*rounds.variables, *one.sites)]
    assert not rounds.run(0).kept and rounds.evaluations == 3
    for variable, was in zip((*rounds.variables, *one.sites), before):
        np.testing.assert_array_equal(variable.numpy(), was)


@pytest.mark.exhaustive
def test_parameters_of_the_likelihood_are_learned():
    """Kernel and mean move at fixed sites, which know the likelihood alone."""
    noisy = np.sin(7.0 * X[:, :1]) + 0.2 * np.random.default_rng(5).standard_t(4, (400, 1))
    likelihood = gpflow.likelihoods.StudentT(scale=3.0, df=4.0)
    one = NNGP((X, noisy), gpflow.kernels.Matern52(), likelihood, num_neighbours=15)
    result = gd.fit(one, progress=False)
    assert one.likelihood.scale.numpy() == pytest.approx(0.2, rel=0.1)
    assert result.history["leave_one_out"][-1] > result.history["leave_one_out"][0] + 1.0
    assert one.kernel.lengthscales.numpy() < 1.0  # a long climb ran off, and was shortened
    assert result.clipped_sites > 0 and "clipped sites" in str(result)
    fixed = NNGP(
        (X, noisy), gpflow.kernels.Matern52(), gpflow.likelihoods.StudentT(3.0), num_neighbours=15
    )
    gpflow.set_trainable(fixed.kernel, False)
    assert SiteRounds(fixed, compile=False).has_hyperparameters


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("place", ["climb", "pass"])
def test_an_interrupt_undoes_the_round(place: str, monkeypatch: pytest.MonkeyPatch):
    one = model()
    rounds = SiteRounds(one, rows=50, compile=False)
    rounds.start()
    before = [variable.numpy() for variable in rounds.variables]

    calls = itertools.count()
    gradient = LogCoordinates.gradient

    def second(*arguments: object) -> np.ndarray:
        if next(calls):
            raise KeyboardInterrupt
        return gradient(*arguments)

    def at_once(*_: object) -> None:
        raise KeyboardInterrupt

    where = (LogCoordinates, "gradient") if place == "climb" else (rounds.sweeps, "_pass")
    monkeypatch.setattr(*where, second if place == "climb" else at_once)
    if place == "climb":
        outcome = rounds.run(0)
        assert not outcome.kept and outcome.climbed.reason == INTERRUPTED
    else:
        with pytest.raises(KeyboardInterrupt):
            rounds.run(0)
    for variable, was in zip(rounds.variables, before):
        np.testing.assert_array_equal(variable.numpy(), was)


def test_no_pass_begins_after_the_deadline():
    assert len(SiteSweeps(model(), compile=False).run(9, tolerance=0.0, deadline=0.0).changes) == 1


@pytest.mark.exhaustive
def test_a_pass_ends_at_the_deadline(monkeypatch: pytest.MonkeyPatch):
    """A batch takes one second of a clock that nothing else moves."""
    one, now = model(), [0.0]
    sweeps = SiteSweeps(one, batch_size=len(X) // 5, compile=False)
    moved = sweeps._moved

    def batch(*given: object) -> np.ndarray:
        now[0] += 1.0
        return moved(*given)

    monkeypatch.setattr(sweeps, "_moved", batch)
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    report = sweeps.run(9, tolerance=1e9, deadline=1.5)
    visited = 2 * (len(X) // 5)
    assert report.visited == visited / len(X) and not report.converged
    assert np.count_nonzero(one.sites[0].numpy()) == visited
    assert report.seconds == pytest.approx(2.0 / report.visited)
    assert np.all(np.isfinite(one.predict_y(X)[0]))
    assert sweeps.run(1, tolerance=1e9, deadline=now[0] + 9.0).visited == 1.0


def test_a_pass_that_would_end_too_late_does_not_begin(monkeypatch: pytest.MonkeyPatch):
    """A pass takes one second of a clock that nothing else moves."""
    sweeps, now = SiteSweeps(model(), compile=False), [0.0]

    def passing(*_: object) -> tuple[float, float, int]:
        now[0] += 1.0
        return 1.0, 1.0, 0

    monkeypatch.setattr(sweeps, "_pass", passing)
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    report = sweeps.run(9, deadline=3.5)
    assert len(report.changes) == 3 and report.seconds == 1.0 and report.search == 0.0


def test_rounds_leave_time_for_what_follows_them():
    rounds = SiteRounds(model(), rows=50, compile=False)
    pace = rounds.pace
    pace.passed(2.0, 3.0)
    pace.climbed(40.0, 4)
    pace.judgement = 5.0
    assert pace.after_climb == 10.0 and pace.of_round == 40.0
    assert pace.of_closing(2, False) == 13.0 and pace.of_closing(2, False, 3.0) == 29.0
    assert pace.of_closing(0, True, 0.0) == 45.0
    now = time.perf_counter()
    assert rounds.has_time(now + 60.0) and not rounds.has_time(now + 30.0)
    assert rounds.has_time(float("inf"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("sample, converged", [(False, False), (True, False), (False, True)])
def test_last_passes_that_predict_worse_are_said_and_undone_unless_they_converged(
    sample: bool, converged: bool, monkeypatch: pytest.MonkeyPatch
):
    if sample:
        monkeypatch.setattr("gpflow_decoupled.training.stages.neighbour_sites._MOST_ROWS", 300)
    passes, kept, one = SiteSweeps.run, [], model()
    gpflow.set_trainable(one.kernel, False)

    def run(sweeps: SiteSweeps, *given: int, **options: object) -> SweepReport:
        report = passes(sweeps, *given, **options)
        if given:  # of a round
            kept.append([part.numpy() for part in sweeps.model.sites])
        else:
            nu, precision = sweeps.model.sites
            sweeps.model.assign_sites(np.arange(len(X)), -nu, precision)
            report = report._replace(converged=converged)
        return report

    monkeypatch.setattr(SiteSweeps, "run", run)
    if converged:
        gd.fit(one, progress=False, compile=False)
        assert np.max(np.abs(one.sites[0] - kept[-1][0])) > 0.1
        return
    then = "no other sites" if sample else "were undone"
    with pytest.warns(UserWarning, match=f"passes over the sites lowered .* per row.*{then}"):
        gd.fit(one, progress=False, compile=False)
    if not sample:
        np.testing.assert_array_equal(one.sites, kept[-1])


@pytest.mark.exhaustive
def test_nothing_trainable_leaves_the_kernel():
    one = model()
    gpflow.set_trainable(one.kernel, False)
    result = gd.fit(one, progress=False)
    assert result.steps == 1
    np.testing.assert_array_equal(one.kernel.lengthscales.numpy(), np.ones(3))


def test_options_without_a_meaning_are_refused():
    with pytest.raises(UnknownOptionError, match="batch_size"):
        gd.fit(model(), batch_size=10)
    with pytest.raises(UnknownOptionError, match='become zero, the policy "clip"'):
        gd.fit(model(), negative_precision="damp")
    with pytest.raises(DataError, match="update"):
        gd.fit(model(), (X, Y))


@pytest.mark.exhaustive
def test_draws_move_sites_and_parameters_of_the_likelihood():
    kernel = gpflow.kernels.Matern52(lengthscales=np.ones(X.shape[1]))
    draws = gd.models.MonteCarlo(20, seed=1)
    likelihood = gpflow.likelihoods.StudentT(1.0)
    data = X[:150], X[:150, :1]
    one = gd.models.NNGP(data, kernel, likelihood, num_neighbours=8, expectations=draws)
    result = gd.fit(one, steps=2, progress=False, compile=False)
    assert result.history["leave_one_out"][-1] > result.history["leave_one_out"][0]
    assert int(draws.calls.numpy()) > 0 and float(likelihood.scale.numpy()) != 1.0


@pytest.mark.exhaustive
def test_fit_chooses_the_neighbours_of_predictions():
    """Where boundaries are smooth more rows tell more, and `fit` ends by asking for them."""
    likelihood = gd.likelihoods.BernoulliLogit()
    noisy = (RNG.uniform(size=(400, 1)) < 1.0 / (1.0 + np.exp(-(X[:, :1] - 0.5)))).astype(float)
    kernel = gpflow.kernels.Matern52(variance=4.0, lengthscales=[1.0, 9.0, 9.0])
    gpflow.set_trainable(kernel, False)
    for labels, few, many in ((noisy, 16, 256), (Y, 1, 64)):
        one = NNGP((X, labels), kernel, likelihood, num_neighbours=2, prediction_neighbours="auto")
        assert one.prediction_neighbours == 2
        gd.fit(one, progress=False)
        assert few <= one.prediction_neighbours <= many
        rows = np.arange(400)
        chosen = one.leave_one_out(rows).log_density
        twice = one.leave_one_out(rows, num_neighbours=2 * one.prediction_neighbours).log_density
        assert np.mean(chosen) > np.mean(twice) - 0.01


@pytest.mark.exhaustive
def test_many_rows_learn_from_a_sample_and_find_all_sites(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gpflow_decoupled.training.stages.neighbour_sites._MOST_ROWS", 250)
    one = model()
    result = gd.fit(one, steps=2, progress=False)
    assert result.history["leave_one_out"][-1] > result.history["leave_one_out"][0]
    lengthscales = one.kernel.lengthscales.numpy()
    assert lengthscales[1:].min() > 1.5 * lengthscales[0]
    assert np.mean(one.sites[1].numpy() > 1e-3) > 0.95
    kept = [part.numpy() for part in one.sites]
    assert SiteSweeps(one, compile=False).run(1).changes[0] < 1e-3
    np.testing.assert_allclose(one.sites[0], kept[0], atol=1e-2)
