"""How far bounds of the log evidence are below it, at fixed hyperparameters, and what they cost.

The kernel of each task and noise variance is that of an exact GP on some of the rows. The exact
evidence is by a dense factorisation; bounds "with the exact mean" are taken at its coefficients,
the others at zero, where they are those of a collapsed q(u). The interval is `model.evidence`,
which is given neither.
"""

from __future__ import annotations

__all__ = ["KERNELS", "PART", "add_arguments", "learned"]

import argparse
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from scipy.linalg import cho_solve, cholesky

from gpflow_decoupled.covariances.latents import prior_variance
from gpflow_decoupled.covariances.neighbourhoods import Conditioning, ordered_neighbours
from gpflow_decoupled.models import ODVGP
from gpflow_decoupled.models import evidence as interval
from gpflow_decoupled.optimizers.data_mean.evidence import evidence_bound
from gpflow_decoupled.optimizers.data_mean.system import project_rows

from ...harness.data import inducing_points, load
from ...harness.machine import clock
from ...harness.pictures import Figure, Panel, Series
from ...harness.report import Section, Table
from ...harness.runner import Part

KERNELS = {
    "matern12": gpflow.kernels.Matern12,
    "matern32": gpflow.kernels.Matern32,
    "matern52": gpflow.kernels.Matern52,
}
NOTES = [
    "Nats per row that a bound is short of the exact log evidence; above it for the upper ends.",
    "CGLB: Artemev, Burt & van der Wilk 2021. Titsias 2025: arXiv:2502.08730, log(1 + w d).",
    "Seconds are those of the processor; of an interval, solver and preconditioner included.",
]


class Row(NamedTuple):
    """One bound on one problem."""

    task: str
    num_data: int
    noise: float
    bound: str
    short: float
    """nats per row below the evidence; negative for an upper bound"""
    products: int
    """with the kernel matrix; 0 where the coefficients are given"""
    seconds: float


class Problem(NamedTuple):
    """Data, kernel and noise, and what a dense factorisation says."""

    X: np.ndarray
    Y: np.ndarray
    kernel: gpflow.kernels.Kernel
    noise: float
    points: np.ndarray
    evidence: float
    coefficients: np.ndarray
    """of the exact posterior mean [N, 1]"""


def learned(
    options: argparse.Namespace, task: str, noise: float
) -> tuple[np.ndarray, np.ndarray, gpflow.kernels.Kernel, float]:
    """Random rows X [N, D], Y [N, 1], and the kernel of an exact GP on the first of them.

    Last the noise variance: as given, or learned with the kernel for `--learn-noise`.
    """
    data = load(task, 0, options.data)
    rows = np.random.default_rng(options.seed).permutation(len(data.X_train))[: options.num_data]
    X, Y = data.X_train[rows], data.Y_train[rows]
    kernel = KERNELS[options.kernel](lengthscales=np.full(X.shape[1], np.sqrt(X.shape[1])))
    few = X[: options.learning_rows], Y[: options.learning_rows]
    exact = gpflow.models.GPR(few, kernel, noise_variance=noise)
    gpflow.set_trainable(exact.likelihood, options.learn_noise)
    gpflow.optimizers.Scipy().minimize(
        exact.training_loss, exact.trainable_variables, options={"maxiter": options.iterations}
    )
    return X, Y, kernel, float(exact.likelihood.variance.numpy())


def _problem(options: argparse.Namespace, task: str, noise: float) -> Problem:
    X, Y, kernel, noise = learned(options, task, noise)
    data = load(task, 0, options.data)
    root = cholesky(kernel(X).numpy() + noise * np.eye(len(X)), lower=True)
    a = cho_solve((root, True), Y)
    squares, log_det = float(np.sum(Y * a)), 2.0 * float(np.sum(np.log(np.diag(root))))
    evidence = -0.5 * (len(X) * np.log(2.0 * np.pi) + log_det + squares)
    points = inducing_points(data._replace(X_train=X), options.num_points, options.seed)
    return Problem(X, Y, kernel, noise, points, evidence, a)


