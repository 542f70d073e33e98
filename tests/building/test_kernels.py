"""The choice of a kernel by leave-one-out scores, and what `build` makes of it."""

from __future__ import annotations

from types import SimpleNamespace

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_decoupled as gd
from gpflow_decoupled.building import choice, inside, kernels
from gpflow_decoupled.building.kernels import (
    CANDIDATES,
    NORMAL_SCORES,
    KernelChoice,
    choose_kernel,
)
from gpflow_decoupled.errors import DataError
from gpflow_decoupled.models import CVIGP, NNGP, ODVGP
from gpflow_decoupled.models.neighbours import GaussianNNGP
from gpflow_decoupled.optimizers.neighbours import NeighbourRounds
from gpflow_decoupled.training import NormalScores

RNG = np.random.default_rng(1)
X = RNG.uniform(-2.0, 2.0, (1200, 1))
SMOOTH = np.sin(4.0 * X) + 0.05 * RNG.standard_normal(X.shape)


def rough() -> np.ndarray:
    """A random walk in x, seen with little noise."""
    order = np.argsort(X[:, 0])
    steps = RNG.standard_normal(len(X)) * np.sqrt(np.diff(X[order, 0], prepend=-2.0))
    walk = np.empty(len(X))
    walk[order] = np.cumsum(steps)
    return walk[:, None] + 0.01 * RNG.standard_normal(X.shape)


@pytest.mark.exhaustive
def test_the_best_score_is_chosen(monkeypatch):
    """Of two kernels, by the shortest of runs; a rough kernel for a rough function."""
    monkeypatch.setattr(kernels, "_ROWS", 100)
    monkeypatch.setattr(kernels, "_EVALUATIONS", 3)
    monkeypatch.setattr(kernels, "_JUDGING_NEIGHBOURS", 30)
    two = {name: CANDIDATES[name] for name in ("Matern 1/2", "squared exponential")}
    monkeypatch.setattr(kernels, "CANDIDATES", two)
    found = choose_kernel(X[:300], rough()[:300])
    assert found.name == "Matern 1/2" and set(found.scores) == {*two, NORMAL_SCORES}
    assert found.scores[found.name] == max(found.scores.values())
    assert type(found.kernel) is two[found.name]


def test_a_kernel_without_use_for_a_column_is_handed_on_within_sight_of_it():
    inputs = np.hstack([X[:40], 3.0 * X[:40]])
    kernel = gpflow.kernels.Matern32(lengthscales=[0.5, 1e6])
    model = NNGP((inputs, SMOOTH[:40]), kernel, num_neighbours=5)
    handed = kernels._in_sight(model)
    np.testing.assert_allclose(handed.lengthscales, [0.5, 50.0 * np.ptp(inputs[:, 1])])
    assert kernel.lengthscales.numpy()[1] == pytest.approx(1e6)


def test_the_roughest_of_equals_is_taken():
    noise = np.random.default_rng(0).standard_normal(100)
    noise -= noise.mean()

    def of(mean: float) -> SimpleNamespace:
        return SimpleNamespace(scores=tf.constant(mean + noise * (mean < 1.0)))

    found = {"Matern 5/2": of(1.0), "squared exponential": of(0.7), "Matern 3/2": of(0.85)}
    assert kernels._roughest(found) == "Matern 3/2"  # a standard error is 0.1
    assert kernels._roughest(found | {"Matern 1/2": of(0.82)}) == "Matern 1/2"
    assert kernels._roughest(found | {"Matern 1/2": of(0.78)}) == "Matern 3/2"


