"""The parts of a round of `NeighbourRounds`, and what many workers gain in it.

A worker with n of the rows of a round takes, for evaluations e and judgements j,

    T(R, n) = s + s' n + e E' n + 2 (j + j' 1000 / R) + 2 (R - 1) * 3 e * latency

s is the trees that each worker builds for itself, s' the search of a row, E' a row of an
evaluation, j the tree of a judgement and j' one of its rows. An evaluation sends three messages: is
all well, the sums of the blocks, and the first one's values; they are short."""

from __future__ import annotations

__all__ = ["PartCost", "Round", "measure", "round_of", "section"]

import argparse
import time
from collections.abc import Callable
from typing import NamedTuple

import gpflow
import numpy as np

from gpflow_decoupled.models import NNGP
from gpflow_decoupled.optimizers import NeighbourRounds

from ...harness.report import Section, Table

_DIMENSION, _NEIGHBOURS = 8, 30
_EVALUATIONS, _JUDGES, _JUDGEMENTS, _MESSAGES = 25, 1000, 2, 3
"""Of a round, and messages of an evaluation."""
_LATENCY = 50e-6
"""Seconds of a hop, assumed."""
_MANY = (8, 32, 64, 256)


class PartCost(NamedTuple):
    """A part of a round on some rows."""

    num_data: int
    what: str
    rows: int
    seconds: float
    """of the processor"""


class Round(NamedTuple):
    """Seconds of a round on one core, by the formula above."""

    fixed: float
    """s + 2 j"""
    per_row: float
    """s' + e E'"""
    shared: float
    """2 j' 1000, divided by the number of workers"""

    def seconds(self, rows: float, workers: int) -> float:
        """T(R, n)."""
        sent = 2.0 * (workers - 1) * _MESSAGES * _EVALUATIONS * _LATENCY
        return self.fixed + self.per_row * rows + self.shared / workers + sent

    def efficiency(self, rows: float, workers: int) -> float:
        """The share of R-fold speed on R n rows."""
        return self.seconds(workers * rows, 1) / (workers * self.seconds(rows, workers))


def measure(options: argparse.Namespace, num_data: int) -> list[PartCost]:
    """Search, evaluation and judgement among `num_data` rows of independent normals."""
    rng = np.random.default_rng(options.seed)
    X = rng.normal(size=(num_data, _DIMENSION))
    Y = np.sin(X[:, :1]) * X[:, 1:2] + 0.1 * rng.normal(size=(num_data, 1))
    kernel = gpflow.kernels.Matern52(lengthscales=np.full(_DIMENSION, 3.0))
    likelihood = gpflow.likelihoods.Gaussian(0.02)
    model = NNGP((X, Y), kernel, likelihood, num_neighbours=_NEIGHBOURS)
    rounds = NeighbourRounds(model, seed=options.seed)
    densities, x, found = rounds._densities, rounds._coordinates.pack(), []
    for n in options.round_rows:
        rows = np.sort(rng.choice(num_data, n, replace=False))
        seconds, objective = _timed(lambda rows=rows: densities.near(rows, np.ones(len(rows))))
        found.append(PartCost(num_data, "search", n, seconds))
        objective(x)  # traced
        seconds, _ = _timed(lambda objective=objective: [objective(x) for _ in range(3)])
        found.append(PartCost(num_data, "evaluation", n, seconds / 3.0))
    for n in (len(rounds.judges) // 8, len(rounds.judges)):
        judges = rounds.judges[:n]
        seconds, _ = _timed(lambda judges=judges: model.leave_one_out(judges, num_neighbours=128))
        found.append(PartCost(num_data, "judgement", n, seconds))
    return found


def round_of(costs: list[PartCost]) -> Round:
    """The round whose parts are lines through the measurements, none of them falling."""
    lines = {what: _line([c for c in costs if c.what == what]) for what in _PARTS}
    (s, per_search), (e, per_row), (j, per_judge) = lines.values()
    return Round(
        s + _EVALUATIONS * e + _JUDGEMENTS * j,
        per_search + _EVALUATIONS * per_row,
        _JUDGEMENTS * per_judge * _JUDGES,
    )


def section(costs: list[PartCost], options: argparse.Namespace) -> Section:
    """Measured seconds, and predicted efficiencies."""
    measured = [[f"{c.num_data:,}", c.what, f"{c.rows:,}", f"{c.seconds:.3f}"] for c in costs]
    predicted = []
    for num_data in dict.fromkeys(c.num_data for c in costs):
        cost = round_of([c for c in costs if c.num_data == num_data])
        for n in options.round_rows:
            shares = [f"{100 * cost.efficiency(n, workers):.0f} %" for workers in _MANY]
            predicted.append([f"{num_data:,}", f"{n:,}", f"{cost.seconds(n, 1):.1f}", *shares])
    header = ["N", "rows a worker", "s on one", *(f"{workers} workers" for workers in _MANY)]
    note = "Processor seconds of one core; 50 microseconds a hop are an assumption."
    tables = [
        Table("Parts of a round", ["N", "part", "rows", "processor s"], measured),
        Table("Predicted efficiency of a round", header, predicted),
    ]
    return Section(tables, [], [note])


_PARTS = ("search", "evaluation", "judgement")


def _line(costs: list[PartCost]) -> tuple[float, float]:
    """Intercept and slope, not below zero."""
    n, T = np.array([c.rows for c in costs]), np.array([c.seconds for c in costs])
    slope, intercept = np.polyfit(n, T, 1, w=1.0 / T) if len(n) > 1 else (T[0] / n[0], 0.0)
    if intercept < 0.0:
        return 0.0, float(np.sum(n / T) / np.sum((n / T) ** 2))
    return float(intercept), max(0.0, float(slope))


def _timed(work: Callable[[], object]) -> tuple[float, object]:
    began = time.process_time()
    found = work()
    return time.process_time() - began, found
