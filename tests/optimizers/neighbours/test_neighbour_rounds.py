"""L-BFGS on the likelihood of neighbours of random rows."""

from __future__ import annotations

import time

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_decoupled.errors import DataError
from gpflow_decoupled.lbfgs import LBFGSRun
from gpflow_decoupled.models import NNGP
from gpflow_decoupled.optimizers.ascent import INTERRUPTED
from gpflow_decoupled.optimizers.log_climb import LogCoordinates
from gpflow_decoupled.optimizers.neighbours import (
    Judged,
    NeighbourRounds,
    contradictions,
    neighbour_rounds,
)
from gpflow_decoupled.optimizers.neighbours.judgement import (
    _variances_of,
    judge,
    noise_of_duplicates,
    shrunk,
    trust_duplicates,
)
from gpflow_decoupled.optimizers.neighbours.neighbour_rounds import Pace, RowSamples, shorten

RNG = np.random.default_rng(5)
X = RNG.uniform(0.0, 1.0, (600, 3))
NOISE = 0.1
Y = np.sin(6.0 * X[:, :1]) + NOISE * RNG.standard_normal((600, 1))  # two inputs are irrelevant


def model(**options: object) -> NNGP:
    kernel = gpflow.kernels.Matern52(lengthscales=np.ones(3))
    return NNGP((X, Y), kernel, gpflow.likelihoods.Gaussian(0.3), num_neighbours=15, **options)


def values(one: NNGP) -> np.ndarray:
    return np.concatenate([np.ravel(v.numpy()) for v in one.trainable_variables])


def _sees(one: NNGP, rows: np.ndarray, row: int) -> np.ndarray:
    """Which rows have a row among their neighbours, or are it."""
    near = one.neighbours_of(rows, before=False).numpy()[0]
    return (near == row).any(axis=1) | (rows == row)


def test_start_is_on_the_evidence_of_an_exact_gp():
    one = model()
    rows = np.arange(0, 600, 5)
    exact = gpflow.models.GPR((X[rows], Y[rows]), one.kernel, noise_variance=0.3 + 1e-6)
    found = float(one.exact_log_likelihood(rows))
    np.testing.assert_allclose(found, float(exact.log_marginal_likelihood()), rtol=1e-8)


def test_exact_density_leaves_out_what_is_missing():
    missing = np.concatenate([Y, Y + 1.0], axis=1)
    missing[::2, 1] = np.nan
    kernel = gpflow.kernels.Matern52(lengthscales=np.ones(3))
    both = NNGP((X, missing), kernel, num_neighbours=5)
    rows = np.arange(40)
    parts = [
        NNGP((X[kept], missing[kept, column : column + 1]), kernel, num_neighbours=5)
        for column, kept in ((0, rows), (1, rows[1::2]))
    ]
    expected = sum(float(one.exact_log_likelihood(np.arange(len(one.data[0])))) for one in parts)
    np.testing.assert_allclose(float(both.exact_log_likelihood(rows)), expected, rtol=1e-10)


def test_rounds_find_relevant_inputs_and_the_noise():
    one = model()
    rounds = NeighbourRounds(one, rows=400)
    started = rounds.start()
    assert started.kept and started.climbed.value > started.climbed.start
    climbed = rounds.run(0)
    assert climbed.climbed.value > climbed.climbed.start
    relevant, *others = one.kernel.lengthscales.numpy()
    assert min(others) > 4.0 * relevant
    assert 0.8 * NOISE**2 < float(one.likelihood.variance.numpy()) < 1.25 * NOISE**2
    assert rounds.judge().score == pytest.approx(rounds.best, abs=1e-9)


@pytest.mark.exhaustive
def test_same_seed_same_trace_and_fresh_rows_in_each_round():
    ends = []
    for seed in (0, 0, 1):
        one = model()
        NeighbourRounds(one, rows=100, evaluations=3, seed=seed).run(0)
        ends.append(values(one))
    np.testing.assert_array_equal(ends[0], ends[1])
    assert np.max(np.abs(ends[0] - ends[2])) > 1e-6
    rounds = NeighbourRounds(one, rows=100)
    drawn = [rounds.samples.draw(100, number) for number in (1, 2)]
    assert len(np.intersect1d(*drawn)) < 60
    assert len(np.unique(drawn[0])) == 100
    assert not len(np.intersect1d(drawn[0], rounds.judges))  # a round must not see its judges


