"""Sparse approximations of one regression: what VFE, FITC and DTC do to noise variance, inducing inputs and posterior.

The claims are those of Titsias 2009 and of Bauer, van der Wilk & Rasmussen 2016. Beside them, the orthogonal bound and the
uncollapsed one by natural gradients on minibatches.
"""

from __future__ import annotations

__all__ = ["PARTS", "add_arguments", "run"]

import argparse
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from .report import Figure, Panel, Report, Series, Table, write
from .sparse_models import METHODS, Fit, Problem, clumped, exact, make_problem, recovered, sparse, start

COLLAPSED = ("vfe", "fitc", "dtc")
CLOSE = 0.5
"""Nats: starts that end so near to the best end in its optimum."""
_PLACES = 120


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--task", choices=("snelson", "generated"), help="default: snelson with --data, else generated")
    parser.add_argument("--num-data", type=int, help="at most so many rows")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--points", nargs="+", type=int, default=[4, 6, 8, 10, 15, 20, 30], help="inducing inputs")
    parser.add_argument(
        "--starts", type=int, default=10, help="random starts of the part optima, and best of 3 elsewhere"
    )
    parser.add_argument("--iterations", type=int, default=1000, help="of L-BFGS")


def run(options: argparse.Namespace, command: str, folder: Path) -> list[dict[str, Any]]:
    """Fit the full GP, run the parts, and write the report."""
    problem = make_problem(
        options.task or ("snelson" if options.data else "generated"), options.data, 0, options.num_data
    )
    full = exact(problem, options.iterations)
    rows = [{"part": "exact", "objective": full.objective, "noise": full.noise}]
    tables, panels = [], []
    for part in options.parts:
        found, table, drawn = PARTS[part](problem, full, options)
        rows += [{"part": part, **row} for row in found]
        tables.append(table)
        panels += drawn
        print("\n".join(["", table.title, *("  ".join(row) for row in table.rows)]), flush=True)
    notes = [
        f"Full GP: log evidence {full.objective:.3f} nats, noise variance {full.noise:.4f}; N = {len(problem.X)}.",
        "Squared-exponential kernel; kernel, noise and inducing inputs are learned from variance 1, lengthscale 1, noise 0.1.",
        "KL: mean over a grid, from the full GP's predictive density of y to the approximate one, nats.",
        "Clumped: inducing inputs within 0.05 lengthscales of their neighbour.",
        "Orthogonal: the collapsed bound with 50 of the inputs as mean points. Seconds are of the processor.",
    ]
    title = f"Sparse approximations: {problem.name}"
    figures = [Figure("sparse", "Dashed: no bounds of log p(y).", panels, columns=3)] if panels else []
    write(folder, Report("sparse", title, command, rows, tables, figures, notes))
    return rows


def _collapsed(options: argparse.Namespace) -> list[str]:
    return [method for method in COLLAPSED if method in options.methods]


def _summary(fit: Fit, full: Fit, problem: Problem) -> dict[str, Any]:
    return {
        "objective": fit.objective,
        "excess": fit.objective - full.objective,
        "noise": fit.noise,
        "kl": recovered(fit, full, problem),
        "clumped": clumped(fit),
        "iterations": fit.iterations,
        "seconds": fit.seconds,
    }


_HEADER = ("objective less log p(y), nats", "noise / full GP's", "KL, nats", "clumped", "iterations", "s")


def _cells(row: dict[str, Any], full: Fit) -> list[str]:
    cells = [f"{row['excess']:+.3f}", f"{row['noise'] / full.noise:.3f}", f"{row['kl']:.2g}", str(row["clumped"])]
    return [*cells, str(row["iterations"]), f"{row['seconds']:.1f}"]


def _numbers(problem: Problem, full: Fit, options: argparse.Namespace) -> tuple[list, Table, list[Panel]]:
    """Everything learned, for growing numbers of inducing inputs; the best of up to three random starts."""
    found = []
    for num in options.points:
        for method in options.methods:
            starts = range(1 if method == "svgp" else min(3, options.starts))
            fits = [sparse(method, problem, start(problem, num, "random", seed), options.iterations) for seed in starts]
            best = max(fits, key=lambda fit: fit.objective)
            found.append({"method": METHODS[method][0], "num": num, **_summary(best, full, problem)})
    rows = [[str(row["num"]), row["method"], *_cells(row, full)] for row in found]
    panels = []
    labels = {"excess": "objective less log p(y), nats", "noise": "noise variance", "kl": "KL from the full GP, nats"}
    for quantity, label in {**labels, "clumped": "clumped inducing inputs"}.items():
        series = [
            Series(name, options.points, [row[quantity] for row in found if row["method"] == name], name in _PEERS)
            for name in dict.fromkeys(row["method"] for row in found)
        ]
        if quantity == "noise":
            series.append(Series("full GP", options.points, [full.noise] * len(options.points)))
        panels.append(Panel(label, "inducing inputs", label, series, "y" if quantity == "kl" else ""))
    return found, Table("As inducing inputs are added", ("M", "method", *_HEADER), rows), panels


_PEERS = ("FITC", "DTC")


