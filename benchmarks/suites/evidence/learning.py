"""Hyperparameters by each bound: the exact log evidence and the noise where its climb ends.

"rounds" climb a bound at the coefficients of the exact mean, found anew between rounds; "solved"
find them anew at every evaluation, so that the quadratic term is exact and only log|K + D| is
bounded.
"""

from __future__ import annotations

__all__ = ["PART", "add_arguments"]

import argparse
from collections.abc import Callable, Iterator
from itertools import product
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_decoupled.bases import CoupledBasis, Regression
from gpflow_decoupled.covariances.neighbourhoods import Conditioning, ordered_neighbours
from gpflow_decoupled.lbfgs import lbfgs_ascent
from gpflow_decoupled.linalg.site_posterior import normal_log_density
from gpflow_decoupled.models import ODVGP, BasisGP
from gpflow_decoupled.optimizers.data_mean.evidence import evidence_bound
from gpflow_decoupled.optimizers.gaussian_optimum import bound_at_optimum

from ...harness.data import inducing_points, load
from ...harness.machine import clock
from ...harness.report import Section, Table
from ...harness.runner import Part
from .bounds import KERNELS

NOISE = 0.1
"""The noise variance at the start; lengthscales start at the root of D."""
NOTES = [
    "Exact log evidence per row at the hyperparameters that the climb ends with, the deviation of"
    " the noise there, and the bound per row that was climbed.",
    "All climbs have the same number of evaluations.",
]
Bound = Callable[[], tf.Tensor]


class Learned(NamedTuple):
    """The end of one climb."""

    task: str
    num_data: int
    way: str
    evidence: float
    """exact, nats per row, at the learned hyperparameters"""
    bound: float
    """the climbed one, nats per row"""
    deviation: float
    """of the noise"""
    evaluations: int
    seconds: float


class Climber:
    """Kernel and noise on one set of rows, and L-BFGS on functions of them."""

    def __init__(self, options: argparse.Namespace, task: str) -> None:
        data = load(task, 0, options.data)
        rows = np.random.default_rng(options.seed).permutation(len(data.X_train))
        rows = rows[: options.num_data]
        X, Y = data.X_train[rows], data.Y_train[rows]
        self.X, self.y = tf.constant(X), tf.constant(Y)
        self.points = inducing_points(data._replace(X_train=X), options.num_points, options.seed)
        self.order = np.random.default_rng(options.seed).permutation(len(X))
        scales = np.full(X.shape[1], np.sqrt(X.shape[1]))
        self.kernel = KERNELS[options.kernel](lengthscales=scales)
        self.likelihood = gpflow.likelihoods.Gaussian(NOISE)
        self.variables = [
            *self.kernel.trainable_variables,
            *self.likelihood.trainable_variables,
        ]

    def evidence(self) -> tf.Tensor:
        """The exact log evidence, nats []."""
        K = self.kernel(self.X)
        noisy = tf.linalg.set_diag(K, tf.linalg.diag_part(K) + self.likelihood.variance)
        return normal_log_density(noisy, self.y)

    def collapsed(self, bound: str) -> Bound:
        """The bound of the best q(u), "classical" or "tight"."""
        model = BasisGP(self.kernel, self.likelihood, CoupledBasis(self.points), bound=bound)
        gpflow.set_trainable(model.basis, False)
        return lambda: bound_at_optimum(
            model, Regression(self.X, self.y, tf.convert_to_tensor(self.likelihood.variance))
        )

    def at_mean(self, bound: str, coefficients: Callable[[], tf.Tensor], count: int) -> Bound:
        """A bound of `evidence_bound` at coefficients [N, 1], with `count` neighbours from now."""
        model = ODVGP(self.kernel, self.likelihood, "data", self.points)
        mean, beta = model.basis.data_mean, model.basis.beta
        mean.set_data(self.X)
        given = None
        if bound == "neighbours":
            near = ordered_neighbours(self.kernel, self.X, self.order, count)
            given = Conditioning(tf.range(len(self.order)), tf.constant(near[None]))

        def value() -> tf.Tensor:
            weights = tf.ones_like(self.y) / self.likelihood.variance
            a = coefficients()
            return evidence_bound(
                self.kernel, beta, mean, self.y, weights, a, bound=bound, given=given
            )

        return value

    def solved(self) -> tf.Tensor:
        """Coefficients [N, 1] of the exact mean at the present hyperparameters; a constant."""
        K = tf.stop_gradient(self.kernel(self.X))
        noise = tf.stop_gradient(tf.convert_to_tensor(self.likelihood.variance))
        root = tf.linalg.cholesky(tf.linalg.set_diag(K, tf.linalg.diag_part(K) + noise))
        return tf.linalg.cholesky_solve(root, self.y)

    def climb(self, bound: Bound, evaluations: int) -> tuple[float, int]:
        """Climb; return the last value and the number of evaluations."""

        @tf.function(autograph=False)
        def both() -> tuple[tf.Tensor, list[tf.Tensor]]:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(self.variables)
                value = bound()
            return value, tape.gradient(value, self.variables)

        def function(x: np.ndarray) -> tuple[float, np.ndarray]:
            self._assign(x)
            value, gradients = both()
            return float(value), np.concatenate([np.ravel(part) for part in gradients])

        start = np.concatenate([np.ravel(variable) for variable in self.variables])
        run = lbfgs_ascent(function, start, lambda values: False, evaluations)
        self._assign(run.x)
        return run.value, run.evaluations

    def _assign(self, x: np.ndarray) -> None:
        sizes = np.cumsum([np.size(variable) for variable in self.variables])[:-1]
        for variable, part in zip(self.variables, np.split(x, sizes)):
            variable.assign(np.reshape(part, variable.shape))


