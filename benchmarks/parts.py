"""Suites of several parts: each has its pieces of work, its rows of results, and its section of the report."""

from __future__ import annotations

__all__ = ["Part", "run_parts"]

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .journal import Journal
from .report import Report, Section, write


class Part(NamedTuple):
    """One part of a suite."""

    row: Callable[..., Any]
    """a NamedTuple of numbers, strings and lists, which JSON gives back as they were"""
    pieces: Callable[[argparse.Namespace], Sequence[tuple]]
    """options -> what is measured one after the other, each a tuple of numbers and strings"""
    measure: Callable[..., Sequence[Any]]
    """(options, *piece) -> rows"""
    section: Callable[[list[Any]], Section]
    """rows -> what the report says"""


def run_parts(
    parts: Mapping[str, Part],
    title: str,
    setting: dict[str, Any],
    options: argparse.Namespace,
    command: str,
    folder: Path,
) -> list[dict[str, Any]]:
    """Measure the pieces of `options.parts`, or go on with them, and report as they come; all rows, each with its part."""

    def measured(name: str, *piece: Any) -> list[dict[str, Any]]:
        return [{"part": name, **row._asdict()} for row in parts[name].measure(options, *piece)]

    def report(found: list[list[dict[str, Any]]]) -> None:
        rows = [row for piece in found for row in piece]
        sections = [_section(parts[name], name, rows) for name in dict.fromkeys(row["part"] for row in rows)]
        tables, figures, notes = ([item for one in sections for item in one[place]] for place in range(3))
        write(folder, Report(options.suite, title, command, rows, tables, figures, notes))

    pieces = [(name, *piece) for name in options.parts for piece in parts[name].pieces(options)]
    found = Journal(folder, options.suite, setting, options.resume).collect(pieces, measured, report)
    return [row for piece in found for row in piece]


def _section(part: Part, name: str, rows: list[dict[str, Any]]) -> Section:
    mine = [{key: value for key, value in row.items() if key != "part"} for row in rows if row["part"] == name]
    return part.section([part.row(**row) for row in mine])
