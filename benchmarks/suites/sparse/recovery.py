"""Starts at the exact posterior: at Z = X, where all objectives are log p(y), or at the solution of
VFE.
"""

from __future__ import annotations

__all__ = ["PART"]

import argparse
from dataclasses import dataclass
from itertools import product

from ...harness.report import Section, Table
from ...harness.runner import Part
from .models import recovered, sparse, start
from .summaries import HEADER, NOTES, Summary, cells, collapsed, summary, truth


@dataclass
class Row(Summary):
    """A method, trained from a start at which the posterior is exact or nearly so."""

    way: str
    """the start"""
    first: float
    """objective less log p(y) at the start, nats"""
    first_kl: float
    """KL at the start, nats"""


def _measure(options: argparse.Namespace, way: str, method: str) -> list[Row]:
    """Train from Z = X and the full GP's hyperparameters, or from the solution of VFE."""
    problem, full = truth(options)
    Z, like = problem.X, full
    if way == "VFE":
        num = min(15, max(options.points))
        like = sparse("vfe", problem, start(problem, num, "random", 0), options.iterations)
        Z, way = like.points[:, None], f"VFE's, M = {num}"
    first = sparse(method, problem, Z, 0, like.model)
    last = sparse(method, problem, Z, options.iterations, like.model)
    where = {
        "way": way,
        "first": first.objective - full.objective,
        "first_kl": recovered(first, full, problem),
    }
    return [Row(**summary(method, last, full, problem), **where)]


def _section(found: list[Row], _: argparse.Namespace) -> Section:
    rows = [
        [row.way, row.method, f"{row.first:+.3f}", f"{row.first_kl:.2g}", *cells(row)]
        for row in found
    ]
    header = ("start", "method", "first less log p(y)", "first KL", *HEADER)
    return Section([Table("Started from the exact posterior", header, rows)], [], NOTES)


PART = Part(
    Row, lambda options: list(product(("Z = X", "VFE"), collapsed(options))), _measure, _section
)
