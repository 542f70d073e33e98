"""Sparse approximations of one regression: what VFE, FITC and DTC do to noise variance, inducing inputs and posterior.

The claims are those of Titsias 2009 and of Bauer, van der Wilk & Rasmussen 2016. Beside them, the orthogonal bound and the
uncollapsed one by natural gradients on minibatches.
"""

from __future__ import annotations

__all__ = ["PARTS", "add_arguments", "run"]

import argparse
from collections.abc import Callable
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from .journal import Journal, setting_of
from .report import Figure, Panel, Report, Series, Table, write
from .sparse_models import METHODS, Fit, Problem, clumped, exact, make_problem, recovered, sparse, start

PARTS = ("numbers", "added", "recovery", "optima")
COLLAPSED = ("vfe", "fitc", "dtc")
CLOSE = 0.5
"""Nats: starts that end so near to the best end in its optimum."""
_PLACES = 120


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--task", choices=("snelson", "generated"), help="default: snelson with --data, else generated")
    parser.add_argument("--num-data", type=int, help="at most so many rows")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--points", nargs="+", type=int, default=[4, 6, 8, 10, 15, 20, 30], help="inducing inputs")
    parser.add_argument(
        "--starts", type=int, default=10, help="random starts of the part optima, and best of 3 elsewhere"
    )
    parser.add_argument("--iterations", type=int, default=1000, help="of L-BFGS")


def run(options: argparse.Namespace, command: str, folder: Path) -> list[dict[str, Any]]:
    """Fit the full GP, run the parts, and write the report."""
    task = options.task or ("snelson" if options.data else "generated")

    @lru_cache(maxsize=1)
    def truth() -> tuple[Problem, Fit]:
        problem = make_problem(task, options.data, 0, options.num_data)
        return problem, exact(problem, options.iterations)

    def measured(part: str, *piece: Any) -> list[dict[str, Any]]:
        return [{"part": part, **row} for row in _MEASURES[part](*truth(), options, *piece)]

    pieces = [("exact",), *((part, *piece) for part in options.parts for piece in _pieces(part, options))]
    setting = {**setting_of(options, "parts", "methods", "points"), "task": task}
    found = Journal(folder, "sparse", setting, options.resume).collect(
        pieces, measured, lambda found: _write([row for rows in found for row in rows], task, options, command, folder)
    )
    return [row for rows in found for row in rows]


def _pieces(part: str, options: argparse.Namespace) -> list[tuple]:
    """What is worked on one after the other: numbers of inducing inputs, or methods."""
    if part == "numbers":
        return list(product(options.points, options.methods))
    if part == "recovery":
        return list(product(("Z = X", "VFE"), _collapsed(options)))
    return [(method,) for method in _collapsed(options)]


def _write(rows: list[dict[str, Any]], task: str, options: argparse.Namespace, command: str, folder: Path) -> None:
    full, groups = rows[0], {part: [row for row in rows if row["part"] == part] for part in options.parts}
    sections = [_SECTIONS[part](group, full, options) for part, group in groups.items() if group]
    notes = [
        f"Full GP: log evidence {full['objective']:.3f} nats, noise variance {full['noise']:.4f}; N = {full['num_data']}.",
        "Squared-exponential kernel; kernel, noise and inducing inputs are learned from variance 1, lengthscale 1, noise 0.1.",
        "KL: mean over a grid, from the full GP's predictive density of y to the approximate one, nats.",
        "Clumped: inducing inputs within 0.05 lengthscales of their neighbour.",
        "Orthogonal: the collapsed bound with 50 of the inputs as mean points. Seconds are of the processor.",
    ]
    tables, panels = [table for table, _ in sections], [panel for _, drawn in sections for panel in drawn]
    figures = [Figure("sparse", "Dashed: no bounds of log p(y).", panels, columns=3)] if panels else []
    write(folder, Report("sparse", f"Sparse approximations: {task}", command, rows, tables, figures, notes))


