"""Factors of the moments of f, found by left-out classes."""

from __future__ import annotations

import copy

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_decoupled as gd
from gpflow_decoupled.models import NNGP
from gpflow_decoupled.models.neighbours import SiteNNGP
from gpflow_decoupled.optimizers import SiteRounds
from gpflow_decoupled.optimizers.neighbours import SweepReport, calibrate_labels

RNG = np.random.default_rng(2)
X = RNG.uniform(size=(400, 1))
LOGITS = 4.0 * np.sin(7.0 * X)
ROWS = np.arange(400)


def model(likelihood: gpflow.likelihoods.Likelihood | None = None) -> SiteNNGP:
    likelihood = gd.likelihoods.CategoricalLogit(2) if likelihood is None else likelihood
    labels = (RNG.uniform(size=LOGITS.shape) < 1.0 / (1.0 + np.exp(-LOGITS))).astype(float)
    return NNGP((X, labels), gpflow.kernels.Matern52(), likelihood, num_neighbours=10)


@pytest.fixture
def moments(monkeypatch):
    """Left-out moments of f by factors of the true logits, not by the model."""

    def give(mean: float, variance: float) -> None:
        def left_out(self, rows, *_, **__):
            half = 0.5 * mean * LOGITS[rows]
            found = np.hstack([-half, half]), np.full((len(rows), 2), variance)
            return tuple(tf.constant(part) for part in found)

        monkeypatch.setattr(SiteNNGP, "left_out", left_out)

    return give


@pytest.mark.exhaustive
def test_a_mean_that_is_too_small_is_multiplied(moments):
    one = model()
    moments(0.25, 0.01)
    assert calibrate_labels(one, ROWS)
    assert one.mean_factor.numpy() == pytest.approx(4.0, rel=0.25)
    before = one.leave_one_out(ROWS).log_density
    one.mean_factor.assign(1.0)
    one.variance_factor.assign(1.0)
    assert np.mean(before) > np.mean(one.leave_one_out(ROWS).log_density) + 0.05


def test_variances_that_are_too_wide_are_narrowed(moments):
    one = model()
    moments(1.0, 30.0)
    assert calibrate_labels(one, ROWS)
    a, b = (float(factor.numpy()) for factor in one.factors)
    chance = 1.0 / np.sqrt(1.0 + np.pi / 8.0 * 60.0 * b)  # a Gaussian mixture of logistic curves
    assert a * chance == pytest.approx(1.0, rel=0.25)


def test_what_gains_nothing_beyond_chance_stays(moments):
    one = model()
    one.mean_factor.assign(3.0)
    moments(1.0, 0.01)
    assert not calibrate_labels(one, ROWS)
    assert [float(factor.numpy()) for factor in one.factors] == [1.0, 1.0]


@pytest.mark.parametrize("kind", [gpflow.likelihoods.Poisson, gpflow.likelihoods.Bernoulli])
def test_counts_and_two_classes_have_no_factors(kind):
    one = model(kind())
    assert one.factors is None and not calibrate_labels(one, ROWS)


@pytest.mark.parametrize("full_cov", [False, True])
def test_predictions_have_the_factors(full_cov):
    one = model()
    one.update((X[:3] + 0.01, np.ones((3, 1))))  # three sites that say something
    some = tf.constant(X[:5])
    mean, cov = one.predict_f(some, full_cov)
    left = one.left_out(ROWS[:5])
    one.mean_factor.assign(3.0)
    one.variance_factor.assign(0.5)
    for found in (one, copy.deepcopy(one), one.posterior()):
        scaled = found.predict_f(some, full_cov)
        np.testing.assert_allclose(scaled[0], 3.0 * mean)
        np.testing.assert_allclose(scaled[1], 0.5 * cov)
    moments, labels = (3.0 * left[0], 0.5 * left[1]), one.data[1][:5]
    density = one.likelihood.predict_log_density(some, *moments, labels)
    np.testing.assert_allclose(one.leave_one_out(ROWS[:5]).log_density, density)


def test_rounds_begin_without_the_factors_of_other_sites(monkeypatch):
    one = model()
    one.mean_factor.assign(3.0)
    rounds = SiteRounds(one, rows=20, compile=False)
    monkeypatch.setattr(rounds.sweeps, "run", lambda *_, **__: SweepReport([0.0], True))
    rounds.start()
    assert one.mean_factor.numpy() == 1.0
