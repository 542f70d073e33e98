"""The parts of the regression suite on made-up runs: ranks, tables, and how the coupled model of
equal seconds is sized.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.harness.pictures import draw
from benchmarks.harness.records import Snapshot
from benchmarks.harness.report import Section
from benchmarks.harness.runner import Suite, run
from benchmarks.libraries.models import Settings
from benchmarks.suites.regression import clock
from benchmarks.suites.regression import table as table_part
from benchmarks.suites.regression.runs import Run, regression_data

SIZES = [3, 7, 4]
MODELS = list(table_part.models(*SIZES))


def result(task: str, model: str, mae: float | None, split: int = 0, steps: int = 10) -> Run:
    """Of a run that took a processor second and two of the wall; None: it failed."""
    metrics = (
        {}
        if mae is None
        else {"mae": mae, "rmse": 2.0 * mae, "log_density": -mae, "elbo": -100.0 * mae}
    )
    end = Snapshot(float(steps), 2.0, 1.0, steps, True, metrics)
    return Run(task, model, "any", 0.0, 200.0, [end], "" if metrics else "failed", split)


def table(results: list[Run]) -> Section:
    return table_part.section(results, argparse.Namespace(steps=10, sizes=SIZES))


def test_table_one(tmp_path: Path) -> None:
    """The order of two data sets becomes ranks; what failed is last; the paper's numbers stand at
    its own models.
    """
    first = [result("one", model, 0.1 * (place + 1)) for place, model in enumerate(MODELS)]
    second = [
        result("two", model, None if place == 9 else 1.0 - 0.1 * place)
        for place, model in enumerate(MODELS)
    ]
    section = table(first + second)
    summary = {row[0]: row for row in section.tables[0].rows}
    assert "2 data sets" in section.tables[0].title
    assert list(summary) == MODELS and [one.title for one in section.tables[1:]] == ["one", "two"]
    smallest = summary[
        "coupled-3-adam"
    ]  # first of eight, then last of eight; of all first, then ninth
    assert smallest[1:6] == [
        "0.5500",
        "0.5500",
        "4.50 (3.50)",
        "6.08 (0.19) Coupled, 300",
        "5.00 (4.00)",
    ]
    assert summary["decoupled-3+7-adam"][3:5] == ["4.50 (3.50)", "8.00 (0.00) Decoupled"]
    assert (
        summary["gpflow-3"][3:8] == ["", "", *3 * ["10.00 (0.00)"]]
        and summary["gpflow-3"][8] == "1.0"
    )
    assert section.tables[1].rows[0][1:7] == [
        "**0.1000**",
        "**0.2000**",
        "**-0.1000**",
        "**-10**",
        "1.0",
        "100.0",
    ]
    assert section.tables[2].rows[9][1:] == ["", "", "", "", "1.0", "100.0", "failed"]
    assert draw(section.figures[0], tmp_path).stat().st_size > 10_000


def test_table_of_an_interrupted_run_and_of_splits() -> None:
    """A data set that lacks a model has a table but no rank; splits are averaged."""
    results = [
        result("one", model, mae, split)
        for split, mae in enumerate([0.2, 0.4])
        for model in MODELS[:2]
    ]
    section = table([*results, result("two", MODELS[0], 0.1)])
    assert "1 data sets" in section.tables[0].title and len(section.tables) == 3
    assert section.tables[0].rows[0][1:4] == ["0.3000", "0.3000", "1.50 (0.00)"]
    assert section.tables[1].rows[0][1:5] == [
        "**0.3000 +- 0.1000**",
        "**0.6000 +- 0.2000**",
        "**-0.3000 +- 0.1000**",
        "**-30 +- 10**",
    ]
    assert section.tables[2].rows[0][1] == "**0.1000**"


def test_every_published_rank_has_a_model() -> None:
    """As in the paper: eight models, whose average ranks add up to 36."""
    published = [one for one in table_part.models(*SIZES).values() if one]
    assert len(published) == 8
    assert sum(one.rank for one in published) == pytest.approx(36.0, abs=0.02)


def test_peers_stand_in_the_table_where_they_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours come first; models that are named are taken as they are."""
    monkeypatch.setattr(
        table_part, "installed", lambda names: [name for name in names if "gpjax" not in name]
    )
    options = argparse.Namespace(sizes=SIZES, models=None, tasks=["one"], splits=[2], data=None)
    assert table_part.PART.pieces(options) == [
        ("one", 2, name) for name in (*MODELS, "gpytorch-3", "gpytorch-3+7")
    ]
    options.models = ["gpjax-3"]
    assert table_part.PART.pieces(options) == [("one", 2, "gpjax-3")]