@pytest.mark.parametrize("gain, neighbours", [(0.06, 400), (0.04, 256)])
def test_more_rows_predict_where_twice_the_rows_tell_more(gain, neighbours):
    model = NNGP((X[:40], SMOOTH[:40]), gpflow.kernels.Matern32(), num_neighbours=5)
    model.prediction_neighbours = 64

    def judge(local: bool = False) -> SimpleNamespace:
        by_spread = {16: 0.02, 64: 0.0, 128: -0.3}[model.spread_neighbours] if local else 0.0
        score = {64: 1.0, 128: 1.0 + gain}[model.prediction_neighbours]
        return SimpleNamespace(score=score + by_spread)

    rounds = SimpleNamespace(model=model, judge=judge)
    assert kernels._numbers_of_neighbours(rounds) == (neighbours, 16)
    choice = KernelChoice("Matern 3/2", model.kernel, 0.1, {}, prediction_neighbours=neighbours)
    assert choice.prediction_neighbours == neighbours


@pytest.mark.exhaustive
def test_a_limit_of_seconds_ends_the_comparison(monkeypatch):
    monkeypatch.setattr(kernels, "_ROWS", 100)
    monkeypatch.setattr(kernels, "_EVALUATIONS", 3)
    found = choose_kernel(X[:300], SMOOTH[:300], seconds=1e-3)
    assert list(found.scores) == ["Matern 5/2"] and not found.normal_scores
    with pytest.raises(DataError, match="seconds=0 must be a number above 0"):
        gd.build(X, SMOOTH, kernel="auto", seconds=0)


@pytest.mark.exhaustive
def test_inputs_with_heavy_tails_are_ranked():
    heavy = np.exp(3.0 * X)
    found = choose_kernel((heavy - heavy.mean()) / heavy.std(), SMOOTH)
    assert found.normal_scores
    assert found.scores[NORMAL_SCORES] > found.scores[found.name] + 0.02


@pytest.mark.exhaustive
def test_a_rough_function_gets_a_rough_kernel_and_a_smooth_one_a_smooth_kernel():
    found = choose_kernel(X, rough())
    assert found.name == "Matern 1/2" and set(found.scores) == {*CANDIDATES, NORMAL_SCORES}
    assert found.scores[found.name] == max(found.scores.values())
    assert type(found.kernel) is CANDIDATES[found.name]
    # in three columns rows lie far apart, so that with little noise the kernels differ
    rng = np.random.default_rng(2)
    inputs = rng.uniform(-2.0, 2.0, (1200, 3))
    smooth = np.sin(2.0 * inputs).sum(axis=1, keepdims=True)
    found = choose_kernel(inputs, smooth + 0.01 * rng.standard_normal(smooth.shape))
    assert found.name == "squared exponential", found.scores
    assert type(found.kernel) is CANDIDATES[found.name]


@pytest.mark.exhaustive
def test_of_kernels_that_score_alike_the_roughest_is_taken(monkeypatch):
    """Rows that lie close determine a smooth function, whatever the kernel."""
    kept: list[dict[str, NeighbourRounds]] = []
    rule = kernels._roughest
    monkeypatch.setattr(kernels, "_roughest", lambda found: kept.append(dict(found)) or rule(found))
    found = choose_kernel(X, SMOOTH)
    scores = {name: kept[0][name].scores.numpy() for name in kernels._ROUGH_FIRST}
    best = max(scores.values(), key=np.mean)
    alike = [
        name
        for name, one in scores.items()
        if np.mean(best - one) <= 2.0 * np.std(best - one) / np.sqrt(len(one))
    ]
    assert found.name == alike[0]
    assert 0.5 * 0.05**2 < found.noise_variance < 2.0 * 0.05**2


@pytest.fixture
def no_search(monkeypatch):
    """A choice that takes no time."""
    kernel = gpflow.kernels.Matern32(lengthscales=[0.3])
    fixed = KernelChoice("Matern 3/2", kernel, 0.02, {"Matern 3/2": 1.25, "Matern 1/2": 0.5})
    monkeypatch.setattr(choice, "choose_kernel", lambda *_, **__: fixed)
    monkeypatch.setattr(inside, "EXACT_ROWS", 1000)


