"""Regression: Table 1 of the orthogonal paper in small, quality for time, and its comparison at equal seconds.

Parts: `table`, the models of the paper's Table 1 after equal numbers of steps; `seconds`, test errors after given seconds of
training; `clock`, decoupled models against a coupled one whose steps take as long.
"""

from __future__ import annotations

__all__ = ["PARTS", "add_arguments", "run"]

import argparse
from pathlib import Path
from typing import Any

from . import regression_clock, regression_seconds, regression_table
from .report import Report, Section, write

_MODULES: dict[str, Any] = {"table": regression_table, "seconds": regression_seconds, "clock": regression_clock}
PARTS = tuple(_MODULES)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--tasks", nargs="+", help="default: those of each part; without --data embedded ones")
    parser.add_argument("--models", nargs="+", help="FAMILY-M or FAMILY-M+MEAN_POINTS, and -adam: all by Adam")
    parser.add_argument("--splits", nargs="+", type=int, default=[0])
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--learning-rate", type=float, default=0.03, help="of Adam, ours and the peers'")
    parser.add_argument("--float32", action="store_true", help="our models in float32; GPflow stays in float64")
    for module in _MODULES.values():
        module.add_arguments(parser)


def run(options: argparse.Namespace, command: str, folder: Path) -> list[dict[str, Any]]:
    """Run the parts; the report is written after each model: nothing is lost."""
    sections: dict[str, Section] = {}
    found: dict[str, list[dict[str, Any]]] = {}

    for part in options.parts:

        def report(results: list[dict[str, Any]], part: str = part) -> None:
            found[part] = results
            sections[part] = _MODULES[part].section(results, options)
            write(folder, _report(sections, found, command))

        _MODULES[part].measure(options, folder, report)
    return _rows(found)


def _rows(found: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    return [{"part": part, **one} for part, results in found.items() for one in results]


def _report(sections: dict[str, Section], found: dict[str, list[dict[str, Any]]], command: str) -> Report:
    tables, figures, notes = (
        [item for one in sections.values() for item in getattr(one, name)] for name in Section._fields
    )
    return Report("regression", "Regression", command, _rows(found), tables, figures, notes)