def test_integers_are_no_regression(tmp_path: Path) -> None:
    """They are taken for labels, and would not be standardised; whole numbers stored as reals
    are.
    """
    X, Y = np.linspace(0.0, 1.0, 20)[:, None], np.repeat([[-1], [1]], 10, axis=0)
    np.savez(tmp_path / "counts.npz", X=X, Y=Y)
    np.savez(tmp_path / "real.npz", X=X, Y=100.0 * Y)
    with pytest.raises(
        ValueError, match="Y of data set 'counts' is stored as integers.*as float64"
    ):
        regression_data("counts", 0, str(tmp_path))
    assert regression_data("real", 0, str(tmp_path)).Y_train.std() == pytest.approx(1.0)


@pytest.mark.exhaustive
def test_clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The coupled size is read off times that grow with M^2; all runs take the steps that the first
    one has seconds for.
    """
    times = {
        "orthogonal-100+7": 28.0,
        "coupled-100": 10.0,
        "coupled-140": 19.6,
        "coupled-200": 40.0,
    }
    monkeypatch.setattr(clock, "build", lambda spec, *_: spec.name)
    monkeypatch.setattr(clock, "whole_step", lambda name, *_, **__: name)
    monkeypatch.setattr(clock, "regression_data", lambda *_: None)
    monkeypatch.setattr(
        clock, "interleave", lambda steps, *_: {name: np.full(3, times[name]) for name in steps}
    )
    budgets: list[tuple] = []

    def train(
        options: Any, settings: Settings, targets: list, task: str, split: int, model: str
    ) -> Run:
        budgets.append((settings.unit, *settings.budgets, targets[-1]))
        return result(
            task, model, {"o": 0.1, "c": 0.2, "h": 0.3}[model[0]], split, int(settings.budgets[0])
        )

    monkeypatch.setattr(clock, "trained", train)
    sections: list[Section] = []

    def noted(runs: list[Run], options: argparse.Namespace) -> Section:
        sections.append(clock.section(runs, options))
        return sections[-1]

    options = argparse.Namespace(
        suite="made",
        parts=["clock"],
        clock_task="made",
        clock_models=["orthogonal-100+7", "hybrid-100+7-adam"],
        clock_seconds=5.6,
        splits=[0],
        data=None,
        resume=False,
        batch_size=8,
        learning_rate=0.1,
        natural_gradient=0.2,
        anneal=0.2,
        seed=0,
        float32=False,
    )
    suite = Suite("Made", {"clock": clock.PART._replace(section=noted)}, clock.add_arguments)
    rows = run(suite, options, "command", tmp_path)
    assert [one["model"] for one in rows] == [
        "orthogonal-100+7",
        "coupled-167",
        "hybrid-100+7-adam",
    ]
    assert [one["timed"] for one in rows] == [times, {}, {}]
    assert budgets == 3 * [("steps", 200, 200)]
    assert [row[:5] for row in sections[-1].tables[0].rows][0] == [
        "orthogonal-100+7",
        "5.0",
        "200",
        "1",
        "**0.1000**",
    ]
    assert [panel.ylabel for panel in sections[-1].figures[0].panels][2] == "test MAE"
