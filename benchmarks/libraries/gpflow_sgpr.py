"""GPflow's SGPR: kernel, noise and inducing points by L-BFGS on the collapsed bound of all data."""

from __future__ import annotations

__all__ = ["train_sgpr"]

from collections.abc import Sequence

import gpflow
import numpy as np

from ..harness.data import Data
from ..harness.metrics import evaluate
from ..harness.records import Record
from .models import Settings, Spec, kernel_and_likelihood, points
from .tensorflow_tools import recorder_for


def train_sgpr(spec: Spec, data: Data, targets: Sequence[float], settings: Settings) -> Record:
    """Train until the last of `targets`, in seconds or iterations, and evaluate at each of them; one run for all budgets."""
    kernel, likelihood = kernel_and_likelihood(data, settings)
    beta, _ = points(spec, data, settings)
    model = gpflow.models.SGPR(
        (data.X_train, data.Y_train), kernel, beta, noise_variance=float(likelihood.variance.numpy())
    )
    recorder = recorder_for(model, targets, settings.unit)

    def after_iteration(*_: object) -> None:
        recorder()
        if recorder.done:
            raise StopIteration

    recorder.start()
    variables = model.trainable_variables
    result = gpflow.optimizers.Scipy().minimize(
        model.training_loss, variables, step_callback=after_iteration, options={"maxiter": 10**6, "maxfun": 10**6}
    )
    ended = "" if recorder.done else f"ended by itself: {result.message}"
    ms = recorder.ms_per_step

    def scores() -> dict[str, float]:
        return {**evaluate(model, data), "elbo": float(np.asarray(model.elbo()))}

    return Record(data.name, spec.name, spec.library, 0.0, ms, recorder.finish(scores), ended)
