"""The cost of one gradient of the dual (V16) beside one Cholesky factorisation of the kernel
matrix.
"""

from __future__ import annotations

__all__ = ["PART"]

import argparse
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_decoupled.linalg.cholesky import cholesky
from gpflow_decoupled.models import LCLGP
from gpflow_decoupled.optimizers.lagrangian.dual import DualProblem
from gpflow_decoupled.optimizers.lagrangian.subproblem import (
    Policy,
    first_marginals,
    make_subproblem,
)

from ...harness.measuring import median_ms, peak_megabytes
from ...harness.processes import in_a_process
from ...harness.report import Section, Table
from ...harness.runner import Part

_REPEATS = 7


class Cost(NamedTuple):
    """Medians at one number of observations."""

    num_data: int
    gradient_ms: float
    cholesky_ms: float
    ratio: float
    peak_mb: float
    """peak memory of the process less what the libraries take"""


def _measure(options: argparse.Namespace, num_data: int) -> list[Cost]:
    """One gradient of the dual of Poisson regression, and one factorisation, in a process of their
    own.
    """
    gradient_ms, cholesky_ms, peak_mb = in_a_process(_cost, num_data, options.seed)
    return [Cost(num_data, gradient_ms, cholesky_ms, gradient_ms / cholesky_ms, peak_mb)]


def _cost(num_data: int, seed: int) -> tuple[float, float, float]:
    """Milliseconds of a gradient and of a factorisation, and peak MB less what the libraries
    take.
    """
    base, rng = peak_megabytes(), np.random.default_rng(seed)
    X = rng.uniform(0.0, 10.0, (num_data, 2))
    Y = rng.poisson(np.exp(np.sin(X[:, :1]))).astype(float)
    model = LCLGP((X, Y), gpflow.kernels.Matern52(2.0), gpflow.likelihoods.Poisson())
    problem = DualProblem(model)
    at, _ = first_marginals(problem, 3, 1e-4)
    sub, _ = make_subproblem(problem, at, Policy(0.1, True, None, float("inf")))
    K = model.kernel(X) + 1e-3 * tf.eye(num_data, dtype=gpflow.default_float())
    factor = tf.function(cholesky)

    def gradient() -> np.ndarray:
        now = problem.marginals(at.alpha, at.lam)
        return problem.point(sub, now, at.mean, at.deviation).g_lam.numpy()

    ms = median_ms(gradient, _REPEATS), median_ms(lambda: factor(K).chol.numpy(), _REPEATS)
    return *ms, peak_megabytes() - base


def _section(rows: list[Cost], _: argparse.Namespace) -> Section:
    header = ["N", "gradient ms", "Cholesky ms", "ratio", "peak MB over the base"]
    cells = [
        [
            str(one.num_data),
            f"{one.gradient_ms:.1f}",
            f"{one.cholesky_ms:.1f}",
            f"{one.ratio:.2f}",
            f"{one.peak_mb:.0f}",
        ]
        for one in rows
    ]
    note = (
        "Cost: medians, of processor milliseconds where one thread is used. Each size has a process"
        " of its own."
    )
    return Section([Table("One gradient of the dual", header, cells)], [], [note])


PART = Part(Cost, lambda options: [(size,) for size in options.sizes], _measure, _section)
