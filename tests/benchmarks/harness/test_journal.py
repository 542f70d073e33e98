"""An interrupted run goes on where it stopped, and only there."""

from __future__ import annotations

import json
import math
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.harness import journal
from benchmarks.harness.journal import Journal, setting_of

PIECES = [("kin40k", 0), ("kin40k", 1), ("protein", 0)]


def collect(
    folder: Path, resume: bool, setting: dict[str, Any], fail_at: tuple | None = None
) -> tuple[list, list]:
    """The results, and the pieces that were worked on."""
    worked: list[tuple] = []

    def work(task: str, split: int) -> dict[str, Any]:
        if (task, split) == fail_at:
            raise KeyboardInterrupt
        worked.append((task, split))
        return {"task": task, "rmse": np.float64(split), "curve": np.arange(2.0), "elbo": math.nan}

    try:
        results = Journal(folder, "made", setting, resume).collect(
            PIECES, work, lambda results: None
        )
    except KeyboardInterrupt:
        results = []
    return results, worked


def test_goes_on_where_it_stopped(tmp_path: Path) -> None:
    assert collect(tmp_path, True, {"seconds": 5.0}, fail_at=PIECES[1])[1] == PIECES[:1]
    with (tmp_path / "made.jsonl").open("a") as file:
        file.write('{"setting": {"seconds"')  # cut off in the middle of a line
    results, worked = collect(tmp_path, True, {"seconds": 5.0})
    assert worked == PIECES[1:]
    assert [one["task"] for one in results] == ["kin40k", "kin40k", "protein"]
    assert results[0]["curve"] == [0.0, 1.0] and math.isnan(results[0]["elbo"])
    lines = (tmp_path / "made.jsonl").read_text().splitlines()
    assert len([json.loads(line) for line in lines]) == 3
    assert collect(tmp_path, True, {"seconds": 5.0})[1] == []


@pytest.mark.parametrize(
    "resume, seconds", [(False, 5.0), (True, 6.0)], ids=["not asked for", "another setting"]
)
def test_starts_afresh(tmp_path: Path, resume: bool, seconds: float) -> None:
    collect(tmp_path, False, {"seconds": 5.0})
    assert collect(tmp_path, resume, {"seconds": seconds})[1] == PIECES
    assert collect(tmp_path, True, {"seconds": 5.0})[1] == [], "what another setting found was lost"


@pytest.mark.parametrize("every, after", [(0.0, [1, 2, 3]), (100.0, [3])])
def test_reports_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: float, after: list[int]
) -> None:
    monkeypatch.setattr(journal, "_REPORT_EVERY", every)
    seen: list[int] = []
    Journal(tmp_path, "made", {}, False).collect(
        PIECES, lambda *_: {}, lambda results: seen.append(len(results))
    )
    assert seen == after
    Journal(tmp_path, "made", {}, True).collect(
        PIECES, lambda *_: {}, lambda results: seen.append(len(results))
    )
    assert seen == [*after, 3]


def test_journals_may_be_concatenated(tmp_path: Path) -> None:
    for folder, pieces in (("a", PIECES[:1]), ("b", PIECES[1:])):
        Journal(tmp_path / folder, "made", {}, False).collect(
            pieces, lambda *piece: {"at": piece}, lambda _: None
        )
    whole = "".join((tmp_path / folder / "made.jsonl").read_text() for folder in "ab")
    (tmp_path / "made.jsonl").write_text(whole)
    results = Journal(tmp_path, "made", {}, True).collect(PIECES, lambda *_: {}, lambda _: None)
    assert results == [{"at": list(piece)} for piece in PIECES]


def test_a_setting_names_what_a_result_depends_on() -> None:
    shared = {
        "verb": "run",
        "suite": "made",
        "threads": 1,
        "resume": True,
        "open": False,
        "out": Path("here"),
    }
    shared["gpjax_python"] = "/some/python"
    options = Namespace(**shared, data="/some/place/sets", seed=3, steps=10, tasks=["a", "b"])
    assert setting_of(options, "tasks") == {"seed": 3, "steps": 10, "data": "sets"}
    assert setting_of(Namespace(**{**vars(options), "data": None}), "tasks", "steps") == {
        "seed": 3,
        "data": None,
    }
