"""A run that ends while the bound still rises says so."""

from __future__ import annotations

import itertools
import warnings

import gpflow
import numpy as np
import pytest

import gpflow_decoupled as gd
from gpflow_decoupled.diagnostics import warn_of_rise
from gpflow_decoupled.optimizers import LabelRounds, SiteRounds

RNG = np.random.default_rng(0)
FEW = np.linspace(-500.0, -400.0, 19)
ENDED = np.concatenate([np.linspace(-900.0, -400.0, 100), np.full(100, -400.0)])
SHORT = ENDED[80:140]
"""A third rises steeply, and then nothing does."""
SLOW = -400.0 + 0.09 * np.arange(200) / 100.0  # 0.009 nats per row a hundred steps
NOISY = -400.0 + 0.3 * np.arange(200) / 100.0 + 20.0 * RNG.normal(size=200)


@pytest.mark.parametrize(
    "elbos",
    [FEW, ENDED, SHORT, SLOW, SLOW[:40], NOISY, NOISY[:60], -ENDED, np.full(200, -np.inf), []],
)
def test_a_bound_that_has_ended_is_not_warned_of(elbos):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_rise(elbos, 10, "Go on.")


@pytest.mark.parametrize("noise, steps", [(0.0, 200), (0.1, 200), (0.0, 99), (0.01, 50), (0.0, 20)])
def test_a_bound_that_rises_is_warned_of(noise, steps):
    elbos = -400.0 + 0.5 * np.arange(steps) / 100.0 + noise * RNG.normal(size=steps)
    with pytest.warns(UserWarning, match=r"still rises: by 0.[456].* nats, 0.0[456].* per row"):
        warn_of_rise(elbos, 10, "Go on.")


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("steps", [30, 100])
def test_a_run_that_is_too_short_says_so(steps):
    X = np.linspace(0.0, 10.0, 40)[:, None]
    Y = 3.0 * np.sin(X) + 0.1 * RNG.normal(size=X.shape)
    basis = gd.bases.CoupledBasis(X[::4], 1)
    model = gd.models.BasisGP(gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(), basis)
    options = {"learning_rate": 0.003, "progress": False}
    with pytest.warns(UserWarning, match="still rises.*Call fit again, or give it more steps"):
        gd.fit(model, (X, Y), steps=steps, **options)


@pytest.mark.exhaustive
@pytest.mark.parametrize("likelihood", ["gaussian", "poisson"])
def test_a_climb_that_is_cut_short_says_so(likelihood):
    """It has not converged either, although its last evaluation ended before the time was up."""
    X = np.linspace(0.0, 10.0, 40)[:, None]
    Y = RNG.poisson(np.exp(1.5 * np.sin(X))).astype(float)
    with pytest.warns(UserWarning, match="still rises: by .* in ten iterations of L-BFGS"):
        result = gd.fit(gd.build(X, Y, likelihood, verbose=False), seconds=1e-3, progress=False)
    assert (result.reason, result.converged) == ("time is up", False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = gd.build(X, Y, likelihood, verbose=False)
        assert gd.fit(model, progress=False).converged
        # a run that begins at the optimum is cut short without a loss
        assert gd.fit(model, steps=2, progress=False).steps == 1
    for steps in (1, 3):
        with pytest.warns(UserWarning, match="still rises"):
            gd.fit(gd.build(X, Y, likelihood, verbose=False), steps=steps, progress=False)
    with pytest.warns(UserWarning, match="still rises: by .* in ten iterations of L-BFGS"):
        gd.fit(gd.build(X, 1e3 * Y, likelihood, verbose=False), steps=12, progress=False)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore:The mean squared standardised")
def test_neighbours_whose_rounds_are_cut_short_say_so():
    X = RNG.uniform(0.0, 10.0, (300, 1))
    Y = np.sin(3.0 * X) + 0.1 * RNG.normal(size=X.shape)
    model = gd.models.NNGP((X, Y), gpflow.kernels.Matern52(), num_neighbours=8)
    with pytest.warns(UserWarning, match="still rises"):
        gd.fit(model, seconds=1e-3, progress=False)


def labels_model(sites: bool) -> gd.models.NNGP:
    X = RNG.uniform(0.0, 10.0, (300, 1))
    Y = (np.sin(2.0 * X) + 0.1 * RNG.normal(size=X.shape) > 0.0).astype(float)
    likelihood = gd.likelihoods.BernoulliLogit() if sites else gd.likelihoods.CategoricalLogit(2)
    latents = 1 if sites else 2
    kernel = gpflow.kernels.Matern52(lengthscales=1.0)
    options = {"num_neighbours": 8, "num_latent_gps": latents}
    return gd.models.NNGP((X, Y), kernel, likelihood, **options)


@pytest.mark.exhaustive
@pytest.mark.parametrize("sites", [False, True])
def test_rounds_of_labels_that_are_cut_short_say_so(sites, monkeypatch):
    with pytest.warns(UserWarning, match="no time to move the hyperparameters|still rises"):
        gd.fit(labels_model(sites), seconds=1e-3, progress=False)
    rounds, found = SiteRounds if sites else LabelRounds, itertools.count()
    has_time = iter([True, False])
    monkeypatch.setattr(rounds, "has_time", lambda *_: next(has_time))
    monkeypatch.setattr(
        rounds, "judge", lambda it: np.full(len(it.judges), 0.1 * next(found) - 9.0)
    )
    with pytest.warns(UserWarning, match="still rises: by .* per row") as caught:
        result = gd.fit(labels_model(sites), progress=False)
    assert len(caught) == 1 and (result.steps, result.converged) == (2, False)
