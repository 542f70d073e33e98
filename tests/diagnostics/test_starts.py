"""Lengthscales to start from, and a word where a run has found no signal."""

from __future__ import annotations

import warnings

import gpflow
import numpy as np
import pytest
from gpflow.kernels import IsotropicStationary, Matern12, Matern52
from scipy.stats import multivariate_normal

import gpflow_decoupled as gd
from gpflow_decoupled.diagnostics import lengthscale_factor, roughness, warn_of_no_signal
from gpflow_decoupled.diagnostics.starts import _FACTORS, _RATIOS
from gpflow_decoupled.models import CVIGP


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