def test_a_round_that_predicts_worse_is_undone():
    one = model()
    rounds = NeighbourRounds(one, rows=100, evaluations=3)
    rounds.scores.assign(np.full(len(rounds.judges), 1e3))  # no round can be better
    before = values(one)
    outcome = rounds.run(0)
    assert not outcome.kept and outcome.climbed.value > outcome.climbed.start
    np.testing.assert_array_equal(values(one), before)


def test_a_round_may_be_worse_by_chance():
    scores = np.zeros(100)
    rng = np.random.default_rng(0)
    noise = rng.standard_normal(100)
    noise -= noise.mean()
    judged = Judged(0.0, 1.0, 0.1, scores + noise - 0.15)  # a standard error is 0.1
    assert not judged.is_worse(scores)
    assert judged._replace(scores=judged.scores - 0.15).is_worse(scores)
    assert not judged.is_worse(np.full(100, -1e9))


@pytest.mark.exhaustive
def test_the_first_round_is_compared_with_the_given_values():
    one = model()
    rounds = NeighbourRounds(one, rows=100, evaluations=3)
    given = rounds.judge().scores
    assert rounds.start().kept
    np.testing.assert_allclose(rounds.scores.numpy(), given)
    assert rounds.run(0).kept
    assert np.max(np.abs(rounds.scores.numpy() - given)) > 0.1


@pytest.mark.exhaustive
def test_the_mean_of_start_and_end_is_kept_where_it_is_better(monkeypatch):
    one = model()
    rounds = NeighbourRounds(one, rows=100, evaluations=3)
    rounds.run(0)
    points, judged = [rounds._coordinates.pack()], rounds.judge()

    def judge():
        points.append(rounds._coordinates.pack())
        return judged._replace(scores=judged.scores + len(points))

    monkeypatch.setattr(rounds, "judge", judge)
    shown: list[str] = []
    assert rounds.run(1, show=shown.append).kept
    assert "round 2, 200 rows" in shown[0]  # later rounds see twice as many
    start, end, mean = points
    assert np.max(np.abs(end - start)) > 1e-3
    np.testing.assert_allclose(mean, 0.5 * (start + end), rtol=1e-12)
    np.testing.assert_allclose(rounds._coordinates.pack(), mean, rtol=1e-9)


def test_one_row_cannot_outvote_the_others():
    one = model(prediction_neighbours=20)
    one.likelihood.variance.assign(NOISE**2)
    one.kernel.lengthscales.assign([0.5, 50.0, 50.0])
    rounds = NeighbourRounds(one)
    before = rounds.judge()
    spoilt = one.data[1].numpy()
    spoilt[rounds.judges[0]] += 1e4
    one.data = one.data[0], tf.constant(spoilt)
    rows = rounds.judges[:1]
    assert one.leave_one_out(rows).log_density[0] < -1e6
    others = np.delete(rounds.judges, np.flatnonzero(_sees(one, rounds.judges, rows[0])))
    rounds.judges = np.append(others, rows)
    after = rounds.judge()
    assert after.spread < before.spread + 100.0 / len(others) + 0.5
    assert after.score > before.score - 1.0


