"""Full-GP binary classification at fixed hyperparameters: seconds and iterations to the best ELBO, held-out log loss.

Squared-exponential kernel, Bernoulli likelihood with the logistic link, the same for every method; all methods that
maximise the ELBO share one optimum, so gaps are to the best ELBO that any of them reached.
"""

from __future__ import annotations

__all__ = ["Outcome", "add_arguments", "run"]

import argparse
from itertools import product
from pathlib import Path
from typing import NamedTuple

from .classifiers import METHODS, TASKS, Fit, best_of, log_loss, make_problem
from .report import Figure, Panel, Report, Series, Table, write

DEFAULTS = ("cvi", "cvi-half", "vgp", "vgp-half", "opper-archambeau", "laplace")
GOALS = (1e-2, 1e-3, 1e-4)
"""Gaps to the best ELBO, in nats."""
_FLOOR = 1e-7
"""Smallest gap in the picture, nats."""


class Outcome(NamedTuple):
    """One method on one problem."""

    problem: str
    num_data: int
    label: str
    compile_seconds: float
    seconds: list[float]
    elbo: list[float]
    log_loss: float
    """held out: of a second fit, on nine tenths of the rows"""
    note: str

    def reached(self, best: float, goal: float) -> tuple[int, float] | None:
        """Iterations and seconds until the ELBO is within `goal` of the best."""
        for count, (seconds, elbo) in enumerate(zip(self.seconds, self.elbo), start=1):
            if elbo >= best - goal:
                return count, seconds
        return None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tasks", nargs="+", choices=list(TASKS), help="default: all, or the embedded ones without --data"
    )
    parser.add_argument("--methods", nargs="+", default=list(DEFAULTS), choices=list(METHODS))
    parser.add_argument("--num-data", nargs="+", type=int, default=[None], help="at most so many rows of each task")
    parser.add_argument("--variance", type=float, default=10.0, help="of the kernel")
    parser.add_argument("--lengthscale", type=float, help="of the kernel; default: the task's")
    parser.add_argument(
        "--exact", action="store_true", help="exact expectations, for large variances, with every method"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="limit of a fit, compilation apart")
    parser.add_argument("--repeats", type=int, default=3, help="fits of a fast method, of which the fastest counts")


def run(options: argparse.Namespace, command: str, folder: Path) -> list[Outcome]:
    """Fit every method to every task and write the report after each task."""
    outcomes: list[Outcome] = []
    tasks = options.tasks or [name for name in TASKS if options.data or name in ("digits35", "cancer")]
    for name, num_data in product(tasks, options.num_data):
        problem = make_problem(name, num_data, options)
        for method in options.methods:
            fit = best_of(METHODS[method], problem, options.seconds, options.repeats)
            held_out = METHODS[method](problem.training(), min(options.seconds, 1.0 + 1.5 * fit.seconds[-1]))
            loss = log_loss(held_out, problem)
            outcomes.append(_outcome(name, len(problem.X), fit, loss))
            last = fit.elbo[-1] if fit.elbo else float("nan")
            print(
                f"{name:10s} {fit.label:32s} {len(fit.seconds):5d} its {fit.seconds[-1]:8.2f} s "
                f"(compilation {fit.compile_seconds:.1f} s)  ELBO {last:.6f}  log loss {loss:.4f}  {fit.note}",
                flush=True,
            )
        _write(outcomes, options, command, folder)
    return outcomes


def _outcome(name: str, num_data: int, fit: Fit, loss: float) -> Outcome:
    return Outcome(name, num_data, fit.label, fit.compile_seconds, fit.seconds, fit.elbo, loss, fit.note)


def _best(outcomes: list[Outcome]) -> float:
    return max(max(outcome.elbo) for outcome in outcomes if outcome.elbo)


def _write(outcomes: list[Outcome], options: argparse.Namespace, command: str, folder: Path) -> None:
    tables, panels = [], []
    for name, num_data in dict.fromkeys((outcome.problem, outcome.num_data) for outcome in outcomes):
        mine = [outcome for outcome in outcomes if (outcome.problem, outcome.num_data) == (name, num_data)]
        best, lengthscale = _best(mine), options.lengthscale or TASKS[name].lengthscale
        header = ["method", *(f"s (its) to {goal:g} nats" for goal in GOALS)]
        header += ["s in all", "compilation s", "final ELBO", "held-out log loss", "end"]
        title = f"{name}, N = {num_data}, lengthscale {lengthscale:.3g}: best ELBO {best:.4f} nats"
        tables.append(Table(title, header, [_row(outcome, best) for outcome in mine]))
        series = [_series(outcome, best) for outcome in mine if outcome.elbo]
        panels.append(Panel(f"{name}, N = {num_data}", "seconds", "gap to the best ELBO (nats)", series, "xy"))
    notes = [
        "CVIGP: `ConjugateComputation`. VGP: GPflow's, with its `NaturalGradient`. Opper-Archambeau: its own class too.",
        f"Squared-exponential kernel of variance {options.variance:g}, Bernoulli with the logistic link, all fixed; "
        f"expectations {'exact' if options.exact else 'by 20-point quadrature'}.",
        "Timed on all rows; the held-out log loss (nats) is that of a second fit on nine tenths of them.",
        "Seconds: the kernel matrix and the iterations; compilation, and the bound where a method has no need of it, "
        "are apart. With one thread they are seconds of the processor.",
        f"The fastest of {options.repeats} fits where a fit takes under a fifth of the limit.",
        f"Laplace maximises another objective; a fit is stopped after {options.seconds:g} s.",
    ]
    figure = Figure("classification", "Gap to the best ELBO of the run.", panels, columns=2)
    data = [outcome._asdict() for outcome in outcomes]
    title = "Full-GP binary classification at fixed hyperparameters"
    write(folder, Report("classification", title, command, data, tables, [figure], notes))


def _row(outcome: Outcome, best: float) -> list[str]:
    cells = ["not reached" if outcome.elbo else "-"] * len(GOALS)
    for index, goal in enumerate(GOALS):
        if (reached := outcome.reached(best, goal)) is not None:
            cells[index] = f"{reached[1]:.3f} ({reached[0]})"
    last = f"{outcome.elbo[-1]:.5f}" if outcome.elbo else "-"
    total, compiled = f"{outcome.seconds[-1]:.3f}", f"{outcome.compile_seconds:.1f}" if outcome.elbo else "-"
    return [outcome.label, *cells, total, compiled, last, f"{outcome.log_loss:.4f}", outcome.note]


def _series(outcome: Outcome, best: float) -> Series:
    gaps = [max(best - elbo, _FLOOR) for elbo in outcome.elbo]
    return Series(outcome.label, outcome.seconds, gaps, dashed=not outcome.label.startswith(("CVIGP", "LCLGP")))
