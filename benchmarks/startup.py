"""Seconds from a fresh Python to the import and to the end of the first training step, ours beside GPflow's own.

Processes take turns, so that a busy machine slows all of them; both imports are timed in one.
"""

from __future__ import annotations

__all__ = ["Start", "add_arguments", "run"]

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .journal import Journal, setting_of
from .report import Figure, Panel, Report, Series, Table, write
from .startup_process import PROGRAMS

AGAINST = {
    "import gpflow_decoupled": "import gpflow",
    "first step, coupled": "first step, GPflow SVGP",
    "first step, orthogonal": "first step, GPflow SVGP",
}
"""Kind -> what of GPflow it is compared with."""


class Start(NamedTuple):
    """When a process was done with it."""

    kind: str
    round: int
    processor: float
    """seconds of all its threads, Python's own start included"""
    wall: float
    """seconds by the clock from the first line"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=7, help="processes of each kind, in turn")
    parser.add_argument("--parts", nargs="+", choices=list(PROGRAMS), default=list(PROGRAMS))
    parser.add_argument("--size", type=int, default=100, help="inducing points; the orthogonal basis has 200 % more")
    parser.add_argument("--batch-size", type=int, default=1024)


def run(options: argparse.Namespace, command: str, folder: Path) -> list[Start]:
    """Start every kind of process `--rounds` times and write the report."""

    def round_of(index: int) -> list[dict]:
        processes = [(part, number) for part in options.parts for number in range(len(PROGRAMS[part]))]
        measured = [item for process in processes for item in _start(*process, options).items()]
        return [Start(kind, index, **times)._asdict() for kind, times in measured]

    found = Journal(folder, "startup", setting_of(options, "rounds"), options.resume).collect(
        [(index,) for index in range(options.rounds)],
        round_of,
        lambda rounds: _write([Start(**row) for rows in rounds for row in rows], command, folder),
    )
    return [Start(**row) for rows in found for row in rows]


def _start(part: str, number: int, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    arguments = [part, *map(str, (number, options.size, options.batch_size, options.seed))]
    child = subprocess.run(
        [sys.executable, "-m", "benchmarks.startup_process", *arguments], capture_output=True, text=True, check=False
    )
    if child.returncode:
        raise RuntimeError(f"{part} {number} failed:\n{child.stderr[-2000:]}")
    return json.loads(child.stdout.splitlines()[-1])


def _seconds(starts: list[Start], kind: str, field: str) -> np.ndarray:
    return np.array([getattr(start, field) for start in starts if start.kind == kind])


def _write(starts: list[Start], command: str, folder: Path) -> None:
    rows, panels, kinds = [], [], list(dict.fromkeys(start.kind for start in starts))
    for kind in kinds:
        row = [kind]
        for field in ("processor", "wall"):
            seconds = _seconds(starts, kind, field)
            added = ""
            if kind in AGAINST:
                added = f"{100 * np.median(seconds / _seconds(starts, AGAINST[kind], field) - 1.0):+.1f} %"
            row += [f"{np.median(seconds):.2f}", f"{seconds.min():.2f}", added]
        rows.append(row)
    header = ["", "processor s", "least", "more than GPflow", "wall s", "least", "more than GPflow"]
    for field in ("processor", "wall"):
        series = [Series(kind, *_by_round(starts, kind, field), dashed=kind not in AGAINST) for kind in kinds]
        panels.append(Panel("", "round", f"{field} seconds", series))
    notes = [
        "Medians over rounds; more than GPflow: median of the rounds' ratios. Both imports are timed in one process, GPflow's "
        "first; the other kinds have processes of their own, in turn.",
        "A first step counts from the start of Python, imports included. GPflow's is a compiled function of its natural "
        "gradient and Adam on a whitened SVGP, ours is fit(model, data, steps=1) on the same problem.",
    ]
    tables = [Table("Seconds until it is done", header, rows)]
    figure = Figure("startup", "Seconds of each process.", panels, columns=2)
    write(folder, Report("startup", "Start-up", command, [s._asdict() for s in starts], tables, [figure], notes))


def _by_round(starts: list[Start], kind: str, field: str) -> tuple[list[int], list[float]]:
    return [s.round for s in starts if s.kind == kind], _seconds(starts, kind, field).tolist()