@pytest.mark.exhaustive
def test_good_values_survive_the_start():
    one = model()
    rounds = NeighbourRounds(one, rows=400)
    rounds.start()
    rounds.run(0)
    score = float(rounds.best)
    again = NeighbourRounds(one, rows=400)
    again.start()
    assert again.judge().score >= score - 0.05


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("factor", [0.3, 4.0])
def test_calibration_makes_variances_right_and_moves_no_mean(factor, monkeypatch):
    monkeypatch.setattr(neighbour_rounds, "UNCERTAIN", 1.0)  # by the judging rows alone
    one = model()
    NeighbourRounds(one, rows=400).start()
    for part in (one.kernel.variance, one.likelihood.variance):
        part.assign(part.numpy() * factor)
    rounds = NeighbourRounds(one)
    mean = one.predict_y(X[:5])[0].numpy()
    (before, done), after = rounds.calibrate(), rounds.judge()
    assert done
    assert abs(np.log(before.spread)) > 0.5
    assert after.spread == pytest.approx(1.0, abs=0.05)  # less than chance explains stays
    assert after.log_density == pytest.approx(before.score, abs=1e-3)
    np.testing.assert_allclose(one.predict_y(X[:5])[0].numpy(), mean, atol=1e-6)


@pytest.mark.costly(keep=1)
@pytest.mark.filterwarnings("ignore:The noise variance is at its floor")
@pytest.mark.parametrize("noise, done", [(1.005e-6, False), (2e-6, True)])
def test_calibration_keeps_the_ratio_of_noise_and_kernel_at_the_floor(noise, done, monkeypatch):
    """Noise that stays while the kernel's variance falls would move the means."""
    monkeypatch.setattr(neighbour_rounds, "UNCERTAIN", 1.0)
    one = model()
    NeighbourRounds(one, rows=400).start()
    one.likelihood.variance.assign(noise)
    one.kernel.variance.assign(one.kernel.variance.numpy() * 1e6)  # far too wide
    mean = one.predict_y(X[:5])[0].numpy()
    assert NeighbourRounds(one).calibrate().done is done
    np.testing.assert_allclose(one.predict_y(X[:5])[0].numpy(), mean, atol=1e-6)
    assert one.likelihood.variance.numpy() > 1.004e-6


def test_errors_beyond_the_bound_speak_against_narrower_variances():
    one = model()
    Y = one.data[1].numpy()
    Y[7] += 50.0
    one.data = one.data[0], tf.constant(Y)
    one.kernel.variance.assign(400.0)
    one.likelihood.variance.assign(4.0)
    judged = NeighbourRounds(one).judge()
    rows = judge(one, np.arange(len(Y)), calibrated=True)
    # bounded at 100, the error of row 7 would count 0.17 on average
    assert judged.spread < 0.01 and rows.spread > 0.5


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("uncertain, judges", [(1.0, 120), (0.01, 600)])
def test_more_rows_calibrate_where_the_judges_are_uncertain(uncertain, judges, monkeypatch):
    one, asked = model(), []
    found = one.leave_one_out
    monkeypatch.setattr(neighbour_rounds, "UNCERTAIN", uncertain)
    monkeypatch.setattr(
        one, "leave_one_out", lambda rows, **_: asked.append(len(np.unique(rows))) or found(rows)
    )
    NeighbourRounds(one).calibrate()
    assert asked[-1] == judges


def test_a_spread_loses_what_chance_explains():
    assert shrunk(1.1, 0.1) == shrunk(0.95, 0.1) == 1.0
    assert shrunk(9.0, 0.01) == pytest.approx(9.0, rel=1e-3)
    narrow, wide = shrunk(1.2, 0.1), shrunk(1.0 / 1.2, 0.1)
    assert 1.1 < narrow < 1.2 and narrow * wide == pytest.approx(1.0)
    assert narrow == pytest.approx(np.exp(np.log(1.2) - 0.01 / np.log(1.2)))


def test_sums_and_products_are_calibrated_as_a_whole():
    parts = [gpflow.kernels.Matern52(), gpflow.kernels.Linear(), gpflow.kernels.Matern12()]
    kernel = parts[0] + parts[1] * parts[2]
    assert _variances_of(kernel) == [parts[0].variance, parts[1].variance]
    # its variance is inside of a power: to multiply it would move means
    assert _variances_of(kernel + gpflow.kernels.Polynomial(degree=2)) is None
    assert _variances_of(gpflow.kernels.Periodic(gpflow.kernels.Matern12())) is None