def _added(problem: Problem, full: Fit, options: argparse.Namespace) -> tuple[list, Table, list[Panel]]:
    """One more inducing input at every place, everything else fixed at the full GP's hyperparameters."""
    num = min(8, max(options.points))
    places = np.linspace(problem.X.min(), problem.X.max(), min(_PLACES, 20 * num))
    found, series = [], []
    for method in _collapsed(options):
        base = sparse(method, problem, start(problem, num, "kmeans", 0), options.iterations, full.model, fixed=True)
        Z = base.model.inducing_variable.Z.numpy()
        grown = sparse(method, problem, np.vstack([Z, [[places[0]]]]), 0, full.model)
        gains = []
        for place in places:
            grown.model.inducing_variable.Z.assign(np.vstack([Z, [[place]]]))
            gains.append(float(grown.model.maximum_log_likelihood_objective()) - base.objective)
        label = METHODS[method][0]
        worse = float(np.mean(np.array(gains) < -1e-3))
        found.append({"method": label, "num": num, "least": min(gains), "most": max(gains), "worse": worse})
        series.append(Series(label, list(places), gains, label in _PEERS))
    rows = [
        [row["method"], f"{row['least']:+.3f}", f"{row['most']:+.3f}", f"{100 * row['worse']:.0f} %"] for row in found
    ]
    header = ("method", "least gain, nats", "most", "places where the objective falls")
    title = f"One inducing input added to {num}, at fixed hyperparameters"
    return found, Table(title, header, rows), [Panel(title, "its place", "gain in the objective, nats", series)]


def _recovery(problem: Problem, full: Fit, options: argparse.Namespace) -> tuple[list, Table, list[Panel]]:
    """From Z = X and the full GP's hyperparameters, where all objectives are log p(y), and from the solution of VFE."""
    num = max(options.points)
    vfe = sparse("vfe", problem, start(problem, min(15, num), "random", 0), options.iterations)
    starts = {"Z = X": (problem.X, full), f"VFE's, M = {len(vfe.points)}": (vfe.points[:, None], vfe)}
    found = []
    for (way, (Z, like)), method in product(starts.items(), _collapsed(options)):
        first = sparse(method, problem, Z, 0, like.model)
        last = sparse(method, problem, Z, options.iterations, like.model)
        row = {"method": METHODS[method][0], "way": way, "first": first.objective - full.objective}
        found.append({**row, "first_kl": recovered(first, full, problem), **_summary(last, full, problem)})
    rows = [
        [row["way"], row["method"], f"{row['first']:+.3f}", f"{row['first_kl']:.2g}", *_cells(row, full)]
        for row in found
    ]
    header = ("start", "method", "first less log p(y)", "first KL", *_HEADER)
    return found, Table("Started from the exact posterior", header, rows), []


def _optima(problem: Problem, full: Fit, options: argparse.Namespace) -> tuple[list, Table, list[Panel]]:
    """Random starts, k-means with the hyperparameters held at first, and VFE from the solution of FITC."""
    num = min(10, max(options.points))
    found, fitc = [], None
    for method in _collapsed(options):
        ways = {
            f"random rows, {options.starts} starts": [
                sparse(method, problem, start(problem, num, "random", seed), options.iterations)
                for seed in range(options.starts)
            ],
            "k-means": [sparse(method, problem, start(problem, num, "kmeans", 0), options.iterations)],
        }
        held = sparse(method, problem, start(problem, num, "kmeans", 0), options.iterations, fixed=True)
        ways["k-means, hyperparameters held at first"] = [_go_on(method, problem, held, options.iterations)]
        if method == "fitc" and "vfe" in options.methods:
            fitc = max(ways["k-means"] + next(iter(ways.values())), key=lambda fit: fit.objective)
        found += [_way(method, way, fits, full, problem) for way, fits in ways.items()]
    if fitc is not None:
        fit = _go_on("vfe", problem, fitc, options.iterations)
        found.append(_way("vfe", "the solution of FITC", [fit], full, problem))
    for label in dict.fromkeys(row["method"] for row in found):
        mine = [row for row in found if row["method"] == label]
        best = max(max(row["ends"]) for row in mine)
        for row in mine:
            row["share"] = float(np.mean([end > best - CLOSE for end in row["ends"]]))
    rows = [
        [row["method"], row["way"], f"{100 * row['share']:.0f} %", f"{min(row['ends']):.2f}", *_cells(row, full)]
        for row in found
    ]
    header = ("method", "start", f"within {CLOSE:g} nats of its best", "worst end", *_HEADER)
    return found, Table(f"Starts, with {num} inducing inputs", header, rows), []


def _way(method: str, way: str, fits: list[Fit], full: Fit, problem: Problem) -> dict[str, Any]:
    best = max(fits, key=lambda fit: fit.objective)
    ends = [fit.objective for fit in fits]
    return {"method": METHODS[method][0], "way": way, "ends": ends, **_summary(best, full, problem)}


def _go_on(method: str, problem: Problem, fit: Fit, iterations: int) -> Fit:
    return sparse(method, problem, fit.model.inducing_variable.Z.numpy(), iterations, fit.model)


PARTS: dict[str, Callable[..., tuple[list, Table, list[Panel]]]] = {
    "numbers": _numbers,
    "added": _added,
    "recovery": _recovery,
    "optima": _optima,
}
