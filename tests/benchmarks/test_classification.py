"""The parts of the classification suite: ranks beside the paper's, classes as data, and models of other libraries."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import gpflow
import numpy as np
import pytest

from benchmarks.baselines import BASELINES, train_baseline
from benchmarks.classification_report import Outcome, published, write_report
from benchmarks.data import Data, standardise
from benchmarks.metrics import evaluate_classes
from benchmarks.models import Settings, build, parse
from benchmarks.peers import gpflow_steps
from benchmarks.selu_network import train_network

OPTIONS = argparse.Namespace(sizes=[3, 7, 4], steps=10, batch_size=5, network_depths=[2], network_seconds=1.0)
MODELS = [*published(*OPTIONS.sizes), "logistic"]


@pytest.fixture(scope="module")
def data() -> Data:
    """Two of four classes along the first of two inputs; the others, 1 and 3, have no row in the training part."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal([120, 2])
    Y = 2 * (X[:, :1] > 0.0).astype(int)
    Y[0], Y[1] = 1, 3
    return standardise("made", X, Y, np.arange(120) < 40).classes()


def outcome(task: str, model: str, accuracy: float, split: int = 0) -> Outcome:
    return Outcome(task, split, model, 90, 2, 2, accuracy, 1.0 - accuracy, float("nan"), 2.0, 10, "")


def rows_of(folder: Path, heading: str) -> dict[str, list[str]]:
    section = (folder / "classification.md").read_text().split(f"## {heading}")[1].split("\n\n")[1]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines()[2:]]
    return {row[0]: row[1:] for row in cells}


def test_table_two(tmp_path: Path) -> None:
    """The order of two data sets becomes ranks; a third that lacks models has a table and no rank; splits are averaged."""
    first = [outcome("one", model, 0.9 - 0.1 * place) for place, model in enumerate(MODELS)]
    second = [outcome("two", model, 0.1 * place, split) for split in (0, 1) for place, model in enumerate(MODELS)]
    second[len(MODELS)] = outcome("two", MODELS[0], 0.05, 1)
    write_report([*first, *second, outcome("three", MODELS[0], 0.5)], OPTIONS, "command", tmp_path)
    summary = rows_of(tmp_path, "2 data sets")
    assert list(summary) == MODELS
    mean = f"{50 * (0.9 + 0.025):.1f}"
    assert summary["coupled-4-adam"][:6] == [mean, mean, "4.00 (3.00)", "90.4", "94.8", "3.89 (0.42) Coupled"]
    assert summary["coupled-4-adam"][6:] == ["4.50 (3.50)", "4.50 (3.50)", "0.537", "2.0"]
    assert summary["logistic"][2:7] == ["", "", "", "", "4.50 (3.50)"]
    assert rows_of(tmp_path, "two")["coupled-4-adam"][:2] == ["2.50", "0.9750"]
    assert rows_of(tmp_path, "one")["coupled-4-adam"][:3] == ["**90.00**", "**0.1000**", ""]
    assert list(rows_of(tmp_path, "three")) == MODELS[:1]
    assert json.loads((tmp_path / "classification.json").read_text())["results"][0]["elbo"] is None
    assert (tmp_path / "classification.png").stat().st_size > 10_000


def test_every_published_rank_has_a_model() -> None:
    """Average ranks of seven add up to 28, but for the rounding of the paper's."""
    columns = published(*OPTIONS.sizes)
    assert len(columns) == 7 and sum(one.rank for one in columns.values()) == pytest.approx(28.0, abs=0.03)
    for name in set(columns) - {"network"}:
        assert parse(name).name == name


def test_declared_classes_choose_likelihood_and_latents(data: Data) -> None:
    """A class that only test rows have counts; with two there is one latent function; undeclared labels stay as they were."""
    assert data.num_classes == 4 and data.cast("float32").num_classes == 4
    for name in ("coupled-4", "gpflow-4", "orthogonal-3+4", "hybrid-3+4", "decoupled-3+4"):
        model = build(parse(name), data, Settings())
        assert isinstance(model.likelihood, gpflow.likelihoods.MultiClass) and model.num_latent_gps == 4
        np.testing.assert_allclose(model.kernel.lengthscales, np.sqrt([2.0, 2.0]))
    binary = data._replace(Y_train=np.minimum(data.Y_train, 1.0), Y_test=np.minimum(data.Y_test, 1.0))
    two = build(parse("coupled-4"), binary.classes(), Settings())
    assert isinstance(two.likelihood, gpflow.likelihoods.Bernoulli) and two.num_latent_gps == 1
    np.testing.assert_allclose(
        build(parse("coupled-4"), binary._replace(num_classes=0), Settings()).kernel.lengthscales, 1
    )


def test_scores_of_classes(data: Data) -> None:
    """Against a count of right answers and a mean of logarithms, in batches."""
    model = build(parse("gpflow-4"), data, Settings())
    model.q_mu.assign(np.linspace(-2.0, 2.0, 16).reshape(4, 4))
    chances = np.asarray(model.predict_y(data.X_test)[0])
    right = chances[np.arange(len(chances)), data.Y_test[:, 0].astype(int)] / chances.sum(1)
    expected = {"accuracy": np.mean(chances.argmax(1) == data.Y_test[:, 0]), "log_loss": -np.mean(np.log(right))}
    assert evaluate_classes(model, data, batch_size=7) == pytest.approx(expected, rel=1e-9)


def test_gpflow_by_adam_moves_q(data: Data) -> None:
    for natural in (True, False):
        model = build(parse("gpflow-4"), data, Settings(batch_size=20))
        steps = gpflow_steps(model, data, Settings(batch_size=20), natural)
        assert any(v is model.q_mu.unconstrained_variable for v in model.trainable_variables) != natural
        if not natural:
            steps.both()
            assert np.any(model.q_mu.numpy() != 0.0)


def test_baseline_gives_an_absent_class_nothing(data: Data) -> None:
    for name in BASELINES:
        chances, seconds = train_baseline(name, data, seed=0)
        assert chances.shape == (40, 4) and seconds > 0.0
        np.testing.assert_allclose(chances.sum(1), 1.0)
        np.testing.assert_array_equal(chances[:, [1, 3]], 0.0)
        assert np.mean(chances.argmax(1) == data.Y_test[:, 0]) > 0.9


def test_network_learns_and_ends_in_time(data: Data) -> None:
    chances, seconds, steps, note = train_network(data, [2], 5.0, seed=0)
    assert chances.shape == (40, 4) and steps > 10 and seconds > 0.0 and note == "2 hidden layers"
    np.testing.assert_allclose(chances.sum(1), 1.0)
    assert np.mean(chances.argmax(1) == data.Y_test[:, 0]) > 0.85
    assert train_network(data, [2], 1e-9, seed=0)[2] <= 2
