"""Our nearest-neighbour GP, with the settings of `gd.build`."""

from __future__ import annotations

__all__ = ["train_neighbours"]

import time
from collections.abc import Sequence
from typing import NamedTuple

import gpflow

from gpflow_decoupled import fit
from gpflow_decoupled.building import default_kernel
from gpflow_decoupled.building.choice import PREDICTION_NEIGHBOURS
from gpflow_decoupled.building.kernels import choose_kernel
from gpflow_decoupled.errors import NumericalError
from gpflow_decoupled.models import NNGP

from ..harness.data import Data
from ..harness.metrics import evaluate
from ..harness.records import Record, Snapshot
from .models import Settings, Spec, precision

_NOISE = 0.1
"""The first noise variance, that of `choose_kernel`."""
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
    neighbours count. The note has the seconds of predictions, which the search takes."""
    with precision(settings.dtype):
        cast = data.cast(settings.dtype)
        runs = [_run(spec, cast, budget, settings) for budget in sorted(settings.budgets)]
    longest = runs[-1].snapshot
    ms = 1e3 * longest.seconds / max(longest.step, 1)
    snapshots = [one.snapshot for one in runs]
    return Record(data.name, spec.name, spec.library, 0.0, ms, snapshots, runs[-1].note)


def _run(spec: Spec, data: Data, budget: float, settings: Settings) -> _Run:
    wall, processor = time.perf_counter(), time.process_time()
    model, chosen = _build(spec, data, settings)
    steps, left = None, None
    if settings.unit == "steps":
        steps = int(budget)
    else:
        left = max(_LEAST_SECONDS, budget - (time.perf_counter() - wall))
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
        snapshot.metrics = evaluate(model, data)
        # `evaluate` predicts every row twice: y, and its log density
        each = (time.perf_counter() - before) / 2
        notes.append(f"{len(data.X_test)} predictions in {each:.1f} s")
    return _Run(snapshot, "; ".join(notes))


def _build(spec: Spec, data: Data, settings: Settings) -> tuple[NNGP, str]:
    """The model, and the name of its kernel where that was chosen."""
    X, Y = data.X_train, data.Y_train
    if spec.auto:
        choice = choose_kernel(X, Y, seed=settings.seed)
        kernel, noise, name = choice.kernel, choice.noise_variance, choice.name
    else:
        kernel, noise, name = default_kernel(X.shape[1]), _NOISE, ""
    model = NNGP(
        (X, Y),
        kernel,
        gpflow.likelihoods.Gaussian(noise),
        num_neighbours=spec.num_beta,
        prediction_neighbours=PREDICTION_NEIGHBOURS,
        seed=settings.seed,
    )
    return model, name