def _exact(problem: Problem, full: Fit, options: argparse.Namespace) -> list[dict[str, Any]]:
    return [{"objective": full.objective, "noise": full.noise, "num_data": len(problem.X)}]


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


def _cells(row: dict[str, Any], full: dict[str, Any]) -> list[str]:
    cells = [f"{row['excess']:+.3f}", f"{row['noise'] / full['noise']:.3f}", f"{row['kl']:.2g}", str(row["clumped"])]
    return [*cells, str(row["iterations"]), f"{row['seconds']:.1f}"]


def _numbers(problem: Problem, full: Fit, options: argparse.Namespace, num: int, method: str) -> list[dict[str, Any]]:
    """Everything learned; the best of up to three random starts."""
    starts = range(1 if method == "svgp" else min(3, options.starts))
    fits = [sparse(method, problem, start(problem, num, "random", seed), options.iterations) for seed in starts]
    best = max(fits, key=lambda fit: fit.objective)
    return [{"method": METHODS[method][0], "num": num, **_summary(best, full, problem)}]


def _numbers_section(found: list, full: dict[str, Any], options: argparse.Namespace) -> tuple[Table, list[Panel]]:
    rows = [[str(row["num"]), row["method"], *_cells(row, full)] for row in found]
    panels = []
    labels = {"excess": "objective less log p(y), nats", "noise": "noise variance", "kl": "KL from the full GP, nats"}
    for quantity, label in {**labels, "clumped": "clumped inducing inputs"}.items():
        series = []
        for name in dict.fromkeys(row["method"] for row in found):
            mine = [row for row in found if row["method"] == name]
            series.append(Series(name, [row["num"] for row in mine], [row[quantity] for row in mine], name in _PEERS))
        if quantity == "noise":
            series.append(Series("full GP", options.points, [full["noise"]] * len(options.points)))
        panels.append(Panel(label, "inducing inputs", label, series, "y" if quantity == "kl" else ""))
    return Table("As inducing inputs are added", ("M", "method", *_HEADER), rows), panels


_PEERS = ("FITC", "DTC")


def _added(problem: Problem, full: Fit, options: argparse.Namespace, method: str) -> list[dict[str, Any]]:
    """One more inducing input at every place, everything else fixed at the full GP's hyperparameters."""
    num = min(8, max(options.points))
    places = np.linspace(problem.X.min(), problem.X.max(), min(_PLACES, 20 * num))
    base = sparse(method, problem, start(problem, num, "kmeans", 0), options.iterations, full.model, fixed=True)
    Z = base.model.inducing_variable.Z.numpy()
    grown = sparse(method, problem, np.vstack([Z, [[places[0]]]]), 0, full.model)
    gains = []
    for place in places:
        grown.model.inducing_variable.Z.assign(np.vstack([Z, [[place]]]))
        gains.append(float(grown.model.maximum_log_likelihood_objective()) - base.objective)
    row = {"method": METHODS[method][0], "num": num, "places": places.tolist(), "gains": gains}
    return [{**row, "least": min(gains), "most": max(gains), "worse": float(np.mean(np.array(gains) < -1e-3))}]


def _added_section(found: list, full: dict[str, Any], options: argparse.Namespace) -> tuple[Table, list[Panel]]:
    rows = [
        [row["method"], f"{row['least']:+.3f}", f"{row['most']:+.3f}", f"{100 * row['worse']:.0f} %"] for row in found
    ]
    header = ("method", "least gain, nats", "most", "places where the objective falls")
    title = f"One inducing input added to {found[0]['num']}, at fixed hyperparameters"
    series = [Series(row["method"], row["places"], row["gains"], row["method"] in _PEERS) for row in found]
    return Table(title, header, rows), [Panel(title, "its place", "gain in the objective, nats", series)]


