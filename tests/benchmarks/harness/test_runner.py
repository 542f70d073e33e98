"""The runner: rows as they were, pieces only once, and pieces that need earlier rows."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from benchmarks.harness import journal
from benchmarks.harness.report import Section, Table
from benchmarks.harness.runner import Part, Suite, add_arguments, run


class Row(NamedTuple):
    name: str
    values: list[float]


@dataclass
class Sum:
    upto: int
    total: int


def square(options: Namespace, size: int) -> list[Row]:
    return [Row(f"{size}", [size**power for power in range(options.powers)])]


def add(options: Namespace, size: int, earlier: list[Sum]) -> list[Sum]:
    assert all(isinstance(one, Sum) for one in earlier)
    return [Sum(size, size + (earlier[-1].total if earlier else 0))]


def section(rows: list[Row], options: Namespace) -> Section:
    cells = [[row.name, str(row.values[-1])] for row in rows]
    return Section(
        [Table(f"Powers below {options.powers}", ["size", "last"], cells)], [], ["A note."]
    )


def sums(rows: list[Sum], _: Namespace) -> Section:
    return Section(
        [Table("Sums", ["up to", "sum"], [[str(row.upto), str(row.total)] for row in rows])], [], []
    )


def sizes(options: Namespace) -> list[tuple]:
    return [(size,) for size in options.sizes]


def more(parser: ArgumentParser) -> None:
    parser.add_argument("--powers", type=int, default=3)


PARTS = {
    "squares": Part(Row, sizes, square, section),
    "nothing": Part(Row, lambda options: [], square, section),
    "sums": Part(Sum, sizes, add, sums, uses_earlier=True),
}
SUITE = Suite("Made", PARTS, more, selecting=("sizes",))


def options(**changed: object) -> Namespace:
    known = {
        "suite": "made",
        "parts": list(PARTS),
        "sizes": [2, 3],
        "powers": 3,
        "resume": False,
        "data": None,
    }
    return Namespace(**{**known, **changed})


def test_rows_come_back_as_they_were_and_only_once(tmp_path: Path) -> None:
    rows = run(SUITE, options(), "command", tmp_path)
    assert rows == [
        {"part": "squares", "name": "2", "values": [1, 2, 4]},
        {"part": "squares", "name": "3", "values": [1, 3, 9]},
        {"part": "sums", "upto": 2, "total": 2},
        {"part": "sums", "upto": 3, "total": 5},
    ]
    text = (tmp_path / "made.md").read_text()
    assert "| 3 | 9 |" in text and "| 3 | 5 |" in text and text.count("##") == 2
    assert json.loads((tmp_path / "made.json").read_text())["results"] == rows
    again = run(SUITE, options(sizes=[2, 3, 4], resume=True), "command", tmp_path)
    assert [row for row in again if row not in rows] == [
        {"part": "squares", "name": "4", "values": [1, 4, 16]},
        {"part": "sums", "upto": 4, "total": 9},
    ]
    assert len((tmp_path / "made.jsonl").read_text().splitlines()) == 6, "worked on again"
    run(SUITE, options(powers=2, resume=True), "command", tmp_path)
    assert len((tmp_path / "made.jsonl").read_text().splitlines()) == 10, (
        "a result of other options was used"
    )


def test_reports_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "_REPORT_EVERY", 0.0)
    seen: list[int] = []
    part = Part(
        Row, sizes, square, lambda rows, _: (seen.append(len(rows)), Section([], [], []))[1]
    )
    run(Suite("Made", {"squares": part}, more), options(parts=["squares"]), "command", tmp_path)
    assert seen == [1, 2]


def test_parts_are_an_option_where_there_are_several() -> None:
    parser = ArgumentParser()
    add_arguments(SUITE, parser)
    assert parser.parse_args([]).parts == list(PARTS)
    assert parser.parse_args(["--parts", "sums", "--powers", "5"]).parts == ["sums"]
    alone = ArgumentParser(exit_on_error=False)
    add_arguments(Suite("Made", {"squares": PARTS["squares"]}, more), alone)
    assert alone.parse_args([]).parts == ["squares"]
    assert alone.parse_known_args(["--parts", "squares"])[1] == ["--parts", "squares"]