def test_build_says_what_it_chose(no_search, capsys):
    model = gd.build(X, SMOOTH, kernel="auto")
    said = capsys.readouterr().out
    assert "by leave-one-out log density in nats (Matern 3/2 1.250, Matern 1/2 0.500)" in said
    assert "30 nearest earlier ones" in said
    assert "nearest 256, or fewer as leave-one-out asks for at the end of fit" in said
    assert isinstance(model.model, NNGP) and model.model.chooses_neighbours
    assert isinstance(model.model.kernel, gpflow.kernels.Matern32)
    assert float(model.model.likelihood.variance.numpy()) == pytest.approx(0.02)


def test_build_ranks_inputs_where_that_was_chosen(monkeypatch, capsys):
    kernel = gpflow.kernels.Matern32()
    fixed = KernelChoice("Matern 3/2", kernel, 0.02, {"Matern 3/2": 1.0}, True, 77, 16)
    asked: list[dict] = []
    monkeypatch.setattr(
        choice, "choose_kernel", lambda *_, **options: asked.append(options) or fixed
    )
    monkeypatch.setattr(inside, "EXACT_ROWS", 1000)
    model = gd.build(X, SMOOTH, kernel="auto", seconds=9.0)
    assert len(asked) == 1 and asked[0]["seconds"] == 9.0
    assert isinstance(model.inputs, NormalScores)
    assert model.model.prediction_neighbours == 77 and not model.model.chooses_neighbours
    assert model.model.spread_neighbours == 16
    np.testing.assert_allclose(model.model.data[0], NormalScores(X).transform(X))
    said = capsys.readouterr().out
    assert "kernel Matern 3/2 of inputs by their ranks, the roughest of" in said
    assert "X by its ranks, Y standardised, predictions in your units" in said


@pytest.mark.exhaustive
def test_rows_likelihood_and_points_decide(no_search):
    built = {
        CVIGP: gd.build(X[:300], SMOOTH[:300], kernel="auto", verbose=False),
        GaussianNNGP: gd.build(X, SMOOTH, verbose=False),
        ODVGP: gd.build(X, SMOOTH, num_inducing=10, num_mean_points=10, verbose=False),
    }
    for kind, model in built.items():
        assert type(model.model) is kind
    other = gd.build(X[:1000], SMOOTH[:1000], "student_t", num_inducing=10, verbose=False)
    assert isinstance(other.model, ODVGP)


@pytest.mark.parametrize(
    "likelihood, kept",
    [
        (gpflow.likelihoods.Gaussian(scale=0.3), 0.09),
        (gpflow.likelihoods.Gaussian(0.5, variance_lower_bound=0.1), 0.101),
    ],
)
def test_a_likelihood_of_ones_own_keeps_its_form_of_noise(no_search, likelihood, kept):
    model = gd.build(X, SMOOTH, likelihood, kernel="auto", verbose=False).model
    found = model.likelihood.variance_at(X[:1]) if model.likelihood.variance is None else None
    value = model.likelihood.variance.numpy() if found is None else found.numpy()
    np.testing.assert_allclose(np.squeeze(value), kept, rtol=1e-6)


class _NoNoise:
    """Rounds that end with the noise variance at its lower bound, as on data without noise."""

    best = 1.0
    scores = tf.ones(3)

    def __init__(self, model: NNGP, **options: object) -> None:
        model.likelihood.variance.unconstrained_variable.assign(-100.0)
        self.model = model

    def judge(self, local: bool = False) -> SimpleNamespace:
        """As good with any neighbours."""
        return SimpleNamespace(score=self.best)

    def start(self, deadline: float) -> None:
        """Do nothing."""

    def run(self, number: int, deadline: float) -> None:
        """Do nothing."""


@pytest.mark.exhaustive
def test_the_noise_of_a_choice_is_a_value_that_a_likelihood_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No Parameter takes its lower bound as a value: it is minus infinity without the transform."""
    monkeypatch.setattr(kernels, "NeighbourRounds", _NoNoise)
    X = np.linspace(-2.0, 2.0, 80)[:, None]
    choice = choose_kernel(X, np.sin(2.0 * X))
    assert 1e-6 < choice.noise_variance < 1.1e-6
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    likelihood.variance.assign(choice.noise_variance)
