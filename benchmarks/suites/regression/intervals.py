"""Intervals: what more points of the covariance do for a mean on all data, once kernel and noise
are learned.

A mean on all data is the same whatever carries the covariance, but intervals are those of the
points beta. So the model is trained with few points, and then solved again at the same kernel and
noise with more. The noise variance was learned where the covariance was poor, and took on what that
did not know; so it is then learned again, alone. And variances come from the nearest neighbours, at
the same kernel and noise."""

from __future__ import annotations

__all__ = ["PART", "Solved", "add_arguments"]

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gpflow
import tensorflow as tf

from gpflow_decoupled import fit
from gpflow_decoupled.inducing import select
from gpflow_decoupled.models import ODVGP, with_neighbours
from gpflow_decoupled.optimizers import ConjugateGradients
from gpflow_decoupled.optimizers.data_mean.evidence import evidence_at, hyperparameters_of
from gpflow_decoupled.optimizers.log_climb import LogObjective, climb_logarithms

from ...harness.data import Data
from ...harness.machine import training_clock
from ...harness.metrics import evaluate
from ...harness.report import Section, Table
from ...harness.runner import Part
from ...libraries.models import build, parse
from ...libraries.tensorflow_tools import scores
from .runs import pieces, regression_data, settings_of

_ROUNDS, _EVALUATIONS = 2, 6
"""Of learning the noise again: climbs, each followed by a solve, and evaluations of the bound in
each.
"""


@dataclass
class Solved:
    """A model with a mean on all data, trained with few points of the covariance or solved again
    with `points`.
    """

    task: str
    split: int
    points: int
    seconds: float
    """of training for the first row, of choosing points and solving for the others, and of learning
    the noise again
    """
    noise: float
    """variance of the standardised output"""
    again: bool
    """whether the noise was learned again with these points"""
    gap: float
    """certified, in nats"""
    metrics: dict[str, float]
    neighbours: int = 0
    """of which variances are, rather than of points"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--learned-points",
        type=int,
        default=300,
        help="intervals: points that the kernel is learned with",
    )
    parser.add_argument(
        "--learned-seconds", type=float, default=60.0, help="intervals: of training"
    )
    parser.add_argument(
        "--more-points",
        nargs="*",
        type=int,
        default=[1000, 2000],
        help="intervals: of the covariance",
    )
    parser.add_argument(
        "--near-neighbours",
        nargs="*",
        type=int,
        default=[128],
        help="intervals: neighbours of the covariance",
    )


def _pieces(options: argparse.Namespace) -> list[tuple]:
    return [
        (task, split)
        for task, split, _ in pieces(options, ("kin40k", "protein", "elevators"), ["data"])
    ]


def _measure(options: argparse.Namespace, task: str, split: int) -> list[Solved]:
    """Train once, and solve with each number of points."""
    with training_clock():
        data = regression_data(task, split, options.data)
        settings = settings_of(options, [options.learned_seconds], "seconds")
        model = build(parse(f"data-{options.learned_points}"), data, settings)
        rows = data.X_train, data.Y_train
        result = fit(
            model,
            rows,
            seconds=options.learned_seconds,
            learning_rate=settings.learning_rate,
            progress=False,
        )
        gap = float("nan") if result.gap is None else result.gap
        place, noise = (
            (task, split, options.learned_points),
            float(model.likelihood.variance.numpy()),
        )
        found = [Solved(*place, result.seconds, noise, False, gap, scores(model, data))]
        for neighbours in options.near_neighbours:
            began = time.perf_counter()
            near = with_neighbours(model, rows, prediction_neighbours=neighbours)
            metrics = evaluate(near, data)
            seconds = time.perf_counter() - began
            found.append(Solved(*place, seconds, noise, False, gap, metrics, neighbours))
        for points in options.more_points:
            found += _solved(model, data, (task, split, points))
        return found


def _solved(model: gpflow.models.GPModel, data: Data, place: tuple[str, int, int]) -> list[Solved]:
    """The same kernel with more points of the covariance: at the same noise, and with noise that is
    learned at this mean.
    """
    began, rows = time.perf_counter(), (tf.constant(data.X_train), tf.constant(data.Y_train))
    beta = select(data.X_train, place[-1], model.kernel, max_rows=len(data.X_train))
    wider = ODVGP(
        gpflow.utilities.deepcopy(model.kernel),
        gpflow.utilities.deepcopy(model.likelihood),
        "data",
        beta,
    )
    found = [_row(wider, data, place, ConjugateGradients().run(wider, rows).gap, began, False)]
    for part in (wider.kernel, wider.basis.beta):
        gpflow.set_trainable(part, False)
    began = time.perf_counter()
    for _ in range(_ROUNDS):
        mean = wider.basis.data_mean
        density = evidence_at(wider, mean, rows, tf.float32)
        objective = LogObjective.of_model(
            wider, hyperparameters_of(wider, mean), density, logarithms=False
        )
        climb_logarithms(
            objective, objective.coordinates, 1, evaluations=_EVALUATIONS, tolerance=0.0
        )
        gap = ConjugateGradients().run(wider, rows).gap
    return [*found, _row(wider, data, place, gap, began, True)]


def _row(
    model: ODVGP, data: Data, place: tuple[str, int, int], gap: float, began: float, again: bool
) -> Solved:
    seconds = time.perf_counter() - began
    return Solved(
        *place, seconds, float(model.likelihood.variance.numpy()), again, gap, scores(model, data)
    )


def _section(rows: Sequence[Solved], options: argparse.Namespace) -> Section:
    header = [
        "task",
        "points of the covariance",
        "noise",
        "seconds",
        "RMSE",
        "log density",
        "coverage",
        "ELBO",
        "gap (nats)",
    ]
    names = ("rmse", "log_density", "coverage")
    cells: list[list[Any]] = [
        [
            row.task if len(options.splits) == 1 else f"{row.task}, split {row.split}",
            f"{row.neighbours} neighbours" if row.neighbours else str(row.points),
            f"{row.noise:.4f}" + (", learned again" if row.again else ""),
            f"{row.seconds:.1f}",
            *(f"{row.metrics[name]:.4f}" for name in names),
            "" if row.neighbours else f"{row.metrics['elbo']:.0f}",
            f"{row.gap:.2g}",
        ]
        for row in rows
    ]
    notes = [
        (
            f"The first row of a task is trained for {options.learned_seconds:g} s; the others take"
            " its kernel and noise: variances from neighbours at the same mean, where seconds are"
            " of predictions; or points chosen where that kernel is least certain, and one solve."
            " Noise is learned again by the bound of the evidence."
        ),
        "Coverage: the share of test outputs within intervals of 95 %.",
    ]
    return Section([Table("Intervals of a mean on all data", header, cells)], [], notes)


PART = Part(Solved, _pieces, _measure, _section)
