"""Seconds and peak memory of a solve for a mean on all rows, against their number, each in a
process of its own.
"""

from __future__ import annotations

__all__ = ["PART", "Solve", "measure"]

import argparse
from typing import NamedTuple

import gpflow
import numpy as np

from gpflow_decoupled.inducing import select
from gpflow_decoupled.models import ODVGP
from gpflow_decoupled.optimizers import ConjugateGradients

from ...harness.machine import clock
from ...harness.measuring import peak_megabytes
from ...harness.processes import in_a_process
from ...harness.report import Section, Table
from ...harness.runner import Part

_DIMENSION = 8


class Solve(NamedTuple):
    """What one process measured."""

    num_rows: int
    num_beta: int
    rank: int
    """points of the preconditioner"""
    products: int
    seconds: float
    gap: float
    """certified, in nats"""
    base_mb: float
    """peak resident memory with libraries and data, before the solve"""
    solve_mb: float
    """how much higher the peak was after it"""


def measure(options: argparse.Namespace, num_rows: int) -> list[Solve]:
    """Measure one number of rows in a process of its own."""
    return [
        in_a_process(
            _solve, num_rows, options.num_beta, options.rank, options.max_products, options.seed
        )
    ]


def _solve(num_rows: int, num_beta: int, rank: int, max_products: int, seed: int) -> Solve:
    """A solve on rows of a smooth function with noise, which ends after `max_products` where that
    comes first.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal([num_rows, _DIMENSION])
    Y = np.sin(X.sum(1, keepdims=True)) + 0.3 * rng.standard_normal([num_rows, 1])
    kernel = gpflow.kernels.Matern32(lengthscales=np.full(_DIMENSION, _DIMENSION**0.5))
    model = ODVGP(
        kernel, gpflow.likelihoods.Gaussian(0.1), "data", select(X[:5000], num_beta, kernel)
    )
    base, start = peak_megabytes(), clock()
    result = ConjugateGradients(rank=rank, max_products=max_products).run(model, (X, Y))
    seconds = clock() - start
    return Solve(
        num_rows,
        num_beta,
        rank,
        result.products,
        seconds,
        result.gap,
        base,
        peak_megabytes() - base,
    )


def section(solves: list[Solve], _: argparse.Namespace) -> Section:
    """A row per number of rows."""
    header = ["N", "M_beta", "rank", "products", "seconds", "gap (nats)", "base (MB)", "MB over it"]
    rows = [
        [
            f"{one.num_rows:,}",
            str(one.num_beta),
            str(one.rank),
            str(one.products),
            f"{one.seconds:.1f}",
            f"{one.gap:.2g}",
            f"{one.base_mb:.0f}",
            f"{one.solve_mb:.0f}",
        ]
        for one in solves
    ]
    note = (
        f"Solves: `ConjugateGradients` from zeros, {_DIMENSION} inputs, Matern-3/2, noise variance"
        " 0.1; the base is the peak of the process with libraries, data and inducing points."
    )
    return Section([Table("Solves for a mean on all rows", header, rows)], [], [note])


PART = Part(Solve, lambda options: [(size,) for size in options.solve_rows], measure, section)
