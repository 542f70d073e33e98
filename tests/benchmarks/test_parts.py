"""Suites of several parts, and work in a process of its own."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path
from typing import NamedTuple

import pytest

from benchmarks import measuring
from benchmarks.measuring import in_a_process
from benchmarks.parts import Part, run_parts
from benchmarks.report import Section, Table


class Row(NamedTuple):
    name: str
    values: list[float]


def square(options: Namespace, size: int) -> list[Row]:
    return [Row(f"{size}", [size**power for power in range(options.powers)])]


def section(rows: list[Row]) -> Section:
    cells = [[row.name, str(row.values[-1])] for row in rows]
    return Section([Table("Squares", ["size", "square"], cells)], [], ["A note."])


def test_rows_come_back_as_they_were_and_only_once(tmp_path: Path) -> None:
    parts = {
        "squares": Part(Row, lambda options: [(size,) for size in options.sizes], square, section),
        "nothing": Part(Row, lambda options: [], square, section),
    }
    options = Namespace(suite="made", parts=["squares", "nothing"], sizes=[2, 3], powers=3, resume=False)
    rows = run_parts(parts, "Made", {}, options, "command", tmp_path)
    assert rows == [
        {"part": "squares", "name": "2", "values": [1, 2, 4]},
        {"part": "squares", "name": "3", "values": [1, 3, 9]},
    ]
    assert "| 3 | 9 |" in (tmp_path / "made.md").read_text()
    again = Namespace(**{**vars(options), "resume": True, "sizes": [2, 3, 4], "powers": 2})
    assert run_parts(parts, "Made", {}, again, "command", tmp_path)[:2] == rows, "worked on again"
    assert "| 4 | 4 |" in (tmp_path / "made.md").read_text()


def test_a_process_of_its_own_raises_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "_LOADED", [])  # which takes seconds
    assert in_a_process(os.getpid) != os.getpid()
    with pytest.raises(ValueError, match="invalid literal"):
        in_a_process(int, "no number")
