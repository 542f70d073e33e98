"""The classification suite: ranks beside the paper's, and the time of the network."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness.data import Data
from benchmarks.harness.report import Report, write
from benchmarks.libraries.models import parse
from benchmarks.suites.classification import methods
from benchmarks.suites.classification.methods import Outcome
from benchmarks.suites.classification.tables import published, section

OPTIONS = argparse.Namespace(
    sizes=[3, 7, 4],
    steps=10,
    batch_size=5,
    network_depths=[2],
    network_seconds=1.0,
    likelihood="softmax",
)
MODELS = [*published(*OPTIONS.sizes), "logistic"]


def outcome(task: str, model: str, accuracy: float, split: int = 0) -> Outcome:
    return Outcome(
        task, split, model, 90, 2, 2, accuracy, 1.0 - accuracy, float("nan"), 2.0, 10, ""
    )


def rows_of(folder: Path, heading: str) -> dict[str, list[str]]:
    section = (folder / "classification.md").read_text().split(f"## {heading}")[1].split("\n\n")[1]
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines()[2:]
    ]
    return {row[0]: row[1:] for row in cells}


@pytest.mark.exhaustive
def test_table_two(tmp_path: Path) -> None:
    """The order of two data sets becomes ranks; a third that lacks models has a table and no rank;
    splits are averaged.
    """
    first = [outcome("one", model, 0.9 - 0.1 * place) for place, model in enumerate(MODELS)]
    second = [
        outcome("two", model, 0.1 * place, split)
        for split in (0, 1)
        for place, model in enumerate(MODELS)
    ]
    second[len(MODELS)] = outcome("two", MODELS[0], 0.05, 1)
    outcomes = [*first, *second, outcome("three", MODELS[0], 0.5)]
    rows, sections = [one._asdict() for one in outcomes], [section(outcomes, OPTIONS)]
    write(tmp_path, Report("classification", "Title", "command", rows, sections))
    summary = rows_of(tmp_path, "2 data sets")
    assert list(summary) == MODELS
    mean = f"{50 * (0.9 + 0.025):.1f}"
    assert summary["coupled-4-adam"][:6] == [
        mean,
        mean,
        "4.00 (3.00)",
        "90.4",
        "94.8",
        "3.89 (0.42) Coupled",
    ]
    assert summary["coupled-4-adam"][6:] == ["4.50 (3.50)", "4.50 (3.50)", "0.537", "2.0"]
    assert summary["logistic"][2:7] == ["", "", "", "", "4.50 (3.50)"]
    assert rows_of(tmp_path, "two")["coupled-4-adam"][:2] == ["2.50 +- 2.50", "0.9750 +- 0.0250"]
    assert rows_of(tmp_path, "one")["coupled-4-adam"][:3] == ["**90.00**", "**0.1000**", ""]
    assert list(rows_of(tmp_path, "three")) == MODELS[:1]
    assert json.loads((tmp_path / "classification.json").read_text())["results"][0]["elbo"] is None
    assert (tmp_path / "classification.png").stat().st_size > 10_000


def test_every_published_rank_has_a_model() -> None:
    """Average ranks of seven add up to 28, but for the rounding of the paper's."""
    columns = published(*OPTIONS.sizes)
    assert len(columns) == 7 and sum(one.rank for one in columns.values()) == pytest.approx(
        28.0, abs=0.03
    )
    for name in set(columns) - {"network"}:
        assert parse(name).name == name


def test_the_network_is_given_the_time_of_the_slowest_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of those on its own split of its own task, and not of a baseline; else of the options, or a
    minute.
    """
    given: list[float] = []

    def network(
        data: Data, depths: list[int], seconds: float, seed: int
    ) -> tuple[np.ndarray, float, int, str]:
        given.append(seconds)
        return np.ones([len(data.X_test), 2]) / 2.0, seconds, 1, ""

    monkeypatch.setattr(methods, "train_network", network)
    options = argparse.Namespace(
        **{**vars(OPTIONS), "network_seconds": None, "seed": 0, "data": None}
    )
    task = "breast_cancer_sklearn"
    earlier = [
        outcome(task, "coupled-4", 0.9)._replace(seconds=5.0),
        outcome(task, "hybrid-3+7-adam", 0.9)._replace(seconds=7.0),
        outcome(task, "forest", 0.9)._replace(seconds=8.0),
        outcome(task, "coupled-4", 0.9, split=1)._replace(seconds=9.0),
        outcome("digits", "coupled-4", 0.9)._replace(seconds=10.0),
    ]
    for before in (earlier, []):
        (one,) = methods.measure(options, task, 0, "network", before)
        assert one.accuracy > 0.3 and one.log_loss == pytest.approx(np.log(2.0))
    methods.measure(
        argparse.Namespace(**{**vars(options), "network_seconds": 3.0}), task, 0, "network", earlier
    )
    assert given == [7.0, 60.0, 3.0]
