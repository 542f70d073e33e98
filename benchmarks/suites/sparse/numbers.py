"""Everything is learned, with more and more inducing inputs."""

from __future__ import annotations

__all__ = ["PART"]

import argparse
from dataclasses import dataclass
from itertools import product

from ...harness.pictures import Figure, Panel, Series
from ...harness.report import Section, Table
from ...harness.runner import Part
from .models import sparse, start
from .summaries import HEADER, NOTES, PEERS, Summary, cells, summary, truth

_QUANTITIES = {
    "excess": "objective less log p(y), nats",
    "noise_ratio": "noise variance over the full GP's",
    "kl": "KL from the full GP, nats",
    "clumped": "clumped inducing inputs",
}


@dataclass
class Row(Summary):
    """A method with some number of inducing inputs."""

    num: int


def _measure(options: argparse.Namespace, num: int, method: str) -> list[Row]:
    """The best of up to three random starts."""
    problem, full = truth(options)
    starts = range(1 if method == "svgp" else min(3, options.starts))
    fits = [
        sparse(method, problem, start(problem, num, "random", seed), options.iterations)
        for seed in starts
    ]
    best = max(fits, key=lambda fit: fit.objective)
    return [Row(**summary(method, best, full, problem), num=num)]


def _section(found: list[Row], _: argparse.Namespace) -> Section:
    table = Table(
        "As inducing inputs are added",
        ("M", "method", *HEADER),
        [[str(r.num), r.method, *cells(r)] for r in found],
    )
    panels = []
    for quantity, label in _QUANTITIES.items():
        series = []
        for name in dict.fromkeys(row.method for row in found):
            mine = [row for row in found if row.method == name]
            numbers, values = [row.num for row in mine], [getattr(row, quantity) for row in mine]
            series.append(Series(name, numbers, values, name in PEERS))
        panels.append(
            Panel(label, "inducing inputs", label, series, "y" if quantity == "kl" else "")
        )
    return Section(
        [table], [Figure("sparse", "Dashed: no bounds of log p(y).", panels, columns=2)], NOTES
    )


PART = Part(Row, lambda options: list(product(options.points, options.methods)), _measure, _section)
