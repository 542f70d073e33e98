"""scikit-learn's gradient-boosted trees with their default settings, for regression."""

from __future__ import annotations

__all__ = ["train_trees"]

import time
from collections.abc import Sequence

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from ..harness.data import Data
from ..harness.metrics import gaussian_scores
from ..harness.records import Record, Snapshot
from .models import Settings, Spec

_HELD_OUT = 0.1


def train_trees(spec: Spec, data: Data, targets: Sequence[float], settings: Settings) -> Record:
    """Train until a tenth of the training rows, which is held out, gains no more, or for `num_beta`
    iterations.

    Their seconds are their own, so that every target has the same metrics. The variance of
    predictions is that of the residuals on rows that were held out in a first run; the second one
    is trained on all rows."""
    order = np.random.default_rng(settings.seed).permutation(len(data.X_train))
    held, kept = np.split(order, [max(1, round(_HELD_OUT * len(order)))])
    wall, processor = time.perf_counter(), time.process_time()
    first = HistGradientBoostingRegressor(
        max_iter=spec.num_beta,
        early_stopping=True,
        n_iter_no_change=20,
        validation_fraction=_HELD_OUT,
        random_state=settings.seed,
    ).fit(data.X_train[kept], data.Y_train[kept, 0])
    variance = float(np.mean(np.square(data.Y_train[held, 0] - first.predict(data.X_train[held]))))
    trees = HistGradientBoostingRegressor(
        max_iter=first.n_iter_, early_stopping=False, random_state=settings.seed
    )
    trees.fit(data.X_train, data.Y_train[:, 0])
    seconds, cpu = time.perf_counter() - wall, time.process_time() - processor
    mean = trees.predict(data.X_test)[:, None]
    metrics = gaussian_scores(mean, np.full_like(mean, variance), data.Y_test)
    snapshots = [
        Snapshot(target, seconds, cpu, first.n_iter_, metrics=metrics) for target in targets
    ]
    note = f"{first.n_iter_} iterations in {seconds:.1f} s"
    return Record(
        data.name, spec.name, spec.library, 0.0, 1e3 * seconds / first.n_iter_, snapshots, note
    )
