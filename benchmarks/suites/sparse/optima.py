"""Where runs end that start from random rows, from k-means, or from the solution of another
method.
"""

from __future__ import annotations

__all__ = ["PART"]

import argparse
from dataclasses import dataclass

import numpy as np

from ...harness.report import Section, Table
from ...harness.runner import Part
from .models import METHODS, Fit, Problem, sparse, start
from .summaries import HEADER, NOTES, Summary, cells, collapsed, summary, truth

CLOSE = 0.5
"""Starts that end within so many nats of the best end count as ending in its optimum."""


@dataclass
class Row(Summary):
    """The best run of a method among those of one kind of start."""

    way: str
    """the kind of start"""
    ends: list[float]
    """objectives of all its runs, nats"""
    num: int
    """inducing inputs"""


def _measure(options: argparse.Namespace, method: str) -> list[Row]:
    """Random starts, k-means with the hyperparameters held at first, and VFE from the solution of
    FITC.
    """
    problem, full = truth(options)
    num = min(10, max(options.points))

    def row(method: str, way: str, fits: list[Fit]) -> Row:
        best = max(fits, key=lambda fit: fit.objective)
        return Row(
            **summary(method, best, full, problem),
            way=way,
            ends=[fit.objective for fit in fits],
            num=num,
        )

    ways = _fits_by_start(method, problem, num, options)
    rows = [row(method, way, fits) for way, fits in ways.items()]
    if method == "fitc" and "vfe" in options.methods:
        fitc = max((fit for fits in ways.values() for fit in fits), key=lambda fit: fit.objective)
        rows.append(
            row("vfe", "the solution of FITC", [_go_on("vfe", problem, fitc, options.iterations)])
        )
    return rows


def _fits_by_start(
    method: str, problem: Problem, num: int, options: argparse.Namespace
) -> dict[str, list[Fit]]:
    def fit(kind: str, seed: int) -> Fit:
        return sparse(method, problem, start(problem, num, kind, seed), options.iterations)

    random = [fit("random", seed) for seed in range(options.starts)]
    held = sparse(method, problem, start(problem, num, "kmeans", 0), options.iterations, fixed=True)
    return {
        f"random rows, {options.starts} starts": random,
        "k-means": [fit("kmeans", 0)],
        "k-means, hyperparameters held at first": [
            _go_on(method, problem, held, options.iterations)
        ],
    }


def _go_on(method: str, problem: Problem, fit: Fit, iterations: int) -> Fit:
    """Train a method from where another fit ended."""
    return sparse(method, problem, fit.model.inducing_variable.Z.numpy(), iterations, fit.model)


def _section(found: list[Row], _: argparse.Namespace) -> Section:
    rows, labels = [], [label for label, _ in METHODS.values()]
    for row in sorted(found, key=lambda row: labels.index(row.method)):
        best = max(max(other.ends) for other in found if other.method == row.method)
        near = np.mean(np.array(row.ends) > best - CLOSE)
        rows.append(
            [row.method, row.way, f"{100 * near:.0f} %", f"{min(row.ends):.2f}", *cells(row)]
        )
    header = ("method", "start", f"within {CLOSE:g} nats of its best", "worst end", *HEADER)
    return Section([Table(f"Starts, with {found[0].num} inducing inputs", header, rows)], [], NOTES)


PART = Part(Row, lambda options: [(method,) for method in collapsed(options)], _measure, _section)
