"""The runner of every suite: it works on the pieces of its parts, keeps a journal, resumes, and
writes the report.

A suite only declares what there is to measure. It is a `Suite` of one or more `Part`s. A part lists
its pieces of work (a piece is a tuple of numbers and strings, for example a task and a model),
measures one piece at a time, and turns the rows that came out into a section of the report. Rows
are NamedTuples or dataclasses whose fields JSON can hold."""

from __future__ import annotations

__all__ = ["Part", "Suite", "add_arguments", "run"]

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

from .journal import Journal, setting_of
from .report import Report, Section, write


class Part(NamedTuple):
    """One part of a suite.

    Example::

        class Row(NamedTuple):
            size: int
            ms: float

        def pieces(options):
            return [(size,) for size in options.sizes]

        def measure(options, size):
            return [Row(size, median_ms(partial(work, size), options.rounds))]

        def section(rows, options):
            table = Table("Work", ["size", "ms"], [[str(row.size), f"{row.ms:.1f}"] for row in rows])
            return Section([table], [], [])

        PART = Part(Row, pieces, measure, section)
    """  # noqa: E501

    row: Callable[..., Any]
    """type of the rows: a NamedTuple or a dataclass, made from its fields as JSON gives them
    back
    """
    pieces: Callable[[argparse.Namespace], Sequence[tuple]]
    """options -> what is measured one after the other"""
    measure: Callable[..., Sequence[Any]]
    """(options, *piece) -> rows"""
    section: Callable[[list[Any], argparse.Namespace], Section]
    """(rows, options) -> what the report says"""
    uses_earlier: bool = False
    """whether `measure` also takes the keyword `earlier`: the rows of this part's pieces before the
    one to be measured
    """


class Suite(NamedTuple):
    """What `python -m benchmarks run --suite NAME` measures."""

    title: str
    parts: Mapping[str, Part]
    add_arguments: Callable[[argparse.ArgumentParser], None]
    """adds the options of the suite to a parser; `--parts` comes by itself where there are several
    parts
    """
    selecting: tuple[str, ...] = ()
    """options that say which pieces are worked on, so that a result does not depend on them"""


def add_arguments(suite: Suite, parser: argparse.ArgumentParser) -> None:
    """Add the options of a suite, and `--parts` where it has several parts."""
    names = list(suite.parts)
    parser.set_defaults(parts=names)
    if len(names) > 1:
        parser.add_argument("--parts", nargs="+", default=names, choices=names)
    suite.add_arguments(parser)


def run(
    suite: Suite, options: argparse.Namespace, command: str, folder: Path
) -> list[dict[str, Any]]:
    """Work on the pieces of `options.parts` that the journal does not have, and write the report as
    results come in.

    :param options: as the command line gives them; `options.suite` names the files.
    :param command: the command line, for the report.
    :param folder: where journal and report are written.
    :return: the rows of all pieces, each a dictionary with the name of its part.
    """
    pieces = [
        (name, *piece) for name in options.parts for piece in suite.parts[name].pieces(options)
    ]
    journal = Journal(
        folder, options.suite, setting_of(options, "parts", *suite.selecting), options.resume
    )

    def work(name: str, *piece: Any) -> list[dict[str, Any]]:
        part, more = suite.parts[name], {}
        if part.uses_earlier:
            before = [one for one in pieces[: pieces.index((name, *piece))] if one[0] == name]
            more["earlier"] = _rows(part, name, _flat(journal.finished(before)))
        return [{"part": name, **_fields(row)} for row in part.measure(options, *piece, **more)]

    def report(found: list[list[dict[str, Any]]]) -> None:
        rows = _flat(found)
        names = [name for name in options.parts if any(row["part"] == name for row in rows)]
        sections = [
            suite.parts[name].section(_rows(suite.parts[name], name, rows), options)
            for name in names
        ]
        write(folder, Report(options.suite, suite.title, command, rows, sections))

    return _flat(journal.collect(pieces, work, report))


def _flat(found: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    return [row for rows in found for row in rows]


def _fields(row: Any) -> dict[str, Any]:
    return asdict(row) if is_dataclass(row) else row._asdict()


def _rows(part: Part, name: str, rows: list[dict[str, Any]]) -> list[Any]:
    """The rows of one part, as objects of its type."""
    mine = [row for row in rows if row["part"] == name]
    return [part.row(**{key: value for key, value in row.items() if key != "part"}) for row in mine]