@pytest.mark.exhaustive
def test_a_variance_that_parts_share_is_multiplied_once():
    kernel = gpflow.kernels.Matern52(lengthscales=np.ones(3)) + gpflow.kernels.Matern12()
    kernel.kernels[1].variance = kernel.kernels[0].variance
    one = NNGP((X, Y), kernel, gpflow.likelihoods.Gaussian(0.3), num_neighbours=5)
    rounds = NeighbourRounds(one)
    before = float(kernel.kernels[0].variance.numpy())
    judged, done = rounds.calibrate()
    assert done
    after = float(kernel.kernels[0].variance.numpy())
    assert after == pytest.approx(before * shrunk(judged.spread, judged.error), rel=1e-9)


def test_a_prediction_that_is_not_finite_scores_least(monkeypatch):
    one = model()
    rounds, found = NeighbourRounds(one, rows=100, evaluations=3), one.leave_one_out
    broken = found(rounds.judges)
    broken = broken._replace(variance=np.nan * broken.variance, log_density=np.full(120, np.nan))
    monkeypatch.setattr(one, "leave_one_out", lambda rows, **_: broken)
    judged = rounds.judge()
    assert judged.score == -10.0
    monkeypatch.setattr(one, "leave_one_out", found)
    rounds.scores.assign(judged.scores)
    assert rounds.run(0).kept


def test_scores_count_as_calibrated_only_where_that_can_be_done():
    one = model()
    rounds = NeighbourRounds(one)
    judged = rounds.judge()
    spread = judged.spread
    assert abs(np.log(spread)) > 0.5
    gain = 0.5 * (spread - 1.0 - np.log(spread))
    assert judged.score == pytest.approx(judged.log_density + gain, rel=1e-9)
    gpflow.set_trainable(one.likelihood, False)
    assert rounds.judge().score == pytest.approx(judged.log_density, rel=1e-9)


@pytest.mark.exhaustive
def test_judging_takes_fewer_neighbours_than_predictions(monkeypatch):
    monkeypatch.setattr(neighbour_rounds, "UNCERTAIN", 1.0)  # by the judging rows alone
    one, asked = model(prediction_neighbours=200), []
    found = one.leave_one_out

    def leave_one_out(rows, *, num_neighbours=None):
        asked.append(num_neighbours)
        return found(rows, num_neighbours=num_neighbours)

    monkeypatch.setattr(one, "leave_one_out", leave_one_out)
    rounds = NeighbourRounds(one)
    rounds.judge()
    rounds.calibrate()  # whose variances are those of predictions
    assert asked == [128, None]


def test_a_fixed_noise_is_not_calibrated():
    one = model()
    gpflow.set_trainable(one.likelihood, False)
    before = values(one)
    assert not NeighbourRounds(one).calibrate().done
    np.testing.assert_array_equal(values(one), before)


@pytest.mark.exhaustive
def test_a_deadline_ends_a_climb_after_an_iteration():
    one = model()
    outcome = NeighbourRounds(one, rows=100).run(0, deadline=time.perf_counter() - 1.0)
    assert outcome.climbed.evaluations <= 4 and np.isfinite(outcome.climbed.value)


@pytest.mark.exhaustive
def test_an_interrupt_keeps_the_best_values():
    one = model()
    shown: list[str] = []

    def show(line: str) -> None:
        shown.append(line)
        if len(shown) == 4:
            raise KeyboardInterrupt

    outcome = NeighbourRounds(one, rows=100).run(0, show=show)
    assert outcome.climbed.reason == INTERRUPTED and outcome.kept
    assert outcome.climbed.value > outcome.climbed.start
    assert "round 1, 100 rows" in shown[0]


@pytest.mark.exhaustive
def test_fine_rounds_have_twice_the_neighbours(monkeypatch):
    one, asked = model(), []
    found = one.neighbours_of

    def neighbours_of(rows, *, before=True, num_neighbours=None):
        asked.append((before, num_neighbours))
        return found(rows, before=before, num_neighbours=num_neighbours)

    monkeypatch.setattr(one, "neighbours_of", neighbours_of)
    NeighbourRounds(one, rows=60, evaluations=2).run(0, fine=True)
    assert asked[0] == (True, 30)


