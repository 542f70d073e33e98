"""Full-GP binary classification at fixed hyperparameters: seconds and iterations to the best ELBO,
held-out log loss.

Squared-exponential kernel, Bernoulli likelihood with the logistic link, the same for every method;
all methods that maximise the ELBO share one optimum, so that gaps are to the best ELBO that any of
them reached. `--figure1` is Figure 1 of Khan (2014): USPS 3 against 5 with a prior variance of e^8,
all methods, exact expectations, four sizes.

- `problems`: the tasks; `methods`: the classifiers and their traces;
- here: the report, and the suite.
"""

from __future__ import annotations

__all__ = ["SUITE"]

import argparse
import math
from itertools import product
from typing import Any, NamedTuple

from ...harness.pictures import Figure, Panel, Series
from ...harness.report import Section, Table
from ...harness.runner import Part, Suite
from .methods import METHODS, best_of, log_loss
from .problems import TASKS, make_problem

DEFAULTS = ("cvi", "cvi-half", "vgp", "vgp-half", "opper-archambeau", "laplace")
GOALS = (1e-2, 1e-3, 1e-4)
"""Gaps to the best ELBO, in nats."""
_FLOOR = 1e-7
"""Smallest gap in the picture, nats."""
_CEILING = 1e4
"""Largest gap in the picture, nats: oscillations reach 1e9."""
FIGURE_1: dict[str, Any] = {
    "tasks": ["usps35", "usps35-paper"],
    "methods": [
        "lcl",
        "cvi",
        "vgp-half",
        "vgp-ramp",
        "cholesky",
        "opper",
        "cholesky-unwhitened",
        "vgp",
        "opper-archambeau",
    ],
    "num_data": [200, 500, 1000, 1500],
    "variance": math.exp(8.0),
    "exact": True,
    "held_out": False,
    "repeats": 1,
}


class Outcome(NamedTuple):
    """One method on one problem."""

    problem: str
    num_data: int
    method: str
    label: str
    compile_seconds: float
    seconds: list[float]
    elbo: list[float]
    log_loss: float
    """on held-out rows, by a second fit on the others; NaN where there was none"""
    note: str

    def reached(self, best: float, goal: float) -> tuple[int, float] | None:
        """Iterations and seconds until the ELBO is within `goal` of the best."""
        for count, (seconds, elbo) in enumerate(zip(self.seconds, self.elbo), start=1):
            if elbo >= best - goal:
                return count, seconds
        return None


