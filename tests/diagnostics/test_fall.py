"""A run that lowers the bound says so."""

from __future__ import annotations

import warnings

import gpflow
import numpy as np
import pytest

import gpflow_decoupled as gd
from gpflow_decoupled.diagnostics import warn_of_fall
from gpflow_decoupled.training import run

RISING = np.array([-90.0, -70.0, -60.0, -55.0, -52.0, -51.0])


@pytest.mark.parametrize("exact", [True, False])
def test_a_bound_that_rises_is_not_warned_of(exact):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_fall(RISING, -51.0, 10, exact)
        warn_of_fall(RISING[::-1], -51.9, 10, exact)  # less than 0.1 nats per observation
        warn_of_fall(np.array([]), -51.0, 10, exact)


def test_a_bound_that_falls_is_warned_of():
    with pytest.warns(
        UserWarning, match=r"fell from -51 to -90 nats in 6 steps.*Standardise X and Y"
    ):
        warn_of_fall(RISING[::-1], -90.0, 10, True)


def test_a_bound_that_falls_from_its_best_is_warned_of():
    """Though the end is above the start; steps that climb another bound may lower this one."""
    elbos = np.concatenate([np.linspace(-900.0, -50.0, 60), np.full(40, -300.0)])
    with pytest.warns(
        UserWarning,
        match=r"was -185.* around step 62 and fell to -300 by step 100.*Lower the learning rates",
    ):
        warn_of_fall(elbos, -300.0, 1000, True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_fall(elbos, -300.0, 1000, True, rising=False)
        warn_of_fall(elbos, -200.0, 1000, False)
        warn_of_fall(elbos, -300.0, 10_000, False)


@pytest.mark.exhaustive
@pytest.mark.parametrize("moves", [True, False])
@pytest.mark.parametrize("seed", [0, 2])
def test_many_mean_points_in_one_dimension_do_not_make_the_bound_fall(seed, moves):
    """The quick start of the README: without the floor of the scaling it falls by thousands of
    nats.
    """
    X = np.random.default_rng(seed).uniform(0, 10, (5000, 1))
    noise = 0.1 * np.random.default_rng(seed + 1).standard_normal(X.shape)
    Y = np.sin(X) + 0.3 * np.sin(8 * X) + noise
    model = gd.build(X, Y, num_inducing=30, num_mean_points=100)
    gpflow.set_trainable(model.model.basis.gamma, moves)
    elbos = gd.fit(model, (X, Y), steps=600, progress=False).history["elbo"]
    means = np.mean(np.reshape(elbos, [-1, 25]), axis=1)
    assert np.max(np.maximum.accumulate(means) - means) < 400.0 and means[-1] > 2000.0


def test_estimates_must_fall_by_more_than_they_scatter(rng):
    noisy = -100.0 + 20.0 * rng.normal(size=50)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_fall(noisy, float(noisy[0]) - 30.0, 10, False)
        warn_of_fall(noisy[:4], float(noisy[0]) - 500.0, 10, False)  # too few to judge
    with pytest.warns(UserWarning, match="fell"):
        warn_of_fall(noisy, float(noisy[0]) - 150.0, 10, False)


@pytest.mark.exhaustive
def test_steps_too_long_for_the_inputs_are_warned_of(rng):
    """Inputs of the size 1e-3: the first steps of Adam move each inducing point by thirty
    lengthscales.
    """
    X = 1e-3 * rng.uniform(-5, 5, size=(30, 1))
    Y = np.sin(1e3 * X) + 0.1 * rng.normal(size=(30, 1))
    beta = gpflow.inducing_variables.InducingPoints(np.linspace(-5e-3, 5e-3, 8)[:, None])
    kernel = gpflow.kernels.Matern52(lengthscales=1e-3)
    model = gd.models.BasisGP(
        kernel, gpflow.likelihoods.Gaussian(0.01), gd.bases.CoupledBasis(beta)
    )
    for part in (kernel, model.likelihood, beta):
        gpflow.set_trainable(part, False)
    gd.fit(model, (X, Y), steps=20, progress=False, compile=False)  # q alone
    gpflow.set_trainable(beta, True)
    with pytest.warns(UserWarning, match="The bound fell from"):
        gd.fit(model, (X, Y), steps=6, progress=False, compile=False)


@pytest.mark.exhaustive
@pytest.mark.parametrize("subsample", [None, 2])
def test_a_sampled_norm_of_the_mean_is_named_as_a_cause(subsample, monkeypatch):
    with pytest.warns(UserWarning, match="fell from") as caught:
        warn_of_fall(RISING[::-1], -90.0, 10, True, sampled_rows=subsample)
    assert ("Another cause may be mean_subsample=2" in str(caught[0].message)) == (
        subsample is not None
    )
    seen = []
    monkeypatch.setattr(run, "warn_of_fall", lambda *arguments, **_: seen.append(arguments[5]))
    X = np.linspace(-3.0, 3.0, 20)[:, None]
    kernel, likelihood = gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(0.1)
    model = gd.models.DVGP(kernel, likelihood, X[::2], X[::5], mean_subsample=subsample)
    gd.fit(model, (X, np.sin(3.0 * X)), steps=1, progress=False, compile=False)
    assert seen == [subsample]