def test_long_lengthscales_of_the_start_are_bounded():
    kernel = gpflow.kernels.Matern52(lengthscales=[1e6, 0.5]) + gpflow.kernels.Linear()
    plain = gpflow.kernels.Matern52(lengthscales=[1e6, 0.5])
    for one in (kernel, plain):
        shorten(one, tf.constant(X[:, :2]))
    longest = np.exp(2.0) * np.sqrt(2.0) * np.std(X[:, 0])
    for one in (kernel.kernels[0], plain):
        np.testing.assert_allclose(one.lengthscales.numpy(), [longest, 0.5], rtol=1e-9)


@pytest.mark.exhaustive
def test_what_is_not_trainable_stays():
    one = model()
    gpflow.set_trainable(one.likelihood, False)
    NeighbourRounds(one, rows=100, evaluations=3).run(0)
    assert float(one.likelihood.variance.numpy()) == pytest.approx(0.3, rel=1e-12)


def test_pairs_of_rows_that_contradict_each_other_are_found():
    inputs = np.array([[0.0], [1.0], [0.0], [2.0], [1.0], [0.0]])
    outputs = np.array([[1.0], [5.0], [1.0], [3.0], [7.0], [1.5]])
    order = np.array([5, 4, 3, 2, 1, 0])  # row 5 comes first
    np.testing.assert_array_equal(contradictions(inputs, outputs, order), [4, 1, 5, 2])
    assert len(contradictions(inputs[:2], outputs[:2], np.arange(2))) == 0


def test_noise_of_rows_with_the_same_inputs():
    """Unbiased: of pairs, and of groups of four."""
    rng = np.random.default_rng(0)
    inputs = np.repeat(rng.uniform(size=(4000, 2)), np.where(np.arange(4000) < 2000, 2, 4), axis=0)
    outputs = np.sin(9.0 * inputs[:, :1]) + 0.3 * rng.standard_normal((len(inputs), 1))
    found = noise_of_duplicates(inputs, outputs, rng.permutation(len(inputs)))
    np.testing.assert_allclose(found, 0.09, rtol=0.1)
    outputs[::5] = np.nan
    found = noise_of_duplicates(inputs, outputs, np.arange(len(inputs)))
    np.testing.assert_allclose(found, 0.09, rtol=0.1)
    assert noise_of_duplicates(X, Y, np.arange(len(X))) == 0.0


@pytest.mark.exhaustive
def test_noise_at_its_floor_is_what_equal_rows_show():
    """Most of them have equal outputs, and a few are far off: a judge of bounded scores prefers no
    noise, and each of the few is then thousands of nats off.
    """
    twice = np.concatenate([X, X[:100]])
    again = np.concatenate([Y, Y[:100] + np.where(np.arange(100) < 4, 1.0, 0.0)[:, None]])
    kernel = gpflow.kernels.Matern12(lengthscales=np.ones(3))
    one = NNGP((twice, again), kernel, gpflow.likelihoods.Gaussian(1.1e-6), num_neighbours=10)
    rounds = NeighbourRounds(one, rows=100, evaluations=3)
    rounds.calibrate()
    assert 0.005 < float(one.likelihood.variance.numpy()) < 0.05
    densities = one.leave_one_out().log_density
    assert densities.min() > -60.0


def test_each_output_has_the_noise_of_its_equal_rows():
    twice = np.concatenate([X, X[:100]])
    one, other = np.concatenate([Y, Y[:100]]), np.concatenate([Y, Y[:100]])
    one[600:604] += 1.0
    likelihood = gpflow.likelihoods.Gaussian(np.array([1.1e-6, 2e-6]))
    both = NNGP(
        (twice, np.hstack([one, other])), gpflow.kernels.Matern12(), likelihood, num_neighbours=10
    )
    trust_duplicates(both)
    np.testing.assert_allclose(likelihood.variance.numpy(), [0.02, 2e-6], rtol=1e-6)


