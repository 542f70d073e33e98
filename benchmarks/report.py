"""JSON, Markdown, a page for a browser, and pictures of a run."""

from __future__ import annotations

__all__ = ["PALETTE", "Figure", "Report", "Panel", "Section", "Series", "Table", "draw", "machine", "write"]

import json
import math
import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from markdown_it import MarkdownIt
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31", "#999999")
"""Colours that colour-blind readers tell apart (after Okabe and Ito); markers differ too."""
_MARKERS = "osD^vPX*<"
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; display: block; overflow-x: auto; font-variant-numeric: tabular-nums }
th, td { padding: .2rem .8rem; border-bottom: 1px solid #ddd; text-align: left }
img { max-width: 100% }
code { background: #f4f4f4; padding: .1rem .3rem }
"""


class Table(NamedTuple):
    """A table of the report; numbers are formatted by the one who makes it."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


class Series(NamedTuple):
    """One line of a panel; the same label has the same colour in every panel of a figure."""

    label: str
    x: Sequence[float]
    y: Sequence[float] | Sequence[str]
    """numbers, or names, from the bottom up"""
    dashed: bool = False
    """peers are dashed"""
    alone: bool = False
    """points without a line"""
    spread: Sequence[float] | None = None
    """standard errors of x, drawn as bars"""


class Panel(NamedTuple):
    """One set of axes. `log` holds "x", "y", both or neither."""

    title: str
    xlabel: str
    ylabel: str
    series: Sequence[Series]
    log: str = ""


class Figure(NamedTuple):
    """A picture of the report."""

    name: str
    caption: str
    panels: Sequence[Panel]
    columns: int = 3


class Section(NamedTuple):
    """What one part of a suite has to say."""

    tables: Sequence[Table]
    figures: Sequence[Figure]
    notes: Sequence[str]


class Report(NamedTuple):
    """All that a suite has to say."""

    name: str
    title: str
    command: str
    data: Any
    """what JSON can hold"""
    tables: Sequence[Table]
    figures: Sequence[Figure]
    notes: Sequence[str]


def machine() -> dict[str, str]:
    """What a reader must know to compare: cores, threads, versions. No host name and no path."""
    names = ("gpflow", "tensorflow", "tensorflow-probability", "numpy", "gpytorch", "gpjax", "gpflow_decoupled")
    versions = {}
    for name in names:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    threads = os.environ.get("TF_NUM_INTRAOP_THREADS", "all cores")
    return {"python": platform.python_version(), "cores": str(os.cpu_count()), "threads": threads, **versions}


def draw(figure: Figure, folder: Path) -> Path:
    """Write a figure as PNG; one legend for all panels, below them."""
    rows = -(-len(figure.panels) // figure.columns)
    columns = min(len(figure.panels), figure.columns)
    canvas = Canvas(figsize=(4.4 * columns, 3.4 * rows + 0.7), layout="constrained", dpi=150)
    grid = canvas.subplots(rows, columns, squeeze=False)
    labels = list(dict.fromkeys(series.label for panel in figure.panels for series in panel.series))
    handles: dict[str, Any] = {}
    for axes, panel in zip(grid.flat, figure.panels):
        _draw_panel(axes, panel, labels, handles)
    for axes in grid.flat[len(figure.panels) :]:
        axes.set_visible(False)
    canvas.legend(
        handles.values(),
        handles.keys(),
        loc="outside lower center",
        ncols=min(4, 2 * columns, len(handles)),
        frameon=False,
    )
    path = folder / f"{figure.name}.png"
    canvas.savefig(path)
    return path


def _draw_panel(axes: Any, panel: Panel, labels: list[str], handles: dict[str, Any]) -> None:
    for series in panel.series:
        index = labels.index(series.label)
        style = {
            "linestyle": "" if series.alone else "--" if series.dashed else "-",
            "color": PALETTE[index % len(PALETTE)],
            "marker": _MARKERS[index % len(_MARKERS)],
            "markevery": max(1, len(series.x) // 10),
        }
        (line,) = axes.plot(series.x, series.y, markersize=7 if series.alone else 4, linewidth=1.6, **style)
        handles.setdefault(series.label, line)
        if series.spread is not None:
            axes.errorbar(series.x, series.y, xerr=series.spread, fmt="none", ecolor=style["color"], capsize=3)
    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        if name in panel.log:
            axes.set(**{f"{name}scale": "log"})
            _ticks(axis)
    axes.set(title=panel.title, xlabel=panel.xlabel, ylabel=panel.ylabel)
    axes.grid(True, color="0.9", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _ticks(axis: Any) -> None:
    """Plain numbers at 1, 2, 5 times powers of ten where few decades are shown, else at powers of ten."""
    low, high = axis.get_view_interval()
    subs = (1.0, 2.0, 5.0) if high / low < 100.0 else (1.0,)
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def write(folder: Path, report: Report, chapters: Sequence[str] = ()) -> Path:
    """Write NAME.json, NAME.md, NAME.html and the pictures into `folder`; return the path of NAME.md.

    :param chapters: Markdown, for the end.
    """
    folder.mkdir(parents=True, exist_ok=True)
    here = machine()
    content = {"command": report.command, "machine": here, "results": _finite(report.data)}
    (folder / f"{report.name}.json").write_text(json.dumps(content, indent=1) + "\n")
    machine_line = ", ".join(f"{key} {value}" for key, value in here.items()) + "."
    parts = [f"# {report.title}", f"`{report.command}`", machine_line]
    parts += [f"## {table.title}\n\n{_markdown(table)}" for table in report.tables]
    parts += [f"![{figure.name}]({draw(figure, folder).name})\n\n{figure.caption}" for figure in report.figures]
    parts += ["\n".join(f"- {note}" for note in report.notes), *chapters]
    path = folder / f"{report.name}.md"
    path.write_text("\n\n".join(parts) + "\n")
    path.with_suffix(".html").write_text(_page(report.title, path.read_text()))
    return path


def _page(title: str, markdown: str) -> str:
    body = MarkdownIt("commonmark").enable("table").render(markdown)
    head = f'<meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n{body}</body></html>\n'


def _finite(value: Any) -> Any:
    """The same with None for what JSON has no word for: NaN and infinities."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _markdown(table: Table) -> str:
    lines = ["| " + " | ".join(table.header) + " |", "|" + " --- |" * len(table.header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in table.rows])
