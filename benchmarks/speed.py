"""Milliseconds of a natural-gradient step and of the whole training step, ours against GPflow's, paired.

GPflow: its `NaturalGradient` and `tf_keras` Adam on a whitened `SVGP`, compiled. Ours: the coupled basis,
which is the same family.
"""

from __future__ import annotations

__all__ = ["add_arguments", "interleave", "run"]

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .data import Data, load
from .models import Settings, Spec, build, precision
from .ours import natural_step, whole_step
from .peers import gpflow_steps
from .report import Figure, Panel, Report, Series, Table, write

KINDS = ("natural gradient", "whole step", "whole step, sites held")
"""The last is what `fit` does by default; GPflow's own step stands beside it, which does less."""
BASE = "GPflow float64"
FASTER = f"times faster than {BASE}"


class Timing(NamedTuple):
    """Median over rounds; the ratio is the median of GPflow's time over this one's in the same round."""

    kind: str
    num_inducing: int
    label: str
    ms: float
    ratio: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tasks", nargs=1, help="default: kin40k, or synthetic where no --data is given")
    parser.add_argument(
        "--sizes", nargs="+", type=int, default=[100, 300, 500, 1000], help="numbers of inducing points"
    )
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=7, help="how often every step is timed, in turn")
    parser.add_argument("--seconds", type=float, default=0.5, help="length of one timing")
    parser.add_argument("--float32", action="store_true", help="time both in float32 too")


def run(options: argparse.Namespace, command: str, folder: Path) -> list[Timing]:
    """Time all steps at all sizes and write the report after each size."""
    settings = Settings(batch_size=options.batch_size, seed=options.seed)
    data = load(*(options.tasks or ["kin40k" if options.data else "synthetic"]), folder=options.data)
    dtypes = ["float64", "float32"] if options.float32 else ["float64"]
    timings: list[Timing] = []
    for size in options.sizes:
        steps = _steps(size, data, settings, dtypes)
        for kind in KINDS:
            times = interleave({label: pair[kind] for label, pair in steps.items()}, options.rounds, options.seconds)
            timings += _timings(kind, size, times)
            print(*timings[-len(times) :], sep="\n", flush=True)
        _write(timings, data.name, command, folder)
    return timings


def interleave(
    functions: dict[str, Callable[[], Any]],
    rounds: int,
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, np.ndarray]:
    """Milliseconds of a call, [rounds] for each function, in turn: a busy machine slows all of them."""
    repeats, times = {}, {label: np.zeros(rounds) for label in functions}
    for label, function in functions.items():
        function()  # traces
        repeats[label] = max(1, int(1e3 * seconds / _milliseconds(function, 1, clock)))
    for index in range(rounds):
        for label, function in functions.items():
            times[label][index] = _milliseconds(function, repeats[label], clock)
    return times


def _milliseconds(function: Callable[[], Any], repeats: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(repeats):
        function()
    return 1e3 * (clock() - start) / repeats


def _steps(size: int, data: Data, settings: Settings, dtypes: list[str]) -> dict[str, dict[str, Callable[[], Any]]]:
    """Label -> kind -> compiled step, traced here, since GPflow reads its default float while tracing."""
    steps: dict[str, dict[str, Callable[[], Any]]] = {}
    for dtype in dtypes:
        with precision(dtype):
            cast = data.cast(dtype)
            peer = gpflow_steps(build(Spec("gpflow", size), cast, settings), cast, settings)
            model = build(Spec("coupled", size), cast, settings)
            natural = natural_step(model, cast, settings)
            whole, held = (whole_step(model, cast, settings, hold_sites) for hold_sites in (False, True))
            steps[f"GPflow {dtype}"] = dict(zip(KINDS, (peer.natural, peer.both, peer.both)))
            steps[f"gpflow_decoupled {dtype}"] = dict(zip(KINDS, (natural, whole, held)))
            for function in (peer.natural, peer.both, natural, whole, held):
                function()
    return steps


def _timings(kind: str, size: int, times: dict[str, np.ndarray]) -> list[Timing]:
    return [
        Timing(kind, size, label, float(np.median(ms)), float(np.median(times[BASE] / ms)))
        for label, ms in times.items()
    ]


def _write(timings: list[Timing], task: str, command: str, folder: Path) -> None:
    tables, panels, speedups = [], [], []
    for kind in KINDS:
        rows = [[str(t.num_inducing), t.label, f"{t.ms:.2f}", f"{t.ratio:.2f}"] for t in timings if t.kind == kind]
        tables.append(Table(kind, ["M", "library", "ms (median)", FASTER], rows))
        panels.append(Panel(kind, "inducing points M", "ms a step", _series(timings, kind, "ms"), log="xy"))
        faster = [series for series in _series(timings, kind, "ratio") if series.label != BASE]
        speedups.append(Panel(kind, "inducing points M", FASTER, faster, log="x"))
    notes = [f"Data: {task}. Steps are timed in turn, in one process; a ratio is the median of the rounds' ratios."]
    figure = Figure("speed", "Time of a step and ratio to GPflow.", panels + speedups, columns=2)
    data = [timing._asdict() for timing in timings]
    write(folder, Report("speed", "Speed of a training step", command, data, tables, [figure], notes))


def _series(timings: list[Timing], kind: str, field: str) -> list[Series]:
    chosen = [timing for timing in timings if timing.kind == kind]
    series = []
    for label in dict.fromkeys(timing.label for timing in chosen):
        mine = [timing for timing in chosen if timing.label == label]
        series.append(
            Series(
                label,
                [t.num_inducing for t in mine],
                [getattr(t, field) for t in mine],
                dashed=label.startswith("GPflow"),
            )
        )
    return series
