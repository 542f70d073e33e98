"""Our nearest-neighbour GP, with the settings of `gd.build`."""

from __future__ import annotations

__all__ = ["train_neighbours"]

import time
from collections.abc import Sequence
from typing import NamedTuple

import gpflow
import numpy as np

from gpflow_decoupled import fit
from gpflow_decoupled.building import default_kernel
from gpflow_decoupled.building.kernels import (
    PREDICTION_NEIGHBOURS,
    SPREAD_NEIGHBOURS,
    choose_kernel,
    choose_label_kernel,
)
from gpflow_decoupled.errors import NumericalError
from gpflow_decoupled.models import NNGP
from gpflow_decoupled.training import Standardized

from ..harness.data import Data
from ..harness.metrics import evaluate_classes, gaussian_scores
from ..harness.records import Record, Snapshot
from .models import Settings, Spec, kernel_and_likelihood, precision

_NOISE = 0.1
"""The first noise variance, that of `choose_kernel`."""
_CHOICE = 0.5
"""Share of a budget for the choice of a kernel: at 60 seconds it tries all candidates."""
_OF_LABELS = 0.5
"""Of that share, for labels, whose sites take longer to train than the choice."""
_LEAST_SECONDS = 0.1
"""For `fit` where the choice of a kernel took the whole budget: it only calibrates then."""


class _Run(NamedTuple):
    """The run of one budget."""

    snapshot: Snapshot
    note: str


def train_neighbours(
    spec: Spec, data: Data, targets: Sequence[float], settings: Settings
) -> Record:
    """Train by `fit`, once for every budget of `settings`, and evaluate the end of each run.

    A step is a climb by L-BFGS, and there are at most four; so the earlier `targets` have no
    snapshots. Seconds are all of the run: the choice of a kernel, compilation and searches for
    neighbours count. The note has the seconds of predictions, the search included."""
    with precision(settings.dtype):
        cast = data.cast(settings.dtype)
        runs = [_run(spec, cast, budget, settings) for budget in sorted(settings.budgets)]
    longest = runs[-1].snapshot
    ms = 1e3 * longest.seconds / max(longest.step, 1)
    snapshots = [one.snapshot for one in runs]
    return Record(data.name, spec.name, spec.library, 0.0, ms, snapshots, runs[-1].note)


def _run(spec: Spec, data: Data, budget: float, settings: Settings) -> _Run:
    wall, processor = time.perf_counter(), time.process_time()
    in_seconds = settings.unit == "seconds"
    build = _of_classes if data.num_classes else _build
    model, chosen = build(spec, data, settings, _CHOICE * budget if in_seconds else None)
    left = max(_LEAST_SECONDS, budget - (time.perf_counter() - wall)) if in_seconds else None
    steps = None if in_seconds else int(budget)
    notes = [chosen] if chosen else []
    failed = False
    try:
        result = fit(model, steps=steps, seconds=left, seed=settings.seed, progress=False)
    except NumericalError as error:
        result, failed = error.result, True
        notes.append(f"failed in step {result.steps + 1}")
    seconds, cpu = time.perf_counter() - wall, time.process_time() - processor
    snapshot = Snapshot(budget, seconds, cpu, result.steps, final=True)
    if not failed:
        before = time.perf_counter()
        if data.num_classes:
            snapshot.metrics = evaluate_classes(model, data)
        else:
            mean, variance = map(np.asarray, model.predict_y(data.X_test))
            snapshot.metrics = gaussian_scores(mean, variance, data.Y_test)
        took, rows = time.perf_counter() - before, _inside(model).prediction_neighbours
        notes.append(f"{len(data.X_test)} predictions from {rows} rows in {took:.1f} s")
    return _Run(snapshot, "; ".join(notes))


def _inside(model: Standardized | NNGP) -> NNGP:
    return model if isinstance(model, NNGP) else model.model


def _of_classes(
    spec: Spec, data: Data, settings: Settings, seconds: float | None
) -> tuple[Standardized | NNGP, str]:
    """A model of labels with sites, and the name of its kernel where that was chosen."""
    kernel, likelihood = kernel_and_likelihood(data, settings)

    def inside(X: np.ndarray, Y: np.ndarray) -> NNGP:
        return NNGP(
            (X, Y),
            kernel,
            likelihood,
            num_neighbours=spec.num_beta,
            prediction_neighbours="auto",
            seed=settings.seed,
        )

    X, Y = data.X_train, data.Y_train
    if not spec.auto:
        return inside(X, Y), ""
    limit = seconds and seconds * _OF_LABELS
    choice = choose_label_kernel(X, Y, likelihood, seed=settings.seed, seconds=limit)
    kernel, name = choice.kernel, choice.name
    if not choice.normal_scores:
        return inside(X, Y), name
    return Standardized(inside, (X, Y), normal_scores=True), f"{name} of ranks"


def _build(
    spec: Spec, data: Data, settings: Settings, seconds: float | None
) -> tuple[Standardized, str]:
    """The model, and the name of its kernel where that was chosen.

    Unlike `build` for any number of rows, and for any number of neighbours.
    """
    X, Y = data.X_train, data.Y_train
    kernel, noise, name, ranks = default_kernel(X.shape[1]), _NOISE, "", False
    predicting, spread = PREDICTION_NEIGHBOURS, SPREAD_NEIGHBOURS
    if spec.auto:
        choice = choose_kernel(X, Y, seed=settings.seed, seconds=seconds)
        kernel, noise, ranks = choice.kernel, choice.noise_variance, choice.normal_scores
        name = f"{choice.name} of ranks" if ranks else choice.name
        predicting, spread = choice.prediction_neighbours, choice.spread_neighbours

    def inside(X: np.ndarray, Y: np.ndarray) -> NNGP:
        return NNGP(
            (X, Y),
            kernel,
            gpflow.likelihoods.Gaussian(noise),
            num_neighbours=spec.num_beta,
            prediction_neighbours=predicting,
            spread_neighbours=spread,
            seed=settings.seed,
        )

    return Standardized(inside, (X, Y), normal_scores=ranks), name
