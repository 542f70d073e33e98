"""GPBoost's Vecchia approximation of a GP, where GPBoost is installed."""

from __future__ import annotations

__all__ = ["missing", "train_vecchia"]

import importlib.util
import time
from collections.abc import Sequence

import numpy as np

from ..harness.data import Data
from ..harness.metrics import gaussian_scores
from ..harness.records import Record, Snapshot
from .models import Settings, Spec


def missing() -> str:
    """Why GPBoost cannot be used here, as a sentence with the fix; empty if it can be used."""
    if importlib.util.find_spec("gpboost"):
        return ""
    return 'GPBoost is not installed. Install it by pip install "gpflow_decoupled[gpboost]".'


def train_vecchia(spec: Spec, data: Data, targets: Sequence[float], settings: Settings) -> Record:
    """Train with GPBoost's default optimizer until it stops by itself.

    `num_beta` neighbours, and its full-scale approximation where there are `num_gamma` inducing
    points. It has no limit of time, so that every target has the same metrics, and `seconds` says
    what they took; the note has the seconds of predictions. It refuses constant columns, which are
    left out."""
    import gpboost

    wall, processor = time.perf_counter(), time.process_time()
    varying = np.ptp(data.X_train, axis=0) > 0.0
    inducing = {"num_ind_points": spec.num_gamma} if spec.num_gamma else {}
    model = gpboost.GPModel(
        likelihood="gaussian",
        gp_coords=data.X_train[:, varying],
        cov_function="matern_ard",
        cov_fct_shape=spec.smoothness,
        gp_approx="full_scale_vecchia" if inducing else "vecchia",
        num_neighbors=spec.num_beta,
        seed=settings.seed,
        **inducing,
    )
    model.fit(y=data.Y_train[:, 0])
    seconds, cpu = time.perf_counter() - wall, time.process_time() - processor
    before = time.perf_counter()
    found = model.predict(
        gp_coords_pred=data.X_test[:, varying], predict_var=True, predict_response=True
    )
    note = f"{len(data.X_test)} predictions in {time.perf_counter() - before:.1f} s"
    mean, variance = (np.asarray(found[name])[:, None] for name in ("mu", "var"))
    metrics = gaussian_scores(mean, variance, data.Y_test)
    snapshots = [Snapshot(target, seconds, cpu, 1, metrics=metrics) for target in targets]
    return Record(data.name, spec.name, spec.library, 0.0, 1e3 * seconds, snapshots, note)
