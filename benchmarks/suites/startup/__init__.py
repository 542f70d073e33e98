"""Seconds from a fresh Python to the import, and to the end of the first training step, ours beside
GPflow's own.

- `process` is the script that one fresh Python runs; here are the two parts, which start it:
- `import`: both imports in one process, GPflow's first;
- `step`: a process per library. They take turns, so that other work on the machine slows down all
of them alike."""

from __future__ import annotations

__all__ = ["SUITE"]

import argparse
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...harness.pictures import Figure, Panel, Series
from ...harness.processes import run_script
from ...harness.report import Section, Table
from ...harness.runner import Part, Suite
from .process import PROGRAMS


class Start(NamedTuple):
    """When a fresh process was done with one kind of work."""

    kind: str
    round: int
    processor: float
    """seconds of all its threads, the start of Python included"""
    wall: float
    """wall-clock seconds from the first line of the script"""


_NOTES = {
    "import": "Imports: both are timed in one process, GPflow's first, whose seconds are in ours.",
    "step": (
        "A first step counts from the start of Python, imports included. GPflow's is a compiled"
        " function of its natural gradient and Adam on a whitened SVGP; ours is fit(model, data,"
        " steps=1) on the same problem."
    ),
}


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=7, help="processes of each kind, in turn")
    parser.add_argument(
        "--size", type=int, default=100, help="inducing points; the orthogonal basis has 200 % more"
    )
    parser.add_argument("--batch-size", type=int, default=1024)


def _measure(part: str, options: argparse.Namespace, index: int) -> list[Start]:
    """Start each process of a part once."""
    sizes, starts = [str(one) for one in (options.size, options.batch_size, options.seed)], []
    for program in range(len(PROGRAMS[part])):
        measured = run_script(Path(__file__).with_name("process.py"), [part, str(program), *sizes])
        starts += [Start(kind, index, **times) for kind, times in measured.items()]
    return starts


def _section(part: str, starts: list[Start], options: argparse.Namespace) -> Section:
    """Medians and least seconds of each kind; the first kind is GPflow's, which the others are
    compared with.
    """
    rows, panels, kinds = [], [], list(dict.fromkeys(start.kind for start in starts))
    for kind in kinds:
        row = [kind]
        for field in ("processor", "wall"):
            seconds, base = _seconds(starts, kind, field), _seconds(starts, kinds[0], field)
            added = f"{100 * np.median(seconds / base - 1.0):+.1f} %" if kind != kinds[0] else ""
            row += [f"{np.median(seconds):.2f}", f"{seconds.min():.2f}", added]
        rows.append(row)
    header = ["", "processor s", "least", "more than GPflow", "wall s", "least", "more than GPflow"]
    for field in ("processor", "wall"):
        series = [
            Series(kind, *_by_round(starts, kind, field), dashed=kind == kinds[0]) for kind in kinds
        ]
        panels.append(Panel("", "round", f"{field} seconds", series))
    name = "startup" if part == "step" else "startup_import"
    note = "Medians over rounds; more than GPflow: the median of the ratios of all rounds. "
    return Section(
        [Table(f"Seconds until it is done: {part}", header, rows)],
        [Figure(name, f"Seconds of each process: {part}.", panels, columns=2)],
        [note + _NOTES[part]],
    )


def _seconds(starts: list[Start], kind: str, field: str) -> np.ndarray:
    return np.array([getattr(start, field) for start in starts if start.kind == kind])


def _by_round(starts: list[Start], kind: str, field: str) -> tuple[list[int], list[float]]:
    return [s.round for s in starts if s.kind == kind], _seconds(starts, kind, field).tolist()


def _rounds(options: argparse.Namespace) -> list[tuple]:
    return [(index,) for index in range(options.rounds)]


SUITE = Suite(
    "Start-up",
    {
        part: Part(Start, _rounds, partial(_measure, part), partial(_section, part))
        for part in PROGRAMS
    },
    _add_arguments,
    selecting=("rounds",),
)