def _recovery(problem: Problem, full: Fit, options: argparse.Namespace, way: str, method: str) -> list[dict[str, Any]]:
    """From Z = X and the full GP's hyperparameters, where all objectives are log p(y), or from the solution of VFE."""
    Z, like = problem.X, full
    if way == "VFE":
        num = min(15, max(options.points))
        like = sparse("vfe", problem, start(problem, num, "random", 0), options.iterations)
        Z, way = like.points[:, None], f"VFE's, M = {num}"
    first = sparse(method, problem, Z, 0, like.model)
    last = sparse(method, problem, Z, options.iterations, like.model)
    row = {"method": METHODS[method][0], "way": way, "first": first.objective - full.objective}
    return [{**row, "first_kl": recovered(first, full, problem), **_summary(last, full, problem)}]


def _recovery_section(found: list, full: dict[str, Any], options: argparse.Namespace) -> tuple[Table, list[Panel]]:
    rows = [
        [row["way"], row["method"], f"{row['first']:+.3f}", f"{row['first_kl']:.2g}", *_cells(row, full)]
        for row in found
    ]
    header = ("start", "method", "first less log p(y)", "first KL", *_HEADER)
    return Table("Started from the exact posterior", header, rows), []


def _optima(problem: Problem, full: Fit, options: argparse.Namespace, method: str) -> list[dict[str, Any]]:
    """Random starts, k-means with the hyperparameters held at first, and VFE from the solution of FITC."""
    num = min(10, max(options.points))
    ways = _fits_by_start(method, problem, num, options)
    found = [_way(method, way, fits, full, problem) for way, fits in ways.items()]
    if method == "fitc" and "vfe" in options.methods:
        fitc = max((fit for fits in ways.values() for fit in fits), key=lambda fit: fit.objective)
        after = _go_on("vfe", problem, fitc, options.iterations)
        found.append(_way("vfe", "the solution of FITC", [after], full, problem))
    return [{**row, "num": num} for row in found]


def _fits_by_start(method: str, problem: Problem, num: int, options: argparse.Namespace) -> dict[str, list[Fit]]:
    def fit(kind: str, seed: int) -> Fit:
        return sparse(method, problem, start(problem, num, kind, seed), options.iterations)

    random = [fit("random", seed) for seed in range(options.starts)]
    held = sparse(method, problem, start(problem, num, "kmeans", 0), options.iterations, fixed=True)
    return {
        f"random rows, {options.starts} starts": random,
        "k-means": [fit("kmeans", 0)],
        "k-means, hyperparameters held at first": [_go_on(method, problem, held, options.iterations)],
    }


def _optima_section(found: list, full: dict[str, Any], options: argparse.Namespace) -> tuple[Table, list[Panel]]:
    rows = []
    for row in sorted(found, key=lambda row: [METHODS[method][0] for method in METHODS].index(row["method"])):
        best = max(max(other["ends"]) for other in found if other["method"] == row["method"])
        near = np.mean(np.array(row["ends"]) > best - CLOSE)
        rows.append([row["method"], row["way"], f"{100 * near:.0f} %", f"{min(row['ends']):.2f}", *_cells(row, full)])
    header = ("method", "start", f"within {CLOSE:g} nats of its best", "worst end", *_HEADER)
    return Table(f"Starts, with {found[0]['num']} inducing inputs", header, rows), []


def _way(method: str, way: str, fits: list[Fit], full: Fit, problem: Problem) -> dict[str, Any]:
    best = max(fits, key=lambda fit: fit.objective)
    ends = [fit.objective for fit in fits]
    return {"method": METHODS[method][0], "way": way, "ends": ends, **_summary(best, full, problem)}


def _go_on(method: str, problem: Problem, fit: Fit, iterations: int) -> Fit:
    return sparse(method, problem, fit.model.inducing_variable.Z.numpy(), iterations, fit.model)


_MEASURES: dict[str, Callable[..., list[dict[str, Any]]]] = {
    "exact": _exact, "numbers": _numbers, "added": _added, "recovery": _recovery, "optima": _optima,
}  # fmt: skip
_SECTIONS: dict[str, Callable[..., tuple[Table, list[Panel]]]] = {
    "numbers": _numbers_section, "added": _added_section, "recovery": _recovery_section, "optima": _optima_section,
}  # fmt: skip
