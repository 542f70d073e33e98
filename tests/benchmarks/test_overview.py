"""Journals of several settings are joined into one table and one picture."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness.pictures import draw
from benchmarks.harness.records import Snapshot
from benchmarks.overview import picture, points, renamed, table
from benchmarks.suites.regression.runs import Run


def line(model: str, split: int, budget: float, rmse: float, seed: int = 0) -> str:
    """A finished run that took a second more than its budget, evaluated halfway too."""
    metrics = {"rmse": rmse, "log_density": -rmse, "coverage": 0.95}
    half = Snapshot(budget / 2, budget / 2, 1.0, 1, False, {**metrics, "rmse": 9.0})
    run = Run("kin40k", model, "any", 0.0, 1.0, [half, Snapshot(budget, budget + 1, 1.0, 1, True)])
    run.snapshots[-1].metrics = metrics
    run.split = split
    setting = {"seed": seed, "budgets": [budget]}
    return json.dumps({"setting": setting, "result": [{"part": "seconds", **asdict(run)}]})


JOURNALS = [
    "\n".join([line("ours-3", 0, 20.0, 0.5), line("ours-3", 0, 60.0, 0.2, seed=1)]),
    "\n".join([line("ours-3", split, 60.0, 0.3 + 0.1 * split) for split in (0, 1)]),
    line("trees-9", 0, 60.0, 0.6),
]


def test_means_over_splits_of_one_seed() -> None:
    found = {(one.model, one.budget): one for one in points(JOURNALS)}
    both = found["ours-3", 60.0]
    assert set(found) == {("ours-3", 20.0), ("ours-3", 60.0), ("trees-9", 60.0)}
    assert both.means["rmse"] == pytest.approx(0.35) and both.seconds == 61.0 and both.splits == 2
    assert both.errors["rmse"] == pytest.approx(0.05)  # a half of the difference of two
    assert found["trees-9", 60.0].errors["rmse"] == 0.0
    alone = [one for one in points(JOURNALS, split=1) if one.model == "ours-3"]
    assert [one.budget for one in alone] == [60.0]
    assert alone[0].means["rmse"] == 0.4 and alone[0].errors == both.errors


def test_the_table_and_the_picture(tmp_path: Path) -> None:
    found = points(JOURNALS)
    text = table(found, ["kin40k"], ["trees-9", "ours-3"], None).splitlines()
    assert text[0] == "|  | trees-9 | ours-3 |"
    assert text[2] == (
        "| kin40k | 0.600 / -0.600 (0.950), 61 s | 0.350 / -0.350 ± 0.050 (0.950), 61 s |"
    )
    assert "0.500 / -0.500 (0.950), 21 s" in table(found, ["kin40k"], ["ours-3"], 20.0)
    figure = picture(found, ["kin40k"], ["ours-3", "trees-9"])
    (ours, trees) = figure.panels[0].series
    assert ours.label == "ours-3 (any)" and list(ours.x) == [21.0, 61.0] and ours.rise
    assert np.isnan(ours.rise[0]) and ours.rise[1] == pytest.approx(0.05)
    assert list(trees.y) == [0.6] and draw(figure._replace(name="f"), tmp_path).exists()


def test_names_for_readers() -> None:
    """Models of one name are one series; the library is not told beside a name that was given."""
    found = renamed(points(JOURNALS), {"ours-3": "GPs", "trees-9": "GPs"})
    assert {one.model for one in found} == {"GPs"}
    (series,) = picture(found, ["kin40k"], ["GPs"]).panels[0].series
    assert series.label == "GPs" and len(series.x) == 3