class _Figure1(argparse.Action):
    """Gives the values of the figure to the options that are at their defaults."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**settings, "nargs": 0, "default": False})

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *_: Any
    ) -> None:
        setattr(namespace, self.dest, True)
        for name, value in FIGURE_1.items():
            if getattr(namespace, name) == parser.get_default(name):
                setattr(namespace, name, value)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tasks",
        nargs="+",
        choices=list(TASKS),
        help="default: all, or the embedded ones without --data",
    )
    parser.add_argument("--methods", nargs="+", default=list(DEFAULTS), choices=list(METHODS))
    parser.add_argument(
        "--num-data", nargs="+", type=int, default=[None], help="at most so many rows of each task"
    )
    parser.add_argument("--variance", type=float, default=10.0, help="of the kernel")
    parser.add_argument("--lengthscale", type=float, help="of the kernel; default: the task's")
    parser.add_argument(
        "--exact",
        action="store_true",
        help="exact expectations, for large variances, with every method",
    )
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="limit of a fit, without compilation"
    )
    parser.add_argument(
        "--no-held-out", action="store_false", dest="held_out", help="without the second fit"
    )
    parser.add_argument(
        "--figure1",
        action=_Figure1,
        help="Figure 1 of Khan 2014, where no other option says otherwise",
    )
    parser.add_argument(
        "--repeats", type=int, default=3, help="fits of a fast method, of which the fastest counts"
    )


def _pieces(options: argparse.Namespace) -> list[tuple]:
    tasks = options.tasks or [
        name for name in TASKS if options.data or name in ("digits35", "cancer")
    ]
    return list(product(tasks, options.num_data, options.methods))


def _measure(
    options: argparse.Namespace, task: str, num_data: int | None, method: str
) -> list[Outcome]:
    """Fit one method to one problem, twice where a held-out log loss is asked for."""
    kernel = {"variance": options.variance, "lengthscale": options.lengthscale}
    problem = make_problem(
        task, num_data, options.data, **kernel, exact=options.exact, seed=options.seed
    )
    fit = best_of(METHODS[method], problem, options.seconds, options.repeats)
    loss = float("nan")
    if options.held_out:
        limit = min(options.seconds, 1.0 + 1.5 * fit.seconds[-1])
        loss = log_loss(METHODS[method](problem.training(), limit), problem)
    times = fit.compile_seconds, fit.seconds
    return [Outcome(task, len(problem.X), method, fit.label, *times, fit.elbo, loss, fit.note)]


def _best(outcomes: list[Outcome]) -> float:
    return max(max(outcome.elbo) for outcome in outcomes if outcome.elbo)


def _section(outcomes: list[Outcome], options: argparse.Namespace) -> Section:
    """A table and a panel per problem and size, and a table of seconds by size."""
    tables, panels = [], []
    for name, num_data in dict.fromkeys(
        (outcome.problem, outcome.num_data) for outcome in outcomes
    ):
        mine = [
            outcome
            for outcome in outcomes
            if (outcome.problem, outcome.num_data) == (name, num_data)
        ]
        best, lengthscale = _best(mine), options.lengthscale or TASKS[name].lengthscale
        header = ["method", *(f"s (its) to {goal:g} nats" for goal in GOALS)]
        header += ["s in all", "compilation s", "final ELBO", "held-out log loss", "end"]
        title = f"{name}, N = {num_data}, lengthscale {lengthscale:.3g}: best ELBO {best:.4f} nats"
        tables.append(Table(title, header, [_row(outcome, best) for outcome in mine]))
        series = [_series(outcome, best) for outcome in mine if outcome.elbo]
        panels.append(
            Panel(f"{name}, N = {num_data}", "seconds", "gap to the best ELBO (nats)", series, "xy")
        )
    tables += [
        _by_size(outcomes, name) for name in dict.fromkeys(outcome.problem for outcome in outcomes)
    ]
    figure = Figure(
        "full_gp", "Gap to the best ELBO of the run.", panels, columns=4 if options.figure1 else 2
    )
    return Section(tables, [figure], _notes(options))


def _notes(options: argparse.Namespace) -> list[str]:
    return [
        (
            "CVIGP: `ConjugateComputation`. VGP: GPflow's, with its `NaturalGradient`."
            " Opper-Archambeau: its own class too."
        ),
        (
            f"Squared-exponential kernel of variance {options.variance:g}, Bernoulli with the"
            " logistic link, all fixed; expectations"
            f" {'exact' if options.exact else 'by 20-point quadrature'}."
        ),
        (
            "Timed on all rows. The held-out log loss (nats), where there is one, is that of a"
            " second fit on nine tenths of them."
        ),
        (
            "Seconds: the kernel matrix and the iterations, without compilation, and without the"
            " bound where a method does not need it. With one thread they are seconds of the"
            " processor."
        ),
        f"The fastest of {options.repeats} fits where a fit takes under a fifth of the limit.",
        f"Laplace maximises another objective; a fit is stopped after {options.seconds:g} s.",
    ]


def _by_size(outcomes: list[Outcome], name: str) -> Table:
    """Seconds to the two tighter goals and to each method's own end, a column per size."""
    mine = [outcome for outcome in outcomes if outcome.problem == name]
    sizes = list(dict.fromkeys(outcome.num_data for outcome in mine))
    best = {
        size: _best([outcome for outcome in mine if outcome.num_data == size]) for size in sizes
    }
    rows = []
    for label in dict.fromkeys(outcome.label for outcome in mine):
        found = {outcome.num_data: outcome for outcome in mine if outcome.label == label}
        rows.append(
            [label, *(_cell(found[size], best[size]) if size in found else "" for size in sizes)]
        )
    return Table(
        f"{name}: seconds to within 1e-3, to within 1e-4, in all",
        ["method", *map(str, sizes)],
        rows,
    )


def _cell(outcome: Outcome, best: float) -> str:
    reached = [outcome.reached(best, goal) for goal in GOALS[1:]]
    parts = ["-" if one is None else f"{one[1]:.2f}" for one in reached]
    return " / ".join([*parts, f"{outcome.seconds[-1]:.2f}"])


def _row(outcome: Outcome, best: float) -> list[str]:
    cells = ["not reached" if outcome.elbo else "-"] * len(GOALS)
    for index, goal in enumerate(GOALS):
        if (reached := outcome.reached(best, goal)) is not None:
            cells[index] = f"{reached[1]:.3f} ({reached[0]})"
    last = f"{outcome.elbo[-1]:.5f}" if outcome.elbo else "-"
    total, compiled = (
        f"{outcome.seconds[-1]:.3f}",
        f"{outcome.compile_seconds:.1f}" if outcome.elbo else "-",
    )
    return [
        outcome.label,
        *cells,
        total,
        compiled,
        last,
        f"{outcome.log_loss:.4f}" if math.isfinite(outcome.log_loss) else "-",
        outcome.note,
    ]


def _series(outcome: Outcome, best: float) -> Series:
    gaps = [min(max(best - elbo, _FLOOR), _CEILING) for elbo in outcome.elbo]
    return Series(
        outcome.label,
        outcome.seconds,
        gaps,
        dashed=not outcome.label.startswith(("CVIGP", "LCLGP")),
    )


SUITE = Suite(
    "Full-GP binary classification at fixed hyperparameters",
    {"full_gp": Part(Outcome, _pieces, _measure, _section)},
    _add_arguments,
    selecting=("tasks", "num_data", "methods", "figure1"),
)
