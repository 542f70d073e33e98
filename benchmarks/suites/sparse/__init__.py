"""Sparse approximations of one regression: VFE, FITC, DTC and the orthogonal bound beside the full
GP, with more and more inducing inputs. Everything is learned.

The claims are those of Titsias (2009) and of Bauer, van der Wilk & Rasmussen (2016). The
uncollapsed bound by natural gradients on minibatches stands beside them. `models.py` has the
methods.
"""

from __future__ import annotations

__all__ = ["SUITE"]

import argparse
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from ...harness.pictures import Figure, Panel, Series
from ...harness.report import Section, Table
from ...harness.runner import Part, Suite
from .models import METHODS, Fit, Problem, clumped, exact, make_problem, recovered, sparse

PEERS = ("FITC", "DTC")
"""Methods whose objectives are no bounds of log p(y); their lines are dashed."""
QUANTITIES = {
    "excess": "objective less log p(y), nats",
    "noise_ratio": "noise variance over the full GP's",
    "kl": "KL from the full GP, nats",
    "clumped": "clumped inducing inputs",
}
NOTES = [
    "Squared-exponential kernel; all starts have variance 1, lengthscale 1, noise 0.1.",
    "KL: mean over a grid, from the full GP's predictive density of y to the approximate one.",
    "Clumped: inducing inputs within 0.05 lengthscales of their neighbour.",
    "Orthogonal: the collapsed bound with 50 of the inputs as mean points.",
    "Seconds are those of the processor.",
]


class Exact(NamedTuple):
    """The full GP."""

    task: str
    objective: float
    """log evidence, nats"""
    noise: float
    """noise variance"""
    num_data: int


class Row(NamedTuple):
    """A method with a number of inducing inputs, beside the full GP."""

    num: int
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


def _measure_exact(options: argparse.Namespace) -> list[Exact]:
    problem, full = truth(options)
    return [Exact(problem.name, full.objective, full.noise, len(problem.X))]


def _measure(options: argparse.Namespace, num: int, method: str) -> list[Row]:
    """The best of some random starts."""
    problem, full = truth(options)
    starts = range(1 if method == "svgp" else options.starts)
    fits = [sparse(method, problem, num, seed, options.iterations) for seed in starts]
    best = max(fits, key=lambda fit: fit.objective)
    return [
        Row(
            num,
            METHODS[method][0],
            best.objective,
            best.objective - full.objective,
            best.noise,
            best.noise / full.noise,
            recovered(best, full, problem),
            clumped(best),
            best.iterations,
            best.seconds,
        )
    ]


def _section_exact(rows: list[Exact], _: argparse.Namespace) -> Section:
    (row,) = rows
    found = f"log evidence {row.objective:.3f} nats, noise variance {row.noise:.4f}"
    return Section([], [], [f"Task {row.task}, full GP: {found}; N = {row.num_data}."])


def _cells(row: Row) -> list[str]:
    numbers = [f"{row.excess:+.3f}", f"{row.noise_ratio:.3f}", f"{row.kl:.2g}", str(row.clumped)]
    return [str(row.num), row.method, *numbers, str(row.iterations), f"{row.seconds:.1f}"]


def _panel(rows: list[Row], quantity: str, label: str) -> Panel:
    series = []
    for name in dict.fromkeys(row.method for row in rows):
        mine = [row for row in rows if row.method == name]
        numbers, values = [row.num for row in mine], [getattr(row, quantity) for row in mine]
        series.append(Series(name, numbers, values, name in PEERS))
    return Panel(label, "inducing inputs", label, series, "y" if quantity == "kl" else "")


def _section(rows: list[Row], _: argparse.Namespace) -> Section:
    header = ("M", "method", *QUANTITIES.values(), "iterations", "s")
    table = Table("As inducing inputs are added", header, [_cells(row) for row in rows])
    panels = [_panel(rows, quantity, label) for quantity, label in QUANTITIES.items()]
    figure = Figure("sparse", "Dashed: no bounds of log p(y).", panels, columns=2)
    return Section([table], [figure], NOTES)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--task",
        choices=("snelson", "generated"),
        help="default: snelson with --data, else generated",
    )
    parser.add_argument("--num-data", type=int, help="at most this number of rows")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument(
        "--points", nargs="+", type=int, default=[4, 6, 8, 10, 15, 20, 30], help="inducing inputs"
    )
    parser.add_argument("--starts", type=int, default=3, help="random starts; the best is kept")
    parser.add_argument("--iterations", type=int, default=1000, help="of L-BFGS")


SUITE = Suite(
    "Sparse approximations of one regression",
    {
        "exact": Part(Exact, lambda _: [()], _measure_exact, _section_exact),
        "numbers": Part(
            Row, lambda options: list(product(options.points, options.methods)), _measure, _section
        ),
    },
    _add_arguments,
    selecting=("methods", "points"),
)
