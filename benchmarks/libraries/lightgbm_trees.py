"""LightGBM's gradient-boosted trees, where LightGBM is installed."""

from __future__ import annotations

__all__ = ["missing", "train_lightgbm"]

import importlib.util
import os
from collections.abc import Sequence

import numpy as np

from ..harness.data import Data
from ..harness.records import Record
from .boosted_trees import Trees, record_of
from .models import Settings, Spec

_RATE = 0.05
"""Half of LightGBM's default step: it takes twice the iterations and errs less."""
_PATIENCE = 50
"""Iterations without gain on held-out rows before it stops."""


def missing() -> str:
    """Why LightGBM cannot be used here, as a sentence with the fix; empty if it can be used."""
    if importlib.util.find_spec("lightgbm"):
        return ""
    return 'LightGBM is not installed. Install it by pip install "gpflow_decoupled[lightgbm]".'


def train_lightgbm(spec: Spec, data: Data, targets: Sequence[float], settings: Settings) -> Record:
    """Train like scikit-learn's trees, see `record_of`, for at most `num_beta` iterations, with
    half of LightGBM's default learning rate and its defaults otherwise.
    """
    import lightgbm

    options = {
        "objective": "regression",
        "learning_rate": _RATE,
        "seed": settings.seed,
        "num_threads": int(os.environ.get("OMP_NUM_THREADS", 0)),  # 0: all cores
        "verbosity": -1,
    }

    def until_no_gain(
        X: np.ndarray, y: np.ndarray, X_held: np.ndarray, y_held: np.ndarray
    ) -> tuple[Trees, int]:
        rows = lightgbm.Dataset(X, y)
        stop = lightgbm.early_stopping(_PATIENCE, verbose=False)
        held = lightgbm.Dataset(X_held, y_held, reference=rows)
        trees = lightgbm.train(options, rows, spec.num_beta, valid_sets=[held], callbacks=[stop])
        return trees, trees.best_iteration

    def for_iterations(X: np.ndarray, y: np.ndarray, iterations: int) -> Trees:
        return lightgbm.train(options, lightgbm.Dataset(X, y), iterations)

    return record_of(spec, data, targets, settings, until_no_gain, for_iterations)
