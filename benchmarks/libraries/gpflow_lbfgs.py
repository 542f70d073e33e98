"""GPflow's SGPR, CGLB and GPR: everything that is trainable by L-BFGS, on a collapsed bound or on
the evidence of all data.
"""

from __future__ import annotations

__all__ = ["train_by_lbfgs"]

from collections.abc import Sequence

import gpflow
import numpy as np

from ..harness.data import Data
from ..harness.metrics import evaluate
from ..harness.records import Record
from .models import Settings, Spec, kernel_and_likelihood, points
from .tensorflow_tools import recorder_for

_STORED_ROWS = 10_000
"""The most rows whose kernel matrix, with what its gradient needs, CGLB may store: some 5 GB."""


def train_by_lbfgs(spec: Spec, data: Data, targets: Sequence[float], settings: Settings) -> Record:
    """Train until the last of `targets`, in seconds or iterations, and evaluate at each of them;
    one run for all budgets.
    """
    kernel, likelihood = kernel_and_likelihood(data, settings)
    rows, noise = (data.X_train, data.Y_train), float(likelihood.variance.numpy())
    most = {"gpr": spec.num_beta, "cglb": _STORED_ROWS}.get(spec.family, len(data.X_train))
    if len(data.X_train) > most:
        raise ValueError(
            f"{spec.name} is for up to {most} rows, and {data.name} has {len(data.X_train)}."
        )
    if spec.family == "gpr":
        model = gpflow.models.GPR(rows, kernel, noise_variance=noise)
    else:
        sparse = gpflow.models.CGLB if spec.family == "cglb" else gpflow.models.SGPR
        model = sparse(rows, kernel, points(spec, data, settings)[0], noise_variance=noise)
    recorder = recorder_for(model, targets, settings.unit)

    def after_iteration(*_: object) -> None:
        recorder()
        if recorder.done:
            raise StopIteration

    recorder.start()
    variables = model.trainable_variables
    result = gpflow.optimizers.Scipy().minimize(
        model.training_loss,
        variables,
        step_callback=after_iteration,
        compile=spec.family
        != "cglb",  # its conjugate gradients start from a Parameter, which `tf.while_loop` refuses
        options={"maxiter": 10**6, "maxfun": 10**6},
    )
    ended = "" if recorder.done else f"ended by itself: {result.message}"
    ms = recorder.ms_per_step

    def scores() -> dict[str, float]:
        return {**evaluate(model, data), "elbo": -float(np.asarray(model.training_loss()))}

    return Record(data.name, spec.name, spec.library, 0.0, ms, recorder.finish(scores), ended)
