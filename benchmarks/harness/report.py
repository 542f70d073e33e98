"""The report of a run, written as JSON, as Markdown, and as a page for a browser with pictures."""

from __future__ import annotations

__all__ = ["Report", "Section", "Table", "write"]

import json
import math
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from markdown_it import MarkdownIt

from .machine import machine
from .pictures import Figure, draw

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; display: block; overflow-x: auto; font-variant-numeric: tabular-nums }
th, td { padding: .2rem .8rem; border-bottom: 1px solid #ddd; text-align: left }
img { max-width: 100% }
code { background: #f4f4f4; padding: .1rem .3rem }
"""  # noqa: E501


class Table(NamedTuple):
    """A table of the report. Whoever makes it formats the numbers."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


class Section(NamedTuple):
    """What one part of a suite adds to the report."""

    tables: Sequence[Table]
    figures: Sequence[Figure]
    notes: Sequence[str]
    chapters: Sequence[str] = ()
    """Markdown for the end of the report"""


class Report(NamedTuple):
    """The report of a suite."""

    name: str
    """that of the files, without suffix"""
    title: str
    command: str
    """the command that made it"""
    rows: Sequence[dict[str, Any]]
    """the results, as JSON can hold them"""
    sections: Sequence[Section]


def write(folder: Path, report: Report) -> Path:
    """Write NAME.json, NAME.md, NAME.html and the pictures into `folder`.

    :return: the path of NAME.md.
    """
    folder.mkdir(parents=True, exist_ok=True)
    here = {"measured": date.today().isoformat(), **machine()}
    content = {"command": report.command, "machine": here, "results": _finite(report.rows)}
    (folder / f"{report.name}.json").write_text(json.dumps(content, indent=1) + "\n")
    path = folder / f"{report.name}.md"
    path.write_text("\n\n".join(_markdown(report, here, folder)) + "\n")
    path.with_suffix(".html").write_text(_page(report.title, path.read_text()))
    return path


def _markdown(report: Report, here: dict[str, str], folder: Path) -> list[str]:
    """The paragraphs: title, command and machine, then all tables, all pictures, all notes, and the
    chapters.
    """
    sections = report.sections
    paragraphs = [
        f"# {report.title}",
        f"`{report.command}`",
        ", ".join(f"{key} {value}" for key, value in here.items()) + ".",
    ]
    paragraphs += [
        f"## {table.title}\n\n{_table(table)}" for one in sections for table in one.tables
    ]
    figures = [figure for one in sections for figure in one.figures]
    paragraphs += [
        f"![{figure.name}]({draw(figure, folder).name})\n\n{figure.caption}" for figure in figures
    ]
    notes = dict.fromkeys(
        f"- {note}" for one in sections for note in one.notes
    )  # parts may share a note
    return [
        *paragraphs,
        "\n".join(notes),
        *(chapter for one in sections for chapter in one.chapters),
    ]


def _table(table: Table) -> str:
    lines = ["| " + " | ".join(table.header) + " |", "|" + " --- |" * len(table.header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in table.rows])


def _page(title: str, markdown: str) -> str:
    body = MarkdownIt("commonmark").enable("table").render(markdown)
    head = f'<meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n{body}</body></html>\n'


def _finite(value: Any) -> Any:
    """The same value with None in the place of NaN and infinities, which JSON cannot write."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
