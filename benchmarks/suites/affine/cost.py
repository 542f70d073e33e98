"""What expectations of sites cost: time of value and gradient against D, N and the number K of
points or frequencies.

One of the three varies at a time. Memory is that of a process at D = N = 100 with 2048 points or 64
frequencies."""

from __future__ import annotations

__all__ = ["PART"]

import argparse
import time
from typing import NamedTuple

import numpy as np

from ...harness.measuring import median_ms
from ...harness.pictures import Figure, Panel, Series
from ...harness.report import Section, Table
from ...harness.runner import Part
from .routes import NAMES, memory_and_ms, sites_and_gradient

_AXES = {"D": (8, 16, 32, 64), "N": (32, 64, 128, 256), "K": (1, 2, 4, 8)}
_D, _N = 16, 64
_SIZES = {"lattice": 512, "spectral": 512, "frequency_sum": 32}
"""Number of points or frequencies of each route where D or N varies, and what the factors of K
multiply.
"""
_LARGE = {"lattice": 2048, "spectral": 2048, "frequency_sum": 64}


class Cost(NamedTuple):
    """One setting of one route."""

    route: str
    axis: str
    """what varies: "D", "N" or "K"; or "large", the problem whose memory is measured"""
    D: int
    N: int
    size: int
    ms: float
    """of the processor"""
    megabytes: float
    """of "large" only: less what the process takes for one site"""


def _pieces(options: argparse.Namespace) -> list[tuple]:
    """Every route along every axis, as far as `--cost-steps` goes, and the large problem."""
    moved = [
        (route, axis, step)
        for route in NAMES
        for axis in _AXES
        for step in _AXES[axis][: options.cost_steps]
    ]
    return moved + ([(route, "large", 100) for route in NAMES] if options.processes else [])


def measure(options: argparse.Namespace, route: str, axis: str, step: int) -> list[Cost]:
    """One setting of one route."""
    if axis == "large":
        megabytes, ms = memory_and_ms(route, _LARGE[route], step, step)
        return [Cost(route, axis, step, step, _LARGE[route], ms, megabytes)]
    D, N = (step if axis == "D" else _D), (step if axis == "N" else _N)
    size = _SIZES[route] * (step if axis == "K" else 1)
    ms = median_ms(
        sites_and_gradient(route, size, N, D, options.seed), options.rounds, time.process_time
    )
    return [Cost(route, axis, D, N, size, ms, float("nan"))]


def _slope(x: list[int], y: list[float]) -> float:
    """Slope of the logarithms over the last two points; at smaller sizes, what does not grow has a
    share.
    """
    return (
        float(np.diff(np.log(y[-2:]))[0] / np.diff(np.log(x[-2:]))[0])
        if len(x) > 1
        else float("nan")
    )


def section(costs: list[Cost], _: argparse.Namespace) -> Section:
    """Slopes of the logarithms, and the lines themselves."""
    panels, rows = [], []
    lines = {axis: _lines(costs, axis) for axis in _AXES}
    labels = {"D": "base variables D", "N": "sites N", "K": "points K, or frequencies"}
    for axis, series in lines.items():
        panels.append(Panel("", labels[axis], "value and gradient, ms", series, log="xy"))
    for route, name in NAMES.items():
        slopes = [
            _slope(list(one.x), list(one.y))
            for axis in _AXES
            for one in lines[axis]
            if one.label == name
        ]
        large = next((one for one in costs if (one.route, one.axis) == (route, "large")), None)
        measured = (
            ["-", "-", "-"]
            if large is None
            else [str(large.size), f"{large.ms:.0f}", f"{large.megabytes:.0f}"]
        )
        rows.append([name, *(f"{slope:.2f}" for slope in slopes), *measured])
    header = ["route", "slope in D", "slope in N", "slope in K", "D = N = 100: points", "ms", "MB"]
    note = (
        "Cost: processor milliseconds; slopes of log time over the last two points; MB less what a"
        " process takes for one site, libraries and compilation included. The limit `memory` was 64"
        " MB per tensor. ms of D = N = 100: one call."
    )
    figure = Figure("affine_cost", f"D = {_D} and N = {_N} where they do not vary.", panels)
    return Section([Table("Cost", header, rows)], [figure], [note])


def _lines(costs: list[Cost], axis: str) -> list[Series]:
    field = "size" if axis == "K" else axis
    found = []
    for route, name in NAMES.items():
        mine = [one for one in costs if (one.route, one.axis) == (route, axis)]
        found.append(Series(name, [getattr(one, field) for one in mine], [one.ms for one in mine]))
    return found


PART = Part(Cost, _pieces, measure, section)