def _given(problem: Problem, options: argparse.Namespace) -> Iterator[tuple[str, float, float]]:
    """Bounds at given coefficients: their names, nats and seconds."""
    model = ODVGP(
        problem.kernel, gpflow.likelihoods.Gaussian(problem.noise), "data", problem.points
    )
    mean, beta = model.basis.data_mean, model.basis.beta
    mean.set_data(problem.X)
    N, X, y = len(problem.X), tf.constant(problem.X), tf.constant(problem.Y)
    weights = tf.fill([N, 1], tf.constant(1.0 / problem.noise, y.dtype))
    parts, a = (problem.kernel, beta, mean, y, weights), tf.constant(problem.coefficients)
    features = project_rows(problem.kernel, beta, X, len(problem.points))
    known = sum(float(tf.reduce_sum(tf.square(block))) for block in features.blocks)
    trace = float(tf.reduce_sum(prior_variance(problem.kernel, X, full_cov=False))) - known
    trace /= problem.noise
    # CGLB takes log(1 + its mean) where the ELBO has the trace
    gain = 0.5 * (trace - N * np.log1p(trace / N))
    for start, where in ((0.0 * a, "collapsed"), (a, "exact mean")):
        began = clock()
        elbo = float(evidence_bound(*parts, start, bound="elbo"))
        spent = clock() - began
        yield f"ELBO, {where}", elbo, spent
        yield f"CGLB, {where}", elbo + gain, spent
        began = clock()
        yield (
            f"Titsias 2025, {where}",
            float(evidence_bound(*parts, start, bound="diagonal")),
            clock() - began,
        )
    order = np.random.default_rng(options.seed).permutation(N)
    for count in options.neighbours:
        began = clock()
        near = ordered_neighbours(problem.kernel, X, order, count)
        given = Conditioning(tf.range(N), tf.constant(near[None]))
        value = float(evidence_bound(*parts, a, bound="neighbours", given=given))
        yield f"{count} neighbours, exact mean", value, clock() - began


def _measure(options: argparse.Namespace, task: str, noise: float) -> list[Row]:
    problem = _problem(options, task, noise)
    N, found = len(problem.X), []

    def add(bound: str, value: float, seconds: float, products: int = 0) -> None:
        short = (problem.evidence - value) / N
        found.append(Row(task, N, problem.noise, bound, short, products, seconds))

    for name, value, seconds in _given(problem, options):
        add(name, value, seconds)
    likelihood = gpflow.likelihoods.Gaussian(problem.noise)
    model = ODVGP(problem.kernel, likelihood, "data", problem.points)
    exact_rows, interval.EXACT_ROWS = interval.EXACT_ROWS, 0
    try:
        for count, probes in product(options.neighbours, (0, options.probes)):
            began = clock()
            both = model.evidence((problem.X, problem.Y), num_neighbours=count, probes=probes)
            seconds = clock() - began
            if not probes:
                add(f"interval, {count} neighbours: lower", both.lower, seconds, both.products)
            upper = "estimated upper" if probes else "certain upper"
            add(f"interval, {count} neighbours: {upper}", both.upper, seconds, both.products)
    finally:
        interval.EXACT_ROWS = exact_rows
    return found


def _section(rows: list[Row], options: argparse.Namespace) -> Section:
    """A table of all bounds, a column for each problem."""
    problems = list(dict.fromkeys((row.task, row.noise) for row in rows))
    value = {(row.bound, row.task, row.noise): row for row in rows}
    cells, costs = [], []
    for bound in dict.fromkeys(row.bound for row in rows):
        mine = [value[(bound, *problem)] for problem in problems]
        cells.append([bound, *(f"{row.short:.3f}" for row in mine)])
        costs.append([bound, *(f"{row.products} / {row.seconds:.1f}" for row in mine)])
    header = ["bound", *(f"{task}, {noise:g}" for task, noise in problems)]
    size = max(row.num_data for row in rows)
    title = f"{size} rows, {options.num_points} points, {options.kernel}"
    tables = [
        Table(f"Nats per row short of the evidence: {title}", header, cells),
        Table("Products / processor seconds", header, costs),
    ]
    panels = [_panel(rows, task) for task in dict.fromkeys(row.task for row in rows)]
    figure = Figure("evidence", "Lower bounds, at the exact mean or none.", panels)
    return Section(tables, [figure], NOTES)


def _panel(rows: list[Row], task: str) -> Panel:
    """Lower bounds against the noise."""
    series = []
    for bound in dict.fromkeys(row.bound for row in rows if not row.bound.startswith("interval")):
        mine = [row for row in rows if row.task == task and row.bound == bound]
        noises, short = [row.noise for row in mine], [row.short for row in mine]
        series.append(Series(bound, noises, short, "collapsed" in bound))
    return Panel(task, "noise variance", "nats per row short", series, "xy")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tasks", nargs="+", default=["kin40k", "protein", "power"])
    parser.add_argument("--noises", nargs="+", type=float, default=[0.2, 0.01, 0.001])
    parser.add_argument("--kernel", choices=list(KERNELS), default="matern52")
    parser.add_argument("--num-data", type=int, default=3000, help="N, whose matrix is factorised")
    parser.add_argument("--num-points", type=int, default=300, help="of Q")
    parser.add_argument("--neighbours", nargs="+", type=int, default=[30, 100])
    parser.add_argument("--probes", type=int, default=16, help="of the estimated upper end")
    parser.add_argument("--learning-rows", type=int, default=600, help="of the kernel")
    parser.add_argument(
        "--learn-noise", action="store_true", help="with the kernel, from each of --noises"
    )
    parser.add_argument("--iterations", type=int, default=60, help="of L-BFGS for the kernel")


PART = Part(Row, lambda options: list(product(options.tasks, options.noises)), _measure, _section)