def _rounds(
    climber: Climber, options: argparse.Namespace, bound: str, solved: bool, count: int
) -> tuple[float, int]:
    """Rounds of a bound; neighbours, and coefficients unless solved, are found before each."""
    total, value = 0, float("nan")
    for _ in range(options.climbs):
        fixed = climber.solved()
        coefficients = climber.solved if solved else lambda a=fixed: a
        share = max(1, options.evaluations // options.climbs)
        value, used = climber.climb(climber.at_mean(bound, coefficients, count), share)
        total += used
    return value, total


def _ways(options: argparse.Namespace) -> dict[str, Callable[[Climber], tuple[float, int]]]:
    def rounds(bound: str, solved: bool, count: int = 0) -> Callable:
        return lambda climber: _rounds(climber, options, bound, solved, count)

    def single(bound: Callable[[Climber], Bound]) -> Callable:
        return lambda climber: climber.climb(bound(climber), options.evaluations)

    ways: dict[str, Callable] = {"exact": single(lambda climber: climber.evidence)}
    for name in ("classical", "tight"):
        ways[name] = single(lambda climber, name=name: climber.collapsed(name))
    for solved, name in ((False, "rounds"), (True, "solved")):
        for bound in ("elbo", "diagonal"):
            ways[f"{name}-{bound}"] = rounds(bound, solved)
        for count in options.neighbours:
            ways[f"{name}-{count}"] = rounds("neighbours", solved, count)
    return {name: way for name, way in ways.items() if not options.ways or name in options.ways}


def _measure(options: argparse.Namespace, task: str, way: str) -> Iterator[Learned]:
    climber, began = Climber(options, task), clock()
    bound, evaluations = _ways(options)[way](climber)
    seconds, N = clock() - began, len(climber.order)
    deviation = float(np.sqrt(climber.likelihood.variance))
    evidence = float(climber.evidence()) / N
    yield Learned(task, N, way, evidence, bound / N, deviation, evaluations, seconds)


def _section(rows: list[Learned], options: argparse.Namespace) -> Section:
    """A row for each way, columns for each task."""
    tasks = list(dict.fromkeys(row.task for row in rows))
    found = {(row.way, row.task): row for row in rows}
    cells = []
    for way in dict.fromkeys(row.way for row in rows):
        mine = [found.get((way, task)) for task in tasks]
        texts = [
            ""
            if row is None
            else f"{row.evidence:.3f} / {row.deviation:.3f} ({row.bound:.3f}), {row.seconds:.0f}"
            for row in mine
        ]
        cells.append([way, *texts])
    title = (
        f"Log evidence per row / noise deviation (the bound), seconds:"
        f" {max(row.num_data for row in rows)} rows, {options.num_points} points,"
        f" {options.evaluations} evaluations"
    )
    return Section([Table(title, ["climbed", *tasks], cells)], [], NOTES)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this part."""
    parser.add_argument("--evaluations", type=int, default=40, help="of a climb by L-BFGS")
    parser.add_argument("--climbs", type=int, default=5, help="rounds that share the evaluations")
    parser.add_argument(
        "--ways",
        nargs="+",
        default=[],
        help="of learning: exact, classical, tight, rounds-BOUND, solved-BOUND, with elbo, diagonal"
        " or one of --neighbours as BOUND; all if not given",
    )


PART = Part(
    Learned,
    lambda options: list(product(options.tasks, _ways(options))),
    lambda options, task, way: list(_measure(options, task, way)),
    _section,
)
