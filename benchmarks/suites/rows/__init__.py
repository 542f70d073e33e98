"""`build(X, Y)` as rows grow: seconds, errors and coverage with no option given.

Few rows have the exact GP, beside GPflow's `GPR` by its `Scipy` and scikit-learn's regressor with
the same kernel; many rows have neighbours. The function is generated, so that more rows are rows of
the same problem, and the best possible log density is known.
"""

from __future__ import annotations

__all__ = ["SUITE"]

import argparse
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...harness.machine import clock
from ...harness.measuring import peak_megabytes
from ...harness.pictures import Figure, Panel, Series
from ...harness.processes import in_a_process
from ...harness.report import Section, Table
from ...harness.runner import Part, Suite
from . import series
from .libraries import LIBRARIES, Fitted

COLUMNS = 4
NOISE = 0.1
"""Standard deviation of the noise; that of the function is about one."""
MOST_EXACT = 2000
"""Rows up to which the other libraries run: they store the kernel matrix."""
NOTES = [
    "Generated rows: sin(3 a) + cos(2 b) c + d^2 / 3, inputs uniform on [-2, 2], noise 0.1.",
    "Log density and coverage are those of 1,000 other rows, in units of Y.",
    "Seconds of training are those of `build` and `fit`, compilation included.",
    "Memory is the peak of a process of its own, TensorFlow and the rows included.",
]


class Row(NamedTuple):
    """One library on so many rows."""

    num_data: int
    library: str
    seconds: float
    """of training, compilation included"""
    predicting: float
    """seconds of 1,000 predictions"""
    evidence: float | None
    """nats of the training rows, in units of Y, where it is exact"""
    rmse: float
    log_density: float
    """mean of the test rows, nats"""
    coverage: float
    """share of the test rows in intervals of 95 %"""
    megabytes: float
    """peak of the process, in which nothing else ran"""


def generate(num_data: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a smooth function of four inputs with noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (num_data, COLUMNS))
    a, b, c, d = X.T
    f = np.sin(3.0 * a) + np.cos(2.0 * b) * c + d**2 / 3.0
    return X, (f + NOISE * rng.standard_normal(num_data))[:, None]


def _pieces(options: argparse.Namespace) -> list[tuple[int, str]]:
    return [
        (size, library)
        for size in options.sizes
        for library in options.libraries
        if library == "build" or size <= MOST_EXACT
    ]


def _measure(options: argparse.Namespace, num_data: int, library: str) -> list[Row]:
    return [in_a_process(_row, num_data, library, options.seed)]


def _row(num_data: int, library: str, seed: int) -> Row:
    train, test = generate(num_data, seed), generate(1000, seed + 1)
    train_it: Callable[..., Fitted] = LIBRARIES[library]
    start = clock()
    fitted = train_it(*train)
    trained = clock()
    mean, variance = fitted.predict(test[0])
    predicted = clock()
    error = test[1] - mean
    density = -0.5 * (np.log(2.0 * np.pi * variance) + error**2 / variance)
    inside = np.abs(error) < 1.96 * np.sqrt(variance)
    return Row(
        num_data,
        library,
        trained - start,
        predicted - trained,
        fitted.evidence,
        float(np.sqrt(np.mean(error**2))),
        float(density.mean()),
        float(inside.mean()),
        peak_megabytes(),
    )


def _cells(row: Row) -> list[str]:
    evidence = "" if row.evidence is None else f"{row.evidence:,.1f}"
    quality = [f"{row.rmse:.4f}", f"{row.log_density:.3f}", f"{100.0 * row.coverage:.1f} %"]
    seconds = [f"{row.seconds:.1f}", f"{row.predicting:.2f}"]
    memory = f"{row.megabytes:,.0f}"
    return [f"{row.num_data:,}", row.library, *seconds, evidence, *quality, memory]


def _section(rows: list[Row], _: argparse.Namespace) -> Section:
    header = ["rows", "library", "training, s", "1,000 predictions, s", "log evidence, nats"]
    header += ["RMSE", "log density", "in 95 %", "memory, MB"]
    table = Table("No options", header, [*map(_cells, rows)])
    series = []
    for name in dict.fromkeys(row.library for row in rows):
        mine = [row for row in rows if row.library == name]
        sizes, seconds = [row.num_data for row in mine], [row.seconds for row in mine]
        series.append(Series(name, sizes, seconds))
    panel = Panel("training", "rows", "seconds of training", series, "xy")
    best = -0.5 * np.log(2.0 * np.pi * np.e * NOISE**2)
    known = f"With the function known, the log density would be {best:.3f} nats on average."
    return Section([table], [Figure("rows", NOTES[2], [panel])], [*NOTES, known])


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sizes", nargs="+", type=int, default=[300, 1000, 2000, 10_000, 100_000, 1_000_000]
    )
    parser.add_argument(
        "--series-sizes", nargs="+", type=int, default=[1000, 2000, 10_000, 100_000, 1_000_000]
    )
    parser.add_argument("--most-sites", type=int, default=100_000, help="rows of labels and counts")
    parser.add_argument("--libraries", nargs="+", default=list(LIBRARIES), choices=list(LIBRARIES))


SUITE = Suite(
    "Few rows and many, by `build`",
    {"rows": Part(Row, _pieces, _measure, _section), "series": series.PART},
    _add_arguments,
    selecting=("sizes", "libraries"),
)
