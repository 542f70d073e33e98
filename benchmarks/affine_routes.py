"""The three routes to expectations of sites, side by side: error, time and memory.

The sum over logistic sites by lattices, by products of characteristic functions, and by frequency sums, with its gradient; the
truth is the second with many points. Memory: each setting has a process of its own."""

from __future__ import annotations

__all__ = ["NAMES", "PART", "SETTINGS", "Route", "memory_and_ms", "processor_ms", "sites_and_gradient"]

import argparse
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from gpflow_decoupled.distributions import base_variable
from gpflow_decoupled.expectations.fourier import Variables, expectation
from gpflow_decoupled.expectations.projections import Projections
from gpflow_decoupled.likelihoods.sites.logit import logistic_site

from .measuring import in_a_process, peak_megabytes
from .parts import Part
from .report import Figure, Panel, Section, Series, Table

SETTINGS = (
    *(("lattice", size) for size in (256, 1024, 4096)),
    *(("spectral", size) for size in (128, 256, 512, 1024)),
    *(("frequency_sum", size) for size in (16, 32, 48, 64)),
)
NAMES = {"lattice": "R1, lattice", "spectral": "R2, spectral", "frequency_sum": "R3, frequency sum"}
_LAST = [(name, max(size for other, size in SETTINGS if other == name)) for name in NAMES]
_TRUTH = 2**14
"""Points."""


class Route(NamedTuple):
    """One route with one number of points or frequencies."""

    route: str
    size: int
    error: float
    """of the sum over sites, in nats"""
    ms: float
    """of its value and gradient, processor"""
    megabytes: float
    """peak of a process that computes them over what it took for a single site; NaN where it was not measured"""


def measure(options: argparse.Namespace, name: str, size: int) -> list[Route]:
    """One setting; all are on the same random projections."""
    truth = _truth(options.sites, options.dimensions, options.seed)
    function = sites_and_gradient(name, size, options.sites, options.dimensions, options.seed)
    error = abs(float(function()[0] - truth))
    megabytes = float("nan")
    if options.processes and (name, size) in _LAST:
        megabytes, _ = memory_and_ms(name, size, options.sites, options.dimensions)
    return [Route(name, size, error, processor_ms(function, options.rounds), megabytes)]


@lru_cache(maxsize=1)
def _truth(sites: int, dimensions: int, seed: int) -> float:
    return float(sites_and_gradient("spectral", _TRUTH, sites, dimensions, seed)()[0])


def sites_and_gradient(name: str, size: int, sites: int, dimensions: int, seed: int) -> Callable[[], list]:
    """A compiled function for the sum over sites and its gradient in alpha, beta and the shapes."""
    rng = np.random.default_rng(seed)
    alpha, beta = rng.standard_normal((sites, dimensions)), rng.standard_normal(sites)
    parts = [tf.constant(part) for part in (alpha, beta, 2.0 * rng.standard_normal((dimensions, 1)))]
    base = base_variable("skew_normal")
    variables = Variables(base.characteristic, base.cdf, base.work)
    site = logistic_site(tf.constant(np.where(rng.uniform(size=sites) < 0.5, 1.0, -1.0)))
    R = tf.reduce_max(base.tail(parts[2]))

    def both(*inputs: tf.Tensor) -> tuple:
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            value = tf.reduce_sum(expectation(variables, Projections(*inputs), site, R, name, size))
        return value, *tape.gradient(value, inputs)

    compiled: Any = tf.function(both, autograph=False)
    return lambda: [part.numpy() for part in compiled(*parts)]


def processor_ms(function: Callable[[], Any], rounds: int) -> float:
    """Median of so many calls, milliseconds of the processor, after one that compiles."""
    function()
    times = []
    for _ in range(rounds):
        began = time.process_time()
        function()
        times.append(1e3 * (time.process_time() - began))
    return float(np.median(times))


def memory_and_ms(name: str, size: int, sites: int, dimensions: int) -> tuple[float, float]:
    """Megabytes that a process takes for value and gradient over what it took for one site, and its milliseconds."""
    return in_a_process(_measured_here, name, size, sites, dimensions)


def section(routes: list[Route]) -> Section:
    """Error against time."""
    cells = [
        [NAMES[one.route], str(one.size), f"{one.error:.1e}", f"{one.ms:.1f}", _whole(one.megabytes)] for one in routes
    ]
    header = ["route", "points or frequencies", "error of the sum, nats", "value and gradient ms", "MB"]
    lines = []
    for name in dict.fromkeys(one.route for one in routes):
        mine = [one for one in routes if one.route == name]
        lines.append(Series(NAMES[name], [one.ms for one in mine], [max(one.error, 1e-12) for one in mine]))
    panel = Panel("Routes", "value and gradient, ms", "error of the sum, nats", lines, log="xy")
    note = (
        "Routes: milliseconds of the processor; MB over what a process takes for one site, libraries and compilation; "
    )
    note += "errors below 1e-12 are drawn there."
    figure = Figure("affine_routes", "Error and time of the three routes.", [panel])
    return Section([Table("Routes", header, cells)], [figure], [note])


def _whole(number: float) -> str:
    return f"{number:.0f}" if np.isfinite(number) else "-"


def _measured_here(name: str, size: int, sites: int, dimensions: int) -> tuple[float, float]:
    sites_and_gradient(name, 8, 1, dimensions, 0)()
    before = peak_megabytes()
    ms = processor_ms(sites_and_gradient(name, size, sites, dimensions, 0), 1)
    return peak_megabytes() - before, ms


PART = Part(Route, lambda options: list(SETTINGS), measure, section)
