"""GPJax as a peer, in an environment and a process of its own: GPJax 1.0 needs NumPy 2, which
GPflow does not take.

`train_gpjax` starts `worker.py` with the Python that `--gpjax-python` or the environment variable
GPJAX_PYTHON names. Arrays go through .npz files in a temporary folder, and the worker answers in
JSON. The README of the benchmarks says how to make that environment. Without one the models of
GPJax are left out of a run."""

from __future__ import annotations

__all__ = ["missing", "train_gpjax"]

import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...harness.data import Data
from ...harness.machine import counts_processor_seconds
from ...harness.metrics import gaussian_scores
from ...harness.processes import run_script
from ...harness.records import Record, Snapshot
from ..models import Settings, Spec, points

_VARIABLE = "GPJAX_PYTHON"
_WORKER = Path(__file__).with_name("worker.py")
_ONE_THREAD = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"}


def missing() -> str:
    """Why GPJax cannot be used here, as a sentence with the fix; empty if it can be used."""
    python = os.environ.get(_VARIABLE, "")
    fix = (
        f"Name the Python of an environment that has GPJax by --gpjax-python or {_VARIABLE}; see"
        " benchmarks/README.md."
    )
    if not python:
        return f"GPJax runs in an environment of its own, and none is named. {fix}"
    return (
        ""
        if shutil.which(python)
        else f"GPJax runs in an environment of its own, and there is no {python}. {fix}"
    )


def train_gpjax(spec: Spec, data: Data, targets: Sequence[float], settings: Settings) -> Record:
    """Train GPJax's whitened SVGP in float64 until the last of `targets`, and evaluate it at each
    of them.

    Natural gradients train q, and Adam the rest; with `-adam` after the name, Adam trains
    everything."""
    request = {
        "targets": list(targets),
        "unit": settings.unit,
        "batch_size": settings.batch_size,
        "learning_rate": settings.learning_rate,
        "natural_gradient": settings.step_of(spec.num_beta, data) if spec.natural else None,
        "noise": settings.noise,
        "seed": settings.seed,
    }
    arrays = {"X_train": data.X_train, "Y_train": data.Y_train, "X_test": data.X_test}
    arrays["beta"], _ = points(spec, data, settings)
    answer, predictions = _ask(request, arrays)
    snapshots = [Snapshot(**one) for one in answer["snapshots"]]
    for one, mean, variance in zip(snapshots, predictions["mean"], predictions["variance"]):
        one.metrics |= gaussian_scores(mean, variance, data.Y_test)
    note = ", ".join(f"{name} {version}" for name, version in answer["versions"].items())
    return Record(
        data.name,
        spec.name,
        spec.library,
        answer["compile_seconds"],
        answer["ms_per_step"],
        snapshots,
        note,
    )


def _ask(
    request: dict[str, Any], arrays: dict[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Hand a request to the worker; its answer and its predictions."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        np.savez(folder / "request.npz", **arrays)
        (folder / "request.json").write_text(json.dumps(request))
        threads = _ONE_THREAD if counts_processor_seconds() else {}
        answer = run_script(_WORKER, [str(folder)], os.environ[_VARIABLE], threads)
        with np.load(folder / "answer.npz") as file:
            return answer, dict(file)
