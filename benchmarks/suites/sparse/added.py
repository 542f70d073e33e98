"""One more inducing input at every place, with everything else fixed at the full GP's
hyperparameters.
"""

from __future__ import annotations

__all__ = ["PART"]

import argparse
from typing import NamedTuple

import numpy as np

from ...harness.pictures import Figure, Panel, Series
from ...harness.report import Section, Table
from ...harness.runner import Part
from .models import METHODS, sparse, start
from .summaries import PEERS, collapsed, truth

_PLACES = 120


class Row(NamedTuple):
    """The gains of one method."""

    method: str
    num: int
    """inducing inputs before"""
    places: list[float]
    gains: list[float]
    """in the objective, nats, for each of the places"""
    least: float
    most: float
    worse: float
    """share of the places at which the objective falls"""


def _measure(options: argparse.Namespace, method: str) -> list[Row]:
    problem, full = truth(options)
    num = min(8, max(options.points))
    places = np.linspace(problem.X.min(), problem.X.max(), min(_PLACES, 20 * num))
    base = sparse(
        method,
        problem,
        start(problem, num, "kmeans", 0),
        options.iterations,
        full.model,
        fixed=True,
    )
    Z = base.model.inducing_variable.Z.numpy()
    grown = sparse(method, problem, np.vstack([Z, [[places[0]]]]), 0, full.model)
    gains = []
    for place in places:
        grown.model.inducing_variable.Z.assign(np.vstack([Z, [[place]]]))
        gains.append(float(grown.model.maximum_log_likelihood_objective()) - base.objective)
    worse = float(np.mean(np.array(gains) < -1e-3))
    return [Row(METHODS[method][0], num, places.tolist(), gains, min(gains), max(gains), worse)]


def _section(found: list[Row], _: argparse.Namespace) -> Section:
    rows = [
        [row.method, f"{row.least:+.3f}", f"{row.most:+.3f}", f"{100 * row.worse:.0f} %"]
        for row in found
    ]
    header = ("method", "least gain, nats", "most", "places where the objective falls")
    title = f"One inducing input added to {found[0].num}, at fixed hyperparameters"
    series = [Series(row.method, row.places, row.gains, row.method in PEERS) for row in found]
    panel = Panel(title, "its place", "gain in the objective, nats", series)
    figure = Figure(
        "sparse_added", "Gain by one more inducing input. Dashed: no bounds of log p(y).", [panel]
    )
    return Section([Table(title, header, rows)], [figure], [])


PART = Part(Row, lambda options: [(method,) for method in collapsed(options)], _measure, _section)
