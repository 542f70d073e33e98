"""Lengthscales to start from, and a word where a run has found no signal."""

from __future__ import annotations

import warnings
from dataclasses import replace

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import IsotropicStationary, Matern12, Matern52
from scipy.stats import multivariate_normal

import gpflow_decoupled as gd
from gpflow_decoupled.diagnostics import (
    lengthscale_factor,
    roughness,
    values_of,
    warn_of_no_signal,
)
from gpflow_decoupled.diagnostics.starts import _FACTORS, _RATIOS
from gpflow_decoupled.models import CVIGP, LCLGP, NNGP, AffineIndependentGP, StateSpaceGP
from gpflow_decoupled.training.schedules import Limits
from gpflow_decoupled.training.stages.stage import Budget, Climb, Clock, Report, StepOutput


def waves(seed: int, rows: int = 200, number: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """Half `number` waves on the unit interval."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(rows, 1))
    return X, np.sin(number * np.pi * X) + 0.1 * rng.standard_normal(X.shape)


def standardised(array: np.ndarray) -> np.ndarray:
    return (array - np.mean(array, axis=0)) / np.std(array, axis=0)


def gains_of(kind: type[IsotropicStationary], X: np.ndarray, Y: np.ndarray) -> dict[float, float]:
    """Nats of standardised Y above those of noise alone, by factor."""

    def evidence(factor: float, ratio: float) -> float:
        C = kind(lengthscales=factor)(X).numpy() + ratio * np.eye(len(X))
        scale = float(np.mean(Y.T @ np.linalg.solve(C, Y))) / len(X)
        return multivariate_normal(cov=scale * C).logpdf(Y[:, 0])

    noise = multivariate_normal(cov=np.eye(len(X))).logpdf(Y[:, 0])
    return {one: max(evidence(one, ratio) for ratio in _RATIOS) - noise for one in _FACTORS}


def test_the_factor_has_half_of_the_best_gain():
    """By dense densities, each at the variance that is best for it."""
    X, Y = map(standardised, waves(0, 60))
    kernel = gpflow.kernels.Matern32()
    gains = gains_of(gpflow.kernels.Matern32, X, Y)
    most = max(gains.values())
    expected = max(one for one, gain in gains.items() if gain > 0.5 * most)
    assert most > 5.0 and expected < 1.0
    assert lengthscale_factor(kernel, X, Y) == expected
    missing = np.vstack([Y, np.full((5, 1), np.nan)])
    assert lengthscale_factor(kernel, np.vstack([X, X[:5] + 9.0]), missing) == expected
    twice = gpflow.kernels.Matern32(7.0, lengthscales=2.0)  # its variance says nothing
    assert lengthscale_factor(twice, X, 1e3 * Y) == expected / 2.0


@pytest.mark.parametrize(
    "Y", [np.random.default_rng(1).standard_normal((100, 1)), np.ones((100, 2)), np.ones((3, 1))]
)
def test_where_nothing_is_clearly_better_the_factor_is_one(Y: np.ndarray):
    assert lengthscale_factor(gpflow.kernels.Matern52(), np.linspace(0, 4, len(Y))[:, None], Y) == 1


def map_of_waves() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 10.0, (3000, 2))
    return X, np.sin(5.0 * X[:, :1]) * np.cos(4.0 * X[:, 1:])


def test_rows_that_are_near_each_other_see_short_waves():
    """300 random ones of 3,000 are too far apart."""
    X, Y = map(standardised, map_of_waves())
    assert lengthscale_factor(gpflow.kernels.Matern52(lengthscales=np.sqrt(2.0)), X, Y) == 1 / 8


def rough_map(seed: int, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X, f and Y, of Matern 1/2."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(rows, 2))
    C = Matern12(lengthscales=0.3)(X).numpy() + 1e-9 * np.eye(rows)
    f = np.linalg.cholesky(C) @ rng.standard_normal((rows, 1))
    return X, f, f + 0.1 * rng.standard_normal(f.shape)


@pytest.mark.exhaustive
def test_roughness_is_what_rows_gain_by_another_kernel():
    """By dense densities; none below three nats, or for a smooth function."""
    X, _, Y = rough_map(5, 100)
    X, Y = standardised(X), standardised(Y)
    expected = max(gains_of(Matern12, X, Y).values()) - max(gains_of(Matern52, X, Y).values())
    assert expected > 3.0
    assert roughness(Matern52(), X, Y) == pytest.approx(expected)
    assert roughness(Matern12(), X, Y) == 0.0
    assert roughness(Matern52(), *map(standardised, waves(0))) == 0.0


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.exhaustive
def test_intervals_of_a_rough_map_cover(seed: int):
    """With Matern 5/2 those of f covered 85 to 87 %."""
    X, f, Y = rough_map(seed, 1000)
    model = gd.build(X[:600], Y[:600], verbose=False)
    gd.fit(model, progress=False)
    mean, variance = model.predict_f(X[600:])
    assert np.mean(np.abs(mean - f[600:]) < 1.96 * np.sqrt(variance)) > 0.925


@pytest.mark.exhaustive
def test_build_takes_a_rough_kernel_where_that_is_clear(capsys):
    """By default, on few rows with Gaussian noise, and it says so."""
    X, _, Y = rough_map(0, 400)
    assert isinstance(gd.build(X, Y).kernel, Matern12)
    said = capsys.readouterr().out
    assert "kernel Matern 1/2, as Y is rough: some rows have" in said and "nats more" in said
    assert isinstance(gd.build(X, Y, kernel=lambda _: Matern52()).kernel, Matern52)
    assert isinstance(gd.build(X, 1.0 * (Y > 0.0), "bernoulli").kernel, Matern52)
    assert isinstance(gd.build(*waves(0)).kernel, Matern52)
    assert "rough" not in capsys.readouterr().out


SEEDS = [
    pytest.param(seed, marks=[] if seed in (0, 6) else [pytest.mark.exhaustive])
    for seed in range(12)
]


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", SEEDS)
def test_a_built_model_finds_short_waves(seed: int):
    """From a lengthscale of one deviation half of these runs ended at a constant, at -220 nats."""
    X, Y = waves(seed)
    model = gd.build(X, Y, verbose=False)
    result = gd.fit(model, progress=False)
    assert result.converged
    truth = gpflow.models.GPR((X, Y), gpflow.kernels.Matern52(0.6, 0.04), noise_variance=0.01)
    assert result.elbo > float(truth.log_marginal_likelihood())
    assert float(model.kernel.lengthscales.numpy()[0]) == pytest.approx(0.04, abs=0.005)


@pytest.mark.exhaustive
@pytest.mark.parametrize("likelihood", ["bernoulli", "multiclass", "poisson", "student_t"])
def test_labels_and_counts_start_from_short_waves_too(likelihood: str):
    X, Y = waves(0)
    y = {
        "bernoulli": 1.0 * (Y > 0.0),
        "multiclass": np.digitize(Y, [-0.5, 0.5]),
        "poisson": np.round(3.0 + 3.0 * Y.clip(-1.0)),
        "student_t": Y,
    }[likelihood]
    model = gd.build(X, y, likelihood, verbose=False)
    assert 0.05 < float(model.kernel.lengthscales.numpy()[0]) / np.std(X) < 0.3


def noisy(X: np.ndarray, Y: np.ndarray) -> CVIGP:
    """A model whose noise is the variance of Y."""
    noise = gpflow.likelihoods.Gaussian(np.var(Y))
    return CVIGP((X, Y), gpflow.kernels.Matern52(1e-3, lengthscales=0.3), noise)


@pytest.mark.exhaustive
def test_noise_that_is_all_of_the_variance_is_warned_of():
    """With a remedy that works where there is a signal."""
    X, Y = waves(0, 40, 8)
    model = noisy(X, Y)
    with pytest.warns(UserWarning, match="variance, 0.[456].*initialize.*then fit again"):
        warn_of_no_signal(model, X, Y)
    gd.training.initialize(model.kernel, model.likelihood, (X, Y))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_no_signal(model, X, Y)
    nothing = np.random.default_rng(0).standard_normal(Y.shape)
    with pytest.warns(UserWarning, match="Shorter lengthscales find nothing either"):
        warn_of_no_signal(noisy(X, nothing), X, nothing)


def by_hand(kind: str, X: np.ndarray, Y: np.ndarray, kernel: gpflow.kernels.Kernel) -> object:
    """A model of waves, at a lengthscale of one range of X."""
    labels, classes = 1.0 * (Y > 0.0), 1.0 * np.digitize(Y, [-0.5, 0.5])
    counts = np.random.default_rng(0).poisson(np.exp(1.0 + Y)).astype(float)
    own, noise = gd.likelihoods.BernoulliLogit, gpflow.likelihoods.Gaussian
    model, y, likelihood = {
        "NNGP": (NNGP, Y, noise(0.1)),
        "NNGP labels": (NNGP, labels, own()),
        "NNGP counts": (NNGP, counts, gpflow.likelihoods.Poisson()),
        "NNGP classes": (NNGP, classes, gd.likelihoods.CategoricalLogit(3)),
        "CVIGP": (CVIGP, Y, noise(0.1)),
        "CVIGP labels": (CVIGP, labels, own()),
        "CVIGP classes": (CVIGP, classes, gd.likelihoods.CategoricalLogit(3)),
        "StateSpaceGP": (StateSpaceGP, Y, noise(0.1)),
        "StateSpaceGP labels": (StateSpaceGP, labels, own()),
        "LCLGP": (LCLGP, labels, own()),
        "AffineIndependentGP": (AffineIndependentGP, labels, own()),
    }[kind]
    return model((X, y), kernel, likelihood, **({"num_neighbours": 30} if model is NNGP else {}))


SHORT = ("CVIGP", "NNGP classes", "LCLGP")
KINDS = [
    pytest.param(kind, marks=[] if kind in SHORT else [pytest.mark.exhaustive])
    for kind in (
        *SHORT, "NNGP", "NNGP labels", "NNGP counts", "CVIGP labels", "CVIGP classes",
        "StateSpaceGP", "StateSpaceGP labels", "AffineIndependentGP",
    )
]  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS)
def test_models_made_by_hand_find_short_waves(kind: str):
    """From a lengthscale of the range of X all of them ended at a constant."""
    X, Y = waves(0)
    model = by_hand(kind, X, Y, Matern52())
    given = {} if kind.startswith(("NNGP", "State")) else {"optimizer": "lbfgs"}
    result = gd.fit(model, progress=False, **given)
    assert result.converged
    assert 0.01 < float(model.kernel.lengthscales.numpy()) < 0.06
    other = by_hand(kind, X, Y, Matern52(lengthscales=0.04))
    near = 0.01 * len(X)  # scores of left-out rows, each of its own rounds
    assert result.elbo > gd.fit(other, progress=False, **given).elbo - near


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "kernel",
    [
        lambda: Matern52() + gpflow.kernels.Linear(),
        lambda: Matern52() * gpflow.kernels.Constant(),
        lambda: gpflow.kernels.SharedIndependent(Matern52(), 1),
    ],
)
def test_lengthscales_inside_of_a_kernel_start_shorter_too(kernel):
    X, Y = waves(0)
    model = by_hand("CVIGP", X, Y, kernel())
    assert gd.fit(model, progress=False, optimizer="lbfgs").elbo > 45.0


@pytest.mark.exhaustive
def test_a_fixed_lengthscale_stays():
    X, Y = waves(0, 50)
    model = by_hand("CVIGP", X, Y, Matern52())
    gpflow.set_trainable(model.kernel.lengthscales, False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gd.fit(model, progress=False, optimizer="lbfgs")
    assert float(model.kernel.lengthscales.numpy()) == pytest.approx(1.0)


@pytest.mark.exhaustive
def test_the_better_of_two_starts_stands():
    """Some rows speak for shorter lengthscales, but from these the climb ends lower."""

    class Two(Climb):
        def __init__(self, ends: tuple[float, float]) -> None:
            self.model, self.ends = by_hand("CVIGP", *waves(0, 100), Matern52()), ends

        @property
        def variables(self) -> list[tf.Variable]:
            return list(self.model.trainable_variables)

        def climb(self, budget: Budget) -> Report:
            shorter = float(self.model.kernel.lengthscales.numpy()) < 0.9
            return Report(StepOutput.sound(self.ends[int(shorter)]), str(int(shorter)))

    budget = Budget(Clock(0.0, Limits(1, None), lambda line: None), 0, 0, [], waves(0, 100))
    for ends, best in (((0.0, -1.0), 0), ((0.0, 1.0), 1), ((np.nan, 1.0), 1), ((0.0, np.nan), 0)):
        stage = Two(ends)
        assert stage.run(budget).reason == str(best)
        assert (float(stage.model.kernel.lengthscales.numpy()) < 0.9) == bool(best)
    stage = Two((0.0, 1.0))
    assert stage.run(replace(budget, first=1)).reason == "0"  # later turns go on


@pytest.mark.parametrize("kind", ["offset", "weight", "noise"])
def test_values_for_least_squares_know_the_numbers_of_rows(kind: str):
    X, Y = waves(0, 30)
    number = {"offset": np.linspace(0.0, 9.0, 30), "weight": np.ones(30), "noise": np.zeros(30)}
    column = number[kind][:, None]
    column[3] = {"offset": 5.0, "weight": 0.0, "noise": 1e12}[kind]
    likelihood = gd.likelihoods.RowLikelihood(gpflow.likelihoods.Gaussian(0.1), [kind])
    values, _ = values_of(np.hstack([Y, column]), likelihood)
    expected = Y - column if kind == "offset" else np.where(np.arange(30)[:, None] == 3, np.nan, Y)
    np.testing.assert_allclose(values, expected)
