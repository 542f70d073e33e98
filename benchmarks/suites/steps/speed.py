"""Milliseconds of a natural-gradient step and of the whole training step, ours in turn with
GPflow's.

GPflow's step is its `NaturalGradient` and the Adam of `tf_keras` on a whitened `SVGP`, compiled.
Ours is that of the coupled basis, which is the same family of posteriors."""

from __future__ import annotations

__all__ = ["PART", "Timing", "measure"]

import argparse
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...harness.data import Data, load
from ...harness.measuring import interleave
from ...harness.pictures import Figure, Panel, Series
from ...harness.report import Section, Table
from ...harness.runner import Part
from ...libraries.gpflow_svgp import gpflow_steps
from ...libraries.models import Settings, Spec, build, precision
from ...libraries.ours import natural_step, whole_step

KINDS = ("natural gradient", "whole step", "whole step, sites held")
"""The last is what `fit` does for batches of at least 2 M rows. GPflow has no such step: its whole
step stands beside it.
"""
BASE = "GPflow float64"
FASTER = f"times faster than {BASE}"


class Timing(NamedTuple):
    """One step of one library."""

    kind: str
    num_inducing: int
    label: str
    ms: float
    """median over rounds"""
    ratio: float
    """median over rounds of GPflow's time over this one's in the same round"""


def measure(options: argparse.Namespace, task: str, size: int) -> list[Timing]:
    """Time all steps of all libraries with `size` inducing points."""
    settings = Settings(batch_size=options.batch_size, seed=options.seed)
    data, dtypes = (
        load(task, folder=options.data),
        ["float64", "float32"] if options.float32 else ["float64"],
    )
    steps, timings = _steps(size, data, settings, dtypes), []
    for kind in KINDS:
        times = interleave(
            {label: of[kind] for label, of in steps.items() if kind in of},
            options.rounds,
            options.seconds,
        )
        timings += _timings(kind, size, times)
    return timings


def _steps(
    size: int, data: Data, settings: Settings, dtypes: list[str]
) -> dict[str, dict[str, Callable[[], object]]]:
    """Label -> kind -> compiled step. They are traced here, because GPflow reads its default float
    while it traces.
    """
    steps: dict[str, dict[str, Callable[[], object]]] = {}
    for dtype in dtypes:
        with precision(dtype):
            cast = data.cast(dtype)
            peer = gpflow_steps(build(Spec("gpflow", size), cast, settings), cast, settings)
            model = build(Spec("coupled", size), cast, settings)
            natural = natural_step(model, cast, settings)
            whole, held = (
                whole_step(model, cast, settings, hold_sites) for hold_sites in (False, True)
            )
            steps[f"GPflow {dtype}"] = dict(zip(KINDS, (peer.natural, peer.both, peer.both)))
            steps[f"gpflow_decoupled {dtype}"] = dict(zip(KINDS, (natural, whole, held)))
            for function in (peer.natural, peer.both, natural, whole, held):
                function()
    if "float32" in dtypes:
        with precision("float64"):
            cast = data.cast("float64")
            model = build(Spec("coupled", size), cast, settings)
            mixed = {
                kind: whole_step(model, cast, settings, hold, mixed=True)
                for kind, hold in zip(KINDS[1:], (False, True))
            }
            steps["gpflow_decoupled mixed"] = mixed
            for function in mixed.values():
                function()
    return steps


def _timings(kind: str, size: int, times: dict[str, np.ndarray]) -> list[Timing]:
    return [
        Timing(kind, size, label, float(np.median(ms)), float(np.median(times[BASE] / ms)))
        for label, ms in times.items()
    ]


def section(timings: list[Timing], _: argparse.Namespace) -> Section:
    """A table per kind of step, and panels of times and ratios."""
    tables, panels, speedups = [], [], []
    for kind in KINDS:
        rows = [
            [str(t.num_inducing), t.label, f"{t.ms:.2f}", f"{t.ratio:.2f}"]
            for t in timings
            if t.kind == kind
        ]
        tables.append(Table(f"Speed: {kind}", ["M", "library", "ms (median)", FASTER], rows))
        panels.append(
            Panel(kind, "inducing points M", "ms per step", _series(timings, kind, "ms"), log="xy")
        )
        faster = [series for series in _series(timings, kind, "ratio") if series.label != BASE]
        speedups.append(Panel(kind, "inducing points M", FASTER, faster, log="x"))
    note = (
        "Speed: steps are timed in turn in one process; a ratio is the median of the ratios of all"
        " rounds."
    )
    figure = Figure(
        "steps_speed", "Time of a step and ratio to GPflow.", panels + speedups, columns=2
    )
    return Section(tables, [figure], [note])


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


def _pieces(options: argparse.Namespace) -> list[tuple]:
    task = options.tasks[0] if options.tasks else "kin40k" if options.data else "synthetic"
    return [(task, size) for size in options.sizes]


PART = Part(Timing, _pieces, measure, section)
