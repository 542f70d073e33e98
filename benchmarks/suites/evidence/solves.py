"""Products of a solve for the exact mean, by preconditioner, at smaller and smaller noise."""

from __future__ import annotations

__all__ = ["PART", "add_arguments"]

import argparse
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import gpflow
import tensorflow as tf

from gpflow_decoupled.models import ODVGP
from gpflow_decoupled.optimizers import ConjugateGradients
from gpflow_decoupled.optimizers.data_mean.system import best_preconditioner

from ...harness.data import Data, inducing_points
from ...harness.machine import clock
from ...harness.report import Section, Table
from ...harness.runner import Part
from .bounds import learned

NOTES = [
    "Products with the kernel matrix, those of the certificate included, until the certified gap"
    " is below the tolerance; an asterisk where it is not after as many as were allowed.",
    'The choice is that of `preconditioner="auto"`.',
]


class Solve(NamedTuple):
    """One solve."""

    task: str
    num_data: int
    noise: float
    preconditioner: str
    chosen: bool
    """by "auto" """
    products: int
    gap: float
    """nats"""
    seconds: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this part."""
    parser.add_argument("--tolerance", type=float, default=0.1, help="of a solve, nats")
    parser.add_argument("--preconditioners", nargs="+", default=["points", "neighbours"])
    parser.add_argument("--max-products", type=int, default=200, help="of a solve")


def _measure(options: argparse.Namespace, task: str, noise: float) -> Iterator[Solve]:
    X, Y, kernel, noise = learned(options, task, noise)
    points = inducing_points(Data(task, X, Y, X, Y), min(options.num_points, 100), options.seed)
    likelihood = gpflow.likelihoods.Gaussian(noise, variance_lower_bound=0.0)
    for name in options.preconditioners:
        model = ODVGP(kernel, likelihood, "data", points)
        best = best_preconditioner(
            kernel, model.basis.beta, tf.constant(X), tf.constant(noise, X.dtype)
        )
        solver = ConjugateGradients(
            options.tolerance, max_products=options.max_products, preconditioner=name
        )
        began = clock()
        found = solver.run(model, (X, Y))
        chosen = best == name
        yield Solve(task, len(X), noise, name, chosen, found.products, found.gap, clock() - began)


def _section(rows: list[Solve], options: argparse.Namespace) -> Section:
    """A row for each task and preconditioner, a column for each noise."""
    noises = list(dict.fromkeys(row.noise for row in rows))
    cells = []
    for task, name in dict.fromkeys((row.task, row.preconditioner) for row in rows):
        mine = {row.noise: row for row in rows if (row.task, row.preconditioner) == (task, name)}
        texts = []
        for noise in noises:
            if (row := mine.get(noise)) is None:  # of a run that is not over
                texts.append("")
                continue
            failed = "" if row.gap <= options.tolerance else "*"
            text = f"{row.products}{failed} / {row.seconds:.1f}"
            texts.append(f"**{text}**" if row.chosen else text)
        cells.append([task, name, *texts])
    size = max(row.num_data for row in rows)
    title = f"Products / processor seconds to {options.tolerance:g} nats, {size} rows; bold: chosen"
    return Section(
        [Table(title, ["set", "preconditioner", *(f"{noise:.3g}" for noise in noises)], cells)],
        [],
        NOTES,
    )


PART = Part(
    Solve,
    lambda options: list(product(options.tasks, options.noises)),
    lambda options, task, noise: list(_measure(options, task, noise)),
    _section,
)
