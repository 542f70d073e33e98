"""Bayesian logistic regression: seconds and memory to the optimum of the bound, against L-BFGS on
the same bound.

Every method on every task has a process of its own, and starts from the same q. With no more
weights than observations, it is `sweep` in blocks against L-BFGS on (q_mu, q_sqrt) of the same
model with all data in memory. With more weights, it is `CVIGP` with the linear kernel against
L-BFGS on (q_mu, q_sqrt) of GPflow's `VGP`.

- `problems`: data on disk, and their priors; `methods`: both methods and their traces;
- here: the report, and the suite.
"""

from __future__ import annotations

__all__ = ["SUITE"]

import argparse
import tempfile
from itertools import product
from pathlib import Path

from ...harness.pictures import Figure, Panel, Series
from ...harness.processes import in_a_process
from ...harness.report import Section, Table
from ...harness.runner import Part, Suite
from .methods import METHODS, Trace, solve
from .problems import DEFAULTS, TASKS, store

GOALS = {"1e-3 nats": lambda optimum: 1e-3, "relative 1e-6": lambda optimum: 1e-6 * abs(optimum)}
"""Name of a goal -> function from the optimum to the gap in nats."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tasks",
        nargs="+",
        choices=list(TASKS),
        help="default: three, others where --data is given",
    )
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument(
        "--rows",
        type=int,
        default=581_012,
        help="of the generated task; the default is covtype's size",
    )
    parser.add_argument("--columns", type=int, default=54, help="of the generated task")
    parser.add_argument("--seconds", type=float, default=600.0, help="limit of L-BFGS")


def _pieces(options: argparse.Namespace) -> list[tuple]:
    return list(product(options.tasks or DEFAULTS[bool(options.data)], options.methods))


def _measure(options: argparse.Namespace, task: str, method: str) -> list[Trace]:
    """One method on one task, in a process of its own."""
    with tempfile.TemporaryDirectory() as place:
        problem = store(
            task, Path(place), options.data, options.rows, options.columns, options.seed
        )
        return [in_a_process(solve, problem, method, options.seconds)]


def _section(traces: list[Trace], _: argparse.Namespace) -> Section:
    """A table and a panel per task."""
    tables, panels = [], []
    for name in dict.fromkeys(trace.task for trace in traces):
        mine = [trace for trace in traces if trace.task == name]
        optimum = max(max(trace.elbo) for trace in mine)
        rows = [
            [
                trace.method,
                *(_cell(trace.reached(optimum - gap(optimum))) for gap in GOALS.values()),
                f"{optimum - max(trace.elbo):.1e}",
                f"{trace.seconds[-1]:.2f}",
                f"{trace.compile_seconds:.1f}",
                f"{trace.peak_mb:.0f}",
                f"{trace.data_mb:.0f}",
                trace.note,
            ]
            for trace in mine
        ]
        header = [
            "method",
            *(f"s to {goal}" for goal in GOALS),
            "last gap (nats)",
            "s in all",
            "compilation s",
        ]
        header += ["peak MB", "MB over the base", "end"]
        title = f"{name}: {mine[0].num_data:,} observations, {mine[0].num_weights:,} weights"
        tables.append(Table(f"{title}, optimum {optimum:.4f} nats", header, rows))
        panels.append(
            Panel(
                title,
                "seconds",
                "gap to the optimum (nats)",
                [_series(t, optimum) for t in mine],
                "xy",
            )
        )
    notes = [
        (
            "The bound of Bayesian logistic regression at a fixed Gaussian prior, by 20 nodes of"
            " quadrature for all methods."
        ),
        (
            "Optimum: the best bound that any method reached. Compilation does not count; with one"
            " thread the seconds are those of the processor. Base: peak memory of the process"
            " before it reads data."
        ),
        (
            "Generated: drawn from a logistic model, inputs like those of covtype, on disk; sweep"
            " reads them in blocks."
        ),
    ]
    return Section(tables, [Figure("glm", "Gap to the optimum.", panels, columns=3)], notes)


def _cell(seconds: float | None) -> str:
    return "not reached" if seconds is None else f"{seconds:.3g}"


def _series(trace: Trace, optimum: float) -> Series:
    gaps = [max(optimum - elbo, 1e-7) for elbo in trace.elbo]
    return Series(
        trace.method,
        [max(one, 1e-4) for one in trace.seconds],
        gaps,
        dashed=trace.method == "L-BFGS",
    )


SUITE = Suite(
    "Bayesian logistic regression",
    {"glm": Part(Trace, _pieces, _measure, _section)},
    _add_arguments,
    selecting=("tasks", "methods"),
)
