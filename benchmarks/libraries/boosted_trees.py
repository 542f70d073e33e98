"""scikit-learn's gradient-boosted trees with their default settings, for regression."""

from __future__ import annotations

__all__ = ["Trees", "record_of", "train_trees"]

import time
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from ..harness.data import Data
from ..harness.metrics import gaussian_scores
from ..harness.records import Record, Snapshot
from .models import Settings, Spec

_HELD_OUT = 0.1


class Trees(Protocol):
    """Trained trees."""

    def predict(self, X: np.ndarray) -> np.ndarray: ...


def train_trees(spec: Spec, data: Data, targets: Sequence[float], settings: Settings) -> Record:
    """Train with scikit-learn's default settings, see `record_of`, for at most `num_beta`
    iterations.
    """

    def until_no_gain(
        X: np.ndarray, y: np.ndarray, X_held: np.ndarray, y_held: np.ndarray
    ) -> tuple[Trees, int]:
        trees = HistGradientBoostingRegressor(
            max_iter=spec.num_beta,
            early_stopping=True,
            n_iter_no_change=20,
            validation_fraction=_HELD_OUT,
            random_state=settings.seed,
        ).fit(X, y)
        return trees, trees.n_iter_

    def for_iterations(X: np.ndarray, y: np.ndarray, iterations: int) -> Trees:
        return HistGradientBoostingRegressor(
            max_iter=iterations, early_stopping=False, random_state=settings.seed
        ).fit(X, y)

    return record_of(spec, data, targets, settings, until_no_gain, for_iterations)


def record_of(
    spec: Spec,
    data: Data,
    targets: Sequence[float],
    settings: Settings,
    until_no_gain: Callable[..., tuple[Trees, int]],
    for_iterations: Callable[[np.ndarray, np.ndarray, int], Trees],
) -> Record:
    """Train twice: until a tenth of the training rows, which is held out, gains no more, and then
    on all rows for as many iterations.

    The variance of predictions is that of the residuals of the first run on the held-out rows.
    Their seconds are their own, so that every target has the same metrics.

    :param until_no_gain: (X, y, held-out X, held-out y) -> trees and their number of iterations.
    :param for_iterations: (X, y, iterations) -> trees.
    """
    order = np.random.default_rng(settings.seed).permutation(len(data.X_train))
    held, kept = np.split(order, [max(1, round(_HELD_OUT * len(order)))])
    X, y = data.X_train, data.Y_train[:, 0]
    wall, processor = time.perf_counter(), time.process_time()
    first, iterations = until_no_gain(X[kept], y[kept], X[held], y[held])
    variance = float(np.mean(np.square(y[held] - first.predict(X[held]))))
    trees = for_iterations(X, y, iterations)
    seconds, cpu = time.perf_counter() - wall, time.process_time() - processor
    mean = trees.predict(data.X_test)[:, None]
    metrics = gaussian_scores(mean, np.full_like(mean, variance), data.Y_test)
    snapshots = [Snapshot(target, seconds, cpu, iterations, metrics=metrics) for target in targets]
    note = f"{iterations} iterations in {seconds:.1f} s"
    return Record(
        data.name, spec.name, spec.library, 0.0, 1e3 * seconds / iterations, snapshots, note
    )
