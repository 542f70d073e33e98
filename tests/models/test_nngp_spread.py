"""Variances by the errors nearby: against dense algebra, in every verb, and in `fit`."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.likelihoods import Gaussian
from numpy.testing import assert_allclose

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError
from gpflow_decoupled.models import NNGP
from gpflow_decoupled.models.neighbours.conditionals import LocalSpread, local_spread
from gpflow_decoupled.optimizers.neighbours import NeighbourRounds
from tests.models.serving import loaded, module_of
from tests.reference import neighbours as ref

N, NOISE, JITTER, COUNT, PRIOR = 60, (0.05, 0.2), 1e-6, 8, 2.5
_RNG = np.random.default_rng(5)
X = _RNG.uniform(-2.0, 2.0, (N, 2))
Y = np.sin(2.0 * X) + np.where(X[:, :1] > 0.0, 0.5, 0.05) * _RNG.standard_normal((N, 2))
XNEW = _RNG.uniform(-2.0, 2.0, (7, 2))


def model(Y: np.ndarray = Y, spread: int | None = COUNT, noise: object = NOISE) -> NNGP:
    kernel = gpflow.kernels.Matern52(variance=1.3, lengthscales=[0.8, 1.5])
    one = NNGP(
        (X, Y), kernel, Gaussian(np.array(noise)), num_neighbours=20, spread_neighbours=spread
    )
    if spread is not None:
        one.spread_prior.assign(PRIOR)
    return one


def expected_spread(x: np.ndarray, output: int, rows: np.ndarray, factor: float = 1.0) -> float:
    kernel = model().kernel
    scaled = [array / kernel.lengthscales.numpy() for array in (x, X[rows])]
    c = rows[ref.nearest(*scaled, COUNT)]
    K = kernel(X[c]).numpy()
    K += np.diag(NOISE[output] + JITTER * np.diag(K))
    return factor * (PRIOR + Y[c, output] @ np.linalg.solve(K, Y[c, output])) / (PRIOR + COUNT)


@pytest.mark.exhaustive
def test_variances_are_scaled_by_the_errors_nearby():
    ours, plain = model(), model(spread=None)
    ours.spread_factor.assign(1.7)
    every = np.arange(N)
    spread = [[expected_spread(x, p, every, 1.7) for p in range(2)] for x in XNEW]
    assert np.max(spread) > 3.0 * np.min(spread)
    for predict in ("predict_f", "predict_y"):
        mean, variance = getattr(ours, predict)(XNEW)
        before = getattr(plain, predict)(XNEW)
        assert_allclose(mean, before[0])
        assert_allclose(variance, before[1] * spread, rtol=1e-7)
    some = every[::4]
    left, before = ours.leave_one_out(some), plain.leave_one_out(some)
    spread = [[expected_spread(X[n], p, np.delete(every, n), 1.7) for p in range(2)] for n in some]
    assert_allclose(left.variance, before.variance * spread, rtol=1e-6)
    assert_allclose(ours.training_loss(), plain.training_loss())


def test_rows_that_do_not_exist_are_the_farthest():
    """(N11): three of five neighbours exist, and all are among the nearest three."""
    there = tf.constant([[True, True, True, False, False]])
    found = local_spread(LocalSpread(3, 1.7, PRIOR), tf.constant([[5.0]]), there)
    assert_allclose(found, [[1.7 * (PRIOR + 5.0) / (PRIOR + 3.0)]], rtol=1e-6)


@pytest.mark.exhaustive
def test_held_out_scores_are_of_the_same_variances():
    ours, held_out = model(), (XNEW, np.sin(2.0 * XNEW))
    density = np.mean(ours.predict_log_density(held_out))
    scores = gd.training.held_out_metrics(ours, held_out)
    assert_allclose(scores["log_density"], density)
    result = gd.fit(ours, steps=1, evaluation=held_out, progress=False, compile=False)
    after = np.mean(ours.predict_log_density(held_out))
    assert_allclose(result.history["log_density"][-1], after)


@pytest.mark.exhaustive
def test_joint_covariances_and_posteriors_have_the_same_spreads():
    ours, plain = model(), model(spread=None)
    cov, before = (one.predict_f(XNEW, full_cov=True)[1].numpy() for one in (ours, plain))
    spread = (ours.predict_f(XNEW)[1] / plain.predict_f(XNEW)[1]).numpy().T
    assert_allclose(cov, before * np.sqrt(spread[:, None] * spread[:, :, None]), rtol=1e-6)
    assert_allclose(ours.posterior().predict_f(XNEW)[1], ours.predict_f(XNEW)[1])
    compiled = tf.function(ours.predict_y)(tf.constant(XNEW))
    assert_allclose(compiled[1], ours.predict_y(XNEW)[1])
    stacked = ours.predict_y(np.stack([XNEW, XNEW]))[1]
    assert_allclose(stacked[1], ours.predict_y(XNEW)[1])


@pytest.mark.exhaustive
def test_missing_outputs_tell_nothing():
    gaps = Y.copy()
    gaps[::3, 1] = np.nan
    variance = model(gaps).predict_f(XNEW)[1] / model(gaps, None).predict_f(XNEW)[1]
    rows = np.flatnonzero(~np.isnan(gaps[:, 1]))
    assert_allclose(variance[:, 1], [expected_spread(x, 1, rows) for x in XNEW], rtol=1e-6)
    assert_allclose(variance[:, 0], [expected_spread(x, 0, np.arange(N)) for x in XNEW], rtol=1e-6)


@pytest.mark.exhaustive
def test_saved_model_has_the_spread(tmp_path):
    ours = model()
    ours.spread_factor.assign(1.7)
    module = module_of(ours.posterior("variable"), 2)
    served = loaded(module, tmp_path)
    found = served.predict(tf.constant(XNEW))
    for served, here in zip(found, ours.predict_f(XNEW)):
        assert_allclose(served, here, rtol=1e-12)
    plain = model(spread=None).predict_f(XNEW)[1]
    spread = [[expected_spread(x, p, np.arange(N), 1.7) for p in range(2)] for x in XNEW]
    assert_allclose(found[1], plain * spread, rtol=1e-6)


@pytest.mark.exhaustive
def test_fit_makes_intervals_right_in_both_halves():
    rng = np.random.default_rng(1)
    X = rng.uniform(-2.0, 2.0, (1500, 1))
    y = np.sin(3.0 * X) + np.where(X > 0.0, 0.5, 0.1) * rng.standard_normal((1500, 1))

    def errors(spread: int | None) -> list[float]:
        data, kernel = (X[:1000], y[:1000]), gpflow.kernels.Matern52()
        one = NNGP(data, kernel, num_neighbours=10, prediction_neighbours=64,
                   spread_neighbours=spread)  # fmt: skip
        gd.fit(one, steps=2, progress=False)
        mean, variance = one.predict_y(X[1000:])
        z = np.square(y[1000:] - mean) / variance
        return [float(np.mean(z[half])) for half in (X[1000:] > 0.0, X[1000:] <= 0.0)]

    assert_allclose(errors(64), 1.0, atol=0.4)
    assert errors(None)[1] < 0.3


def calibrated(noise: np.ndarray) -> tuple[float, float]:
    """The prior and the factor for 2,000 outputs that are noise alone."""
    rng = np.random.default_rng(2)
    data = rng.uniform(size=(2000, 1)), noise * rng.standard_normal((2000, 1))
    kernel = gpflow.kernels.Matern52(variance=1e-6)
    one = NNGP(data, kernel, Gaussian(1.0), num_neighbours=20, spread_neighbours=16)
    NeighbourRounds(one).calibrate()
    return float(one.spread_prior.numpy()), float(one.spread_factor.numpy())


def test_outliers_that_nothing_foretells_speak_for_even_variances():
    ordered = np.linspace(0.0, 1.0, 2000)[:, None]
    rng = np.random.default_rng(2)
    places = rng.uniform(size=(2000, 1))
    differs = np.where(places > 0.5, 2.0, 0.5)  # by the inputs of `calibrated`
    prior, factor = calibrated(differs)
    assert prior <= 4.0 and factor == pytest.approx(1.0, abs=0.3)
    outliers = np.where(ordered % 0.01 < 0.0005, 30.0, 0.1)
    assert calibrated(outliers)[0] >= 64.0
    assert calibrated(np.full((2000, 1), 1.0))[0] >= 16.0


def test_rounds_are_judged_without_the_spread():
    """A worse mean must not hide behind wider variances."""
    with_it, without = (NeighbourRounds(model(Y[:, :1], spread, 0.05)) for spread in (COUNT, None))
    with_it.model.spread_factor.assign(3.0)
    assert with_it.judge().score == pytest.approx(without.judge().score, rel=1e-9)
    assert with_it.judge(local=True).score != pytest.approx(without.judge().score, rel=1e-3)


@pytest.mark.filterwarnings("ignore:Y.* is constant")
def test_outputs_without_errors_are_calibrated():
    prior, factor = calibrated(np.zeros((2000, 1)))
    assert factor == pytest.approx(1e-6) and prior >= 1.0


@pytest.mark.parametrize("count", [0, 1.5, -3])
def test_invalid_numbers_are_refused(count):
    with pytest.raises(DataError, match="spread_neighbours"):
        model(spread=count)


def test_other_likelihoods_are_refused():
    with pytest.raises(DataError, match="heteroskedastic"):
        NNGP((X, np.abs(Y[:, :1]).round()), gpflow.kernels.Matern52(), gpflow.likelihoods.Poisson(),
             num_neighbours=5, spread_neighbours=5)  # fmt: skip


def test_more_than_there_are_is_all():
    few = NNGP((X[:3], Y[:3]), gpflow.kernels.Matern52(), num_neighbours=9, spread_neighbours=64)
    assert np.all(few.predict_y(XNEW)[1] > 0.0)
    with pytest.warns(UserWarning, match="one observation"):
        one = NNGP((X[:1], Y[:1]), gpflow.kernels.Matern52(), num_neighbours=9,
                   spread_neighbours=64)  # fmt: skip
    assert np.all(one.predict_y(XNEW)[1] > 0.0)
    assert np.all(np.isfinite(one.leave_one_out().log_density))
