"""What the parts share: the full GP as the truth, and how a method ended beside it, as a row and as
cells of a table.
"""

from __future__ import annotations

__all__ = ["HEADER", "NOTES", "PEERS", "Summary", "cells", "collapsed", "summary", "truth"]

import argparse
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .models import METHODS, Fit, Problem, clumped, exact, make_problem, recovered

PEERS = ("FITC", "DTC")
"""Methods whose objectives are no bounds of log p(y); their lines are dashed."""
COLLAPSED = ("vfe", "fitc", "dtc")
NOTES = [
    (
        "Squared-exponential kernel; kernel, noise and inducing inputs are learned from variance 1,"
        " lengthscale 1, noise 0.1."
    ),
    (
        "KL: mean over a grid, from the full GP's predictive density of y to the approximate one,"
        " nats."
    ),
    "Clumped: inducing inputs within 0.05 lengthscales of their neighbour.",
    (
        "Orthogonal: the collapsed bound with 50 of the inputs as mean points. Seconds are those of"
        " the processor."
    ),
]


def truth(options: argparse.Namespace) -> tuple[Problem, Fit]:
    """The problem that the options name, and the full GP on it, which is trained once."""
    task = options.task or ("snelson" if options.data else "generated")
    return _truth(task, options.data, options.num_data, options.iterations)


@lru_cache(maxsize=1)
def _truth(
    task: str, folder: str | None, num_data: int | None, iterations: int
) -> tuple[Problem, Fit]:
    problem = make_problem(task, folder, 0, num_data)
    return problem, exact(problem, iterations)


def collapsed(options: argparse.Namespace) -> list[str]:
    """Those of the methods that have collapsed objectives, in which q is at its optimum."""
    return [method for method in COLLAPSED if method in options.methods]


@dataclass
class Summary:
    """How a method ended beside the full GP."""

    method: str
    objective: float
    """nats"""
    excess: float
    """objective less log p(y), nats"""
    noise: float
    noise_ratio: float
    """noise variance over the full GP's"""
    kl: float
    """mean KL from the full GP's predictions, nats"""
    clumped: int
    iterations: int
    seconds: float


def summary(method: str, fit: Fit, full: Fit, problem: Problem) -> dict[str, Any]:
    """The fields of a `Summary`."""
    return {
        "method": METHODS[method][0],
        "objective": fit.objective,
        "excess": fit.objective - full.objective,
        "noise": fit.noise,
        "noise_ratio": fit.noise / full.noise,
        "kl": recovered(fit, full, problem),
        "clumped": clumped(fit),
        "iterations": fit.iterations,
        "seconds": fit.seconds,
    }


HEADER = (
    "objective less log p(y), nats",
    "noise / full GP's",
    "KL, nats",
    "clumped",
    "iterations",
    "s",
)


def cells(row: Summary) -> list[str]:
    """A `Summary` in the columns of `HEADER`."""
    numbers = [f"{row.excess:+.3f}", f"{row.noise_ratio:.3f}", f"{row.kl:.2g}", str(row.clumped)]
    return [*numbers, str(row.iterations), f"{row.seconds:.1f}"]
