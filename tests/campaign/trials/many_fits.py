"""Many fits in one process: nothing piles up, and the last is as good as the first."""

from __future__ import annotations

__all__ = ["PART"]

import gc
import os
import sys
from pathlib import Path

import gpflow
import numpy as np

import gpflow_decoupled as gd

from ..outcome import Case, Outcome, Part

FITS = 25
LIMITS = {"eager": 1.0, "compiled": 25.0}
"""Megabytes a fit: eager ones leave nothing, and of a compiled one TensorFlow keeps its graph."""
KINDS = (
    ("new models", "eager"),
    ("one model", "eager"),
    ("new models", "compiled"),
    ("one model", "compiled"),
)


def run(case: Case) -> Outcome:
    """25 fits of new models or of one, eager or compiled."""
    models, how = KINDS[case.number % len(KINDS)]
    rng = case.generator()
    X = rng.uniform(size=(5_000, 1))
    data = X, np.sin(6.0 * X) + 0.1 * rng.normal(size=X.shape)
    options = {"steps": 2, "batch_size": 50, "progress": False, "compile": how == "compiled"}
    model, sizes, bounds = _model(X), [], []
    for _ in range(FITS):
        model = model if models == "one model" else _model(X)
        bounds.append(gd.fit(model, data, **options).history["elbo"][-1])
        sizes.append(_megabytes())
    warm = 5  # what TensorFlow loads once
    growth = (sizes[-1] - sizes[warm]) / (FITS - 1 - warm)
    outcome = Outcome(
        f"{FITS} fits of {models}, {how}", figures={f"MB a fit, {models}, {how}": growth}
    )
    if growth > LIMITS[how]:
        outcome.complaints.append(
            f"every fit keeps {growth:.1f} MB: {[round(size) for size in sizes]}"
        )
    if models == "new models" and len(set(bounds)) > 1:
        outcome.complaints.append(
            f"the same fit gave {len(set(bounds))} bounds, from {min(bounds)} to {max(bounds)}"
        )
    if not np.all(np.isfinite(bounds)):
        outcome.complaints.append("a bound is not finite")
    return outcome


def _model(X: np.ndarray) -> gd.models.ODVGP:
    kernel, points = gpflow.kernels.Matern52(lengthscales=0.3), np.linspace(0.0, 1.0, 12)[:, None]
    return gd.models.ODVGP(kernel, gpflow.likelihoods.Gaussian(0.1), points[1::2], points[::2])


def _megabytes() -> float:
    """Resident memory of this process."""
    gc.collect()
    if not sys.platform.startswith("linux"):
        return 0.0
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


PART = Part("many_fits", f"blocks of {FITS} fits in one process", 4, run, seconds=900, alone=True)
