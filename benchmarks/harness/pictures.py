"""Pictures of a report: lines in panels, panels in a figure, drawn as PNG by Matplotlib."""

from __future__ import annotations

__all__ = ["Figure", "Panel", "Series", "draw"]

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

_PALETTE = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
    "#8C6D31",
    "#999999",
)
"""Colours that colour-blind readers tell apart (after Okabe and Ito); markers differ too."""
_MARKERS = "osD^vPX*<"


class Series(NamedTuple):
    """One line of a panel; the same label has the same colour in every panel of a figure."""

    label: str
    x: Sequence[float]
    y: Sequence[float] | Sequence[str]
    """numbers; or names, which are written on the axis from the bottom up"""
    dashed: bool = False
    """lines of other libraries are dashed"""
    alone: bool = False
    """draw points without a line"""
    spread: Sequence[float] | None = None
    """standard errors of x, drawn as bars"""
    rise: Sequence[float] | None = None
    """standard errors of y, drawn as bars"""


class Panel(NamedTuple):
    """One set of axes.

    :param log: the axes that are logarithmic: "x", "y", "xy" or none.
    """

    title: str
    xlabel: str
    ylabel: str
    series: Sequence[Series]
    log: str = ""


class Figure(NamedTuple):
    """A picture of the report: panels in a grid.

    :param name: that of the file, without ".png".
    """

    name: str
    caption: str
    panels: Sequence[Panel]
    columns: int = 3
    marker: str = ""
    """the one marker of all series, as Matplotlib names it; empty: each has another"""
    dpi: int = 150
    legend_columns: int = 4
    """at most; fewer where labels are long"""


def draw(figure: Figure, folder: Path) -> Path:
    """Write a figure as PNG, with one legend for all panels below them, and return its path."""
    rows = -(-len(figure.panels) // figure.columns)
    columns = min(len(figure.panels), figure.columns)
    canvas = Canvas(figsize=(4.4 * columns, 3.4 * rows + 0.7), layout="constrained", dpi=figure.dpi)
    grid = canvas.subplots(rows, columns, squeeze=False)
    labels = list(dict.fromkeys(series.label for panel in figure.panels for series in panel.series))
    handles: dict[str, Line2D] = {}
    for axes, panel in zip(grid.flat, figure.panels):
        _draw_panel(axes, panel, labels, handles, figure.marker or _MARKERS)
    for axes in grid.flat[len(figure.panels) :]:
        axes.set_visible(False)
    canvas.legend(
        handles.values(),
        handles.keys(),
        loc="outside lower center",
        ncols=min(figure.legend_columns, 2 * columns, len(handles)),
        frameon=False,
    )
    path = folder / f"{figure.name}.png"
    canvas.savefig(path)
    return path


def _draw_panel(
    axes: Axes, panel: Panel, labels: list[str], handles: dict[str, Line2D], markers: str
) -> None:
    for series in panel.series:
        index = labels.index(series.label)
        style = {
            "linestyle": "" if series.alone else "--" if series.dashed else "-",
            "color": _PALETTE[index % len(_PALETTE)],
            "marker": markers[index % len(markers)],
            "markevery": max(1, len(series.x) // 10),
        }
        (line,) = axes.plot(
            series.x, series.y, markersize=7 if series.alone else 4, linewidth=1.6, **style
        )
        handles.setdefault(series.label, line)
        if series.spread is not None or series.rise is not None:
            axes.errorbar(
                series.x,
                series.y,
                xerr=series.spread,
                yerr=series.rise,
                fmt="none",
                ecolor=style["color"],
                capsize=3,
            )
    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        if name in panel.log:
            axes.set(**{f"{name}scale": "log"})
            _ticks(axis)
    axes.set(title=panel.title, xlabel=panel.xlabel, ylabel=panel.ylabel)
    axes.grid(True, color="0.9", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _ticks(axis: Axis) -> None:
    """Label powers of ten with plain numbers, and 2 and 5 times them as well where fewer than two
    decades are shown.
    """
    low, high = axis.get_view_interval()
    subs = (1.0, 2.0, 5.0) if high / low < 100.0 else (1.0,)
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
