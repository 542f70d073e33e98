"""Time and peak memory of a training step of `ODVGP` against the number of mean points.

Each size has a process of its own.
"""

from __future__ import annotations

__all__ = ["Usage", "add_arguments", "peak_megabytes", "run", "slopes"]

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .data import Data
from .models import Settings
from .ours import build_large, whole_step
from .report import Figure, Panel, Report, Series, Table, write

_DIMENSION, _NUM_DATA = 8, 20_000


class Usage(NamedTuple):
    """What one process measured."""

    num_gamma: int
    ms: float
    """median of a step"""
    peak_mb: float
    """peak resident memory of the process"""
    step_mb: float
    """peak over what was resident before the step was built"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", nargs="+", type=int, default=[1_000, 10_000, 100_000], help="numbers of mean points")
    parser.add_argument("--num-beta", type=int, default=300)
    parser.add_argument("--subsample", type=int, default=100, help="mean_subsample: rows of the sampled divergence")
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=7)


def run(options: argparse.Namespace, command: str, folder: Path) -> list[Usage]:
    """Measure every size in its own process, one after the other."""
    usages = []
    for size in options.sizes:
        arguments = [
            size,
            options.num_beta,
            options.subsample,
            options.batch_size,
            options.steps,
            options.seed,
        ]
        child = subprocess.run(
            [sys.executable, "-m", "benchmarks.memory", *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
        )
        if child.returncode:
            raise RuntimeError(f"The step with {size} mean points failed:\n{child.stderr[-2000:]}")
        usages.append(Usage(**json.loads(child.stdout.splitlines()[-1])))
        print(usages[-1], flush=True)
    _write(usages, options.num_beta, command, folder)
    return usages


def peak_megabytes() -> float:
    """Peak resident memory of this process, MB."""
    try:
        # not getrusage: there a child starts with the peak of the parent that spawned it
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # macOS counts in bytes


def slopes(usages: list[Usage], field: str) -> list[float]:
    """d log(field) / d log(M_gamma) between neighbouring sizes: 1 is linear, 2 quadratic."""
    x, y = np.log([u.num_gamma for u in usages]), np.log([getattr(u, field) for u in usages])
    return [float(slope) for slope in np.diff(y) / np.diff(x)]


def measure(num_gamma: int, num_beta: int, subsample: int, batch_size: int, steps: int, seed: int) -> Usage:
    """Build an ODVGP on random data and take `steps` training steps after a first one."""
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
        start = time.perf_counter()
        step()
        times.append(1e3 * (time.perf_counter() - start))
    peak = peak_megabytes()
    return Usage(num_gamma, float(np.median(times)), peak, peak - before)


def _write(usages: list[Usage], num_beta: int, command: str, folder: Path) -> None:
    time_slopes, memory_slopes = (["", *map("{:.2f}".format, slopes(usages, field))] for field in ("ms", "step_mb"))
    rows = [
        [f"{u.num_gamma:,}", f"{u.ms:.1f}", time_slope, f"{u.peak_mb:.0f}", f"{u.step_mb:.0f}", memory_slope]
        for u, time_slope, memory_slope in zip(usages, time_slopes, memory_slopes)
    ]
    header = ["M_gamma", "ms a step", "slope", "peak MB", "MB over the base", "slope"]
    notes = [
        "Slope: of the logarithms, between a row and the one above; 1 is linear.",
        "Whole training step; every size in a process of its own. Base: peak before the step was built.",
    ]
    panels = [_panel(usages, "ms", "ms a step"), _panel(usages, "step_mb", "peak memory over the base (MB)")]
    figure = Figure("memory", f"Time and memory of an ODVGP step, M_beta = {num_beta}.", panels, columns=2)
    data, tables = [usage._asdict() for usage in usages], [Table(f"ODVGP, M_beta = {num_beta}", header, rows)]
    write(folder, Report("memory", "Cost in the number of mean points", command, data, tables, [figure], notes))


def _panel(usages: list[Usage], field: str, label: str) -> Panel:
    x, y = [u.num_gamma for u in usages], [getattr(u, field) for u in usages]
    linear = Series("linear", x, [y[-1] * size / x[-1] for size in x], dashed=True)
    return Panel("", "mean points M_gamma", label, [Series("measured", x, y), linear], log="xy")


if __name__ == "__main__":
    print(json.dumps(measure(*map(int, sys.argv[1:]))._asdict()))