@pytest.mark.exhaustive
def test_contradicting_rows_are_in_each_sample_and_the_estimate_is_unbiased(monkeypatch):
    twice, again = np.concatenate([X, X[:30]]), np.concatenate([Y, Y[:30] + 0.5])
    kernel = gpflow.kernels.Matern52(lengthscales=np.ones(3))
    one = NNGP((twice, again), kernel, gpflow.likelihoods.Gaussian(0.1), num_neighbours=5)
    rounds = NeighbourRounds(one, rows=100, evaluations=1, compile=False)
    assert 40 <= len(rounds.samples.certain) <= 60

    def estimate(sampled: NeighbourRounds, number: int) -> float:
        rows, weights = sampled.samples.sample(sampled.rows, number)
        return float(weights @ one.log_likelihood(rows, one.neighbours_of(rows)).numpy())

    values = [estimate(rounds, number) for number in range(60)]
    seen = np.concatenate([rounds.others, np.zeros(0, int)])
    every = one.log_likelihood(np.sort(seen), one.neighbours_of(np.sort(seen))).numpy()
    C = np.isin(np.sort(seen), rounds.samples.certain)
    expected = every[C].sum() + (len(twice) - C.sum()) * every[~C].mean()
    error = np.std(values) / np.sqrt(len(values))
    assert abs(np.mean(values) - expected) < 5.0 * error
    whole = NeighbourRounds(one, rows=len(twice))  # a sample of all rows is exact
    assert estimate(whole, 0) == pytest.approx(expected, rel=1e-9)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore:There is one observation")
@pytest.mark.filterwarnings("ignore:The noise variance is at its floor")
@pytest.mark.parametrize("size", [1, 2, 7])
def test_a_few_rows_are_enough(size):
    kernel = gpflow.kernels.Matern52(lengthscales=np.ones(3))
    one = NNGP((X[:size], Y[:size]), kernel, num_neighbours=5)
    rounds = NeighbourRounds(one)
    rounds.start()
    assert np.isfinite(rounds.run(0).climbed.value)
    rounds.calibrate()


@pytest.mark.parametrize("options", [{"rows": 0}, {"evaluations": 1.5}, {"seed": -1}])
def test_numbers_that_count_nothing_are_refused(options):
    with pytest.raises(DataError, match=next(iter(options))):
        NeighbourRounds(model(), **options)


def test_the_pace_of_a_round_is_that_of_the_last_one():
    pace = Pace()
    assert pace.of_round(1000) == pace.of_judgements == pace.of_calibration(2.0) == 0.0
    pace.climbed(rows=100, search=1.0, seconds=10.0, evaluations=5)
    assert pace.of_round(200) == pytest.approx(2.0 + 3 * 200 * 0.02)
    with pace.judging():
        time.sleep(0.02)
    judgement = 0.5 * pace.of_judgements
    assert 0.02 <= judgement < 1.0
    assert pace.of_round(0) == pytest.approx(2.0 * judgement)
    assert pace.of_calibration(2.0) == pytest.approx(4.0 * judgement)


def test_no_round_begins_that_would_move_nothing():
    rounds = NeighbourRounds(model())
    assert rounds.has_time(time.perf_counter() + 1.0)
    rounds._pace.climbed(rows=1, search=1.0, seconds=1.0, evaluations=1)
    assert not rounds.has_time(time.perf_counter() + 1.0)
    assert rounds.has_time(float("inf"))


def test_lengthscales_grow_by_a_bounded_factor_in_a_round():
    one = model()
    one.kernel.lengthscales.assign([0.01, 0.01, 0.01])  # two inputs are irrelevant
    rounds = NeighbourRounds(one, rows=200, evaluations=15)
    rounds.scores.assign(np.full_like(rounds.scores, -10.0))
    rounds.run(0)
    longest = one.kernel.lengthscales.numpy().max()
    assert longest == pytest.approx(0.01 * np.exp(2.0), rel=1e-6)


