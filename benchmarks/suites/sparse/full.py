"""The full GP, which the approximations are compared with."""

from __future__ import annotations

__all__ = ["PART"]

import argparse
from typing import NamedTuple

from ...harness.report import Section
from ...harness.runner import Part
from .summaries import truth


class Exact(NamedTuple):
    """The full GP."""

    task: str
    objective: float
    """log evidence, nats"""
    noise: float
    """noise variance"""
    num_data: int


def _measure(options: argparse.Namespace) -> list[Exact]:
    problem, full = truth(options)
    return [Exact(problem.name, full.objective, full.noise, len(problem.X))]


def _section(rows: list[Exact], _: argparse.Namespace) -> Section:
    (row,) = rows
    found = f"log evidence {row.objective:.3f} nats, noise variance {row.noise:.4f}"
    return Section([], [], [f"Task {row.task}, full GP: {found}; N = {row.num_data}."])


PART = Part(Exact, lambda _: [()], _measure, _section)
