"""Time and peak memory of a training step of `ODVGP` against the number of mean points, each in a
process of its own.
"""

from __future__ import annotations

__all__ = ["PART", "Usage", "measure"]

import argparse
from typing import NamedTuple

import numpy as np

from ...harness.data import Data
from ...harness.machine import clock
from ...harness.measuring import peak_megabytes, slopes
from ...harness.pictures import Figure, Panel, Series
from ...harness.processes import in_a_process
from ...harness.report import Section, Table
from ...harness.runner import Part
from ...libraries.models import Settings
from ...libraries.ours import build_large, whole_step

_DIMENSION, _NUM_DATA = 8, 20_000


class Usage(NamedTuple):
    """What one process measured."""

    num_gamma: int
    num_beta: int
    ms: float
    """median per step"""
    peak_mb: float
    """peak resident memory of the process"""
    step_mb: float
    """peak over what was resident before the step was built"""


def measure(options: argparse.Namespace, num_gamma: int) -> list[Usage]:
    """Measure one number of mean points in a process of its own."""
    sizes = (num_gamma, options.num_beta, options.subsample, options.batch_size)
    return [in_a_process(_usage, *sizes, options.steps, options.seed)]


def _usage(
    num_gamma: int, num_beta: int, subsample: int, batch_size: int, steps: int, seed: int
) -> Usage:
    """Build an ODVGP on random data, and take `steps` training steps after a first one, which
    compiles.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal([_NUM_DATA, _DIMENSION])
    Y = np.sin(X.sum(1, keepdims=True)) + 0.1 * rng.standard_normal([_NUM_DATA, 1])
    data = Data("random", X, Y, X[:1], Y[:1])
    gamma, beta = (rng.standard_normal([size, _DIMENSION]) for size in (num_gamma, num_beta))
    model = build_large(gamma, beta, _NUM_DATA, subsample)
    before = peak_megabytes()
    step = whole_step(model, data, Settings(batch_size=batch_size, seed=seed), hold_sites=True)
    step()
    times = []
    for _ in range(steps):
        start = clock()
        step()
        times.append(1e3 * (clock() - start))
    peak = peak_megabytes()
    return Usage(num_gamma, num_beta, float(np.median(times)), peak, peak - before)


def section(usages: list[Usage], _: argparse.Namespace) -> Section:
    """A row per size, with slopes."""
    sizes = [one.num_gamma for one in usages]
    times, memories = ([getattr(one, field) for one in usages] for field in ("ms", "step_mb"))
    time_slopes, memory_slopes = (
        ["", *map("{:.2f}".format, slopes(sizes, values))] for values in (times, memories)
    )
    rows = [
        [
            f"{u.num_gamma:,}",
            f"{u.ms:.1f}",
            time_slope,
            f"{u.peak_mb:.0f}",
            f"{u.step_mb:.0f}",
            memory_slope,
        ]
        for u, time_slope, memory_slope in zip(usages, time_slopes, memory_slopes)
    ]
    header = ["M_gamma", "ms per step", "slope", "peak MB", "MB over the base", "slope"]
    title = f"Many mean points: `ODVGP`, M_beta = {usages[0].num_beta}"
    note = (
        "Many mean points: the whole training step; every size has a process of its own. Slopes are"
        " those of log-log lines between a row and the one above it, 1 is linear. The base is the"
        " peak before the step was built."
    )
    panels = [
        _panel(sizes, times, "ms per step"),
        _panel(sizes, memories, "peak memory over the base (MB)"),
    ]
    return Section(
        [Table(title, header, rows)],
        [Figure("steps_memory", f"{title}.", panels, columns=2)],
        [note],
    )


def _panel(sizes: list[int], values: list[float], label: str) -> Panel:
    linear = Series("linear", sizes, [values[-1] * size / sizes[-1] for size in sizes], dashed=True)
    return Panel(
        "", "mean points M_gamma", label, [Series("measured", sizes, values), linear], log="xy"
    )


PART = Part(Usage, lambda options: [(size,) for size in options.mean_points], measure, section)