@pytest.mark.exhaustive
def test_the_first_climb_takes_more_rows_for_more_inputs(monkeypatch):
    counts = []
    monkeypatch.setattr(
        RowSamples, "draw", lambda self, count, number: counts.append(count) or np.arange(20)
    )
    for D in (2, 20, 50):
        data = RNG.standard_normal((60, D)), RNG.standard_normal((60, 1))
        NeighbourRounds(NNGP(data, gpflow.kernels.Matern52(), num_neighbours=3)).start()
    assert counts == [500, 640, 1000]


@pytest.mark.exhaustive
@pytest.mark.parametrize("many", [1_000, 100_000])
def test_with_many_rows_a_round_from_the_given_values_competes(many, monkeypatch):
    """Rows of the same group are alike, which few rows do not show."""
    module = "gpflow_decoupled.optimizers.neighbours.neighbour_rounds"
    for name, value in (("MANY_ROWS", many), ("FIRST_ROWS", 40), ("FIRST_ROWS_OF_INPUT", 1)):
        monkeypatch.setattr(f"{module}.{name}", value)
    rng = np.random.default_rng(0)
    group = rng.integers(300, size=2000)
    X = 0.01 * group[:, None] - 1.5
    Y = rng.standard_normal(300)[group, None] + 0.1 * rng.standard_normal((2000, 1))
    one = NNGP(
        (X, Y), gpflow.kernels.Matern12(), gpflow.likelihoods.Gaussian(0.1), num_neighbours=9
    )
    rounds = NeighbourRounds(one, rows=500)
    outcome = rounds.start()
    assert outcome.kept == (many == 1_000) == (one.likelihood.variance.numpy() < 0.05)
    assert not outcome.kept or outcome.judged.score == rounds.judge().score > rounds.best + 0.1


def test_an_interrupt_of_the_other_start_is_not_lost(monkeypatch):
    """It ends the run even where the first climb was better, whose values stay."""
    module = "gpflow_decoupled.optimizers.neighbours.neighbour_rounds"
    monkeypatch.setattr(f"{module}.MANY_ROWS", 100)
    X = RNG.uniform(-3.0, 3.0, (400, 1))
    one = NNGP((X, np.sin(3.0 * X)), gpflow.kernels.Matern52(), num_neighbours=9)
    rounds, climb, first = NeighbourRounds(one, rows=100), NeighbourRounds._climb, []

    def interrupted(*arguments: object) -> LBFGSRun:
        found = climb(*arguments)
        one.likelihood.variance.assign(9.0)
        return found._replace(reason=INTERRUPTED)

    def restored(self: LogCoordinates, numbers: list[np.ndarray]) -> None:
        first.append(self.numbers())
        restore(self, numbers)

    restore = LogCoordinates.restore
    monkeypatch.setattr(NeighbourRounds, "_climb", interrupted)
    monkeypatch.setattr(LogCoordinates, "restore", restored)
    outcome = rounds.start()
    assert outcome.kept and outcome.climbed.reason == INTERRUPTED
    assert outcome.judged.score == rounds.judge().score
    np.testing.assert_array_equal(rounds._coordinates.numbers(), first[0])


class _Indefinite(gpflow.kernels.SquaredExponential):
    """Three times the covariances of different rows."""

    def K_r2(self, r2: tf.Tensor) -> tf.Tensor:
        return super().K_r2(r2) * (1.0 + 2.0 * tf.cast(r2 > 1e-9, r2.dtype))


def test_covariances_that_cannot_be_factorised_predict_nothing() -> None:
    """They had a log density of 0, above that of any prediction."""
    few, y = X[:40], np.hstack([Y[:40], X[:40, :1]])
    y[::2, 1] = np.nan
    one = NNGP((few, y), _Indefinite(), gpflow.likelihoods.Gaussian(1e-3), num_neighbours=5)
    assert np.all(np.isnan(one.leave_one_out().log_density))
    assert judge(one, np.arange(40), calibrated=False).score == -10.0
