"""Three ways to compute expectations of sites, side by side: error, time and memory.

The sum over logistic sites and its gradient are computed by lattices (R1), by products of
characteristic functions (R2) and by frequency sums (R3). The truth is R2 with many points. For its
memory, each setting has a process of its own."""

from __future__ import annotations

__all__ = ["NAMES", "PART", "memory_and_ms", "sites_and_gradient"]

import argparse
import time
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from gpflow_decoupled.distributions import base_variable
from gpflow_decoupled.expectations.fourier import expectation
from gpflow_decoupled.expectations.projections import Projections
from gpflow_decoupled.likelihoods.bernoulli import logistic_site

from ...harness.measuring import median_ms, peak_megabytes
from ...harness.pictures import Figure, Panel, Series
from ...harness.processes import in_a_process
from ...harness.report import Section, Table
from ...harness.runner import Part

SETTINGS = (
    *(("lattice", size) for size in (256, 1024, 4096)),
    *(("spectral", size) for size in (128, 256, 512, 1024)),
    *(("frequency_sum", size) for size in (16, 32, 48, 64)),
)
NAMES = {"lattice": "R1, lattice", "spectral": "R2, spectral", "frequency_sum": "R3, frequency sum"}
_LAST = [(name, max(size for other, size in SETTINGS if other == name)) for name in NAMES]
_TRUTH = 2**14
"""Points of the truth."""


class Route(NamedTuple):
    """One route with one number of points or frequencies."""

    route: str
    size: int
    error: float
    """of the sum over sites, in nats"""
    ms: float
    """processor milliseconds of value and gradient"""
    megabytes: float
    """peak of a process that computes them, less what it takes for a single site; NaN where it was
    not measured
    """


def measure(options: argparse.Namespace, name: str, size: int) -> list[Route]:
    """Measure one setting; all settings have the same random projections."""
    truth = _truth(options.sites, options.dimensions, options.seed)
    function = sites_and_gradient(name, size, options.sites, options.dimensions, options.seed)
    error = abs(float(function()[0] - truth))
    megabytes = float("nan")
    if options.processes and (name, size) in _LAST:
        megabytes, _ = memory_and_ms(name, size, options.sites, options.dimensions)
    return [
        Route(name, size, error, median_ms(function, options.rounds, time.process_time), megabytes)
    ]


@lru_cache(maxsize=1)
def _truth(sites: int, dimensions: int, seed: int) -> float:
    return float(sites_and_gradient("spectral", _TRUTH, sites, dimensions, seed)()[0])


def sites_and_gradient(
    name: str, size: int, sites: int, dimensions: int, seed: int
) -> Callable[[], list[np.ndarray]]:
    """A compiled function for the sum over sites and its gradient in alpha, beta and the shapes."""
    rng = np.random.default_rng(seed)
    alpha, beta = rng.standard_normal((sites, dimensions)), rng.standard_normal(sites)
    parts = [
        tf.constant(part) for part in (alpha, beta, 2.0 * rng.standard_normal((dimensions, 1)))
    ]
    base = base_variable("skew_normal")
    site = logistic_site(tf.constant(np.where(rng.uniform(size=sites) < 0.5, 1.0, -1.0)))
    R = tf.reduce_max(base.tail(parts[2]))

    def both(*inputs: tf.Tensor) -> tuple:
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            value = tf.reduce_sum(expectation(base, Projections(*inputs), site, R, name, size))
        return value, *tape.gradient(value, inputs)

    compiled = tf.function(both, autograph=False)
    return lambda: [part.numpy() for part in compiled(*parts)]


def memory_and_ms(name: str, size: int, sites: int, dimensions: int) -> tuple[float, float]:
    """Megabytes of a process for value and gradient, less what it takes for one site; and its
    milliseconds.
    """
    return in_a_process(_measured_here, name, size, sites, dimensions)


def section(routes: list[Route], _: argparse.Namespace) -> Section:
    """Error against time."""
    cells = [
        [
            NAMES[one.route],
            str(one.size),
            f"{one.error:.1e}",
            f"{one.ms:.1f}",
            _whole(one.megabytes),
        ]
        for one in routes
    ]
    header = [
        "route",
        "points or frequencies",
        "error of the sum, nats",
        "value and gradient ms",
        "MB",
    ]
    lines = []
    for name in dict.fromkeys(one.route for one in routes):
        mine = [one for one in routes if one.route == name]
        lines.append(
            Series(NAMES[name], [one.ms for one in mine], [max(one.error, 1e-12) for one in mine])
        )
    panel = Panel("Routes", "value and gradient, ms", "error of the sum, nats", lines, log="xy")
    note = (
        "Routes: milliseconds of the processor; MB less what a process takes for one site,"
        " libraries and compilation; errors below 1e-12 are drawn at 1e-12."
    )
    figure = Figure("affine_routes", "Error and time of the three routes.", [panel])
    return Section([Table("Routes", header, cells)], [figure], [note])


def _whole(number: float) -> str:
    return f"{number:.0f}" if np.isfinite(number) else "-"


def _measured_here(name: str, size: int, sites: int, dimensions: int) -> tuple[float, float]:
    sites_and_gradient(name, 8, 1, dimensions, 0)()
    before = peak_megabytes()
    ms = median_ms(sites_and_gradient(name, size, sites, dimensions, 0), 1, time.process_time)
    return peak_megabytes() - before, ms


PART = Part(Route, lambda options: list(SETTINGS), measure, section)
