"""This package as the benchmarks use it: what depends on its optimizers and on `fit` is here."""

from __future__ import annotations

__all__ = ["build_large", "fit_step", "natural_step", "train_ours", "whole_step"]

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.keras import tf_keras

from gpflow_decoupled import fit
from gpflow_decoupled.errors import NumericalError
from gpflow_decoupled.models import ODVGP
from gpflow_decoupled.optimizers import NaturalGradient, StochasticDualDescent
from gpflow_decoupled.training import Callbacks, Schedule
from gpflow_decoupled.training.batches import ArrayBatches
from gpflow_decoupled.training.stages.minibatches import Minibatches

from ..harness.data import Data
from ..harness.records import Record, Recorder
from .models import HELD, ON_DATA, Settings, Spec, build, precision
from .tensorflow_tools import minibatches, recorder_for, scores

_DESCENT = StochasticDualDescent(epochs=4, correct_every=4)
"""One round per solve: a whole product, four passes over the rows, and the product that certifies
the gap.
"""


def train_ours(spec: Spec, data: Data, targets: Sequence[float], settings: Settings) -> Record:
    """Train one of our models by `fit`, once for every budget of `settings`, and evaluate it
    afterwards.

    `fit` lets its step sizes fall towards the end of its time, so that each budget needs a run of
    its own. The run of the largest budget also gives the curve at `targets`. A run that fails has
    no metrics at its end."""
    with precision(settings.dtype):
        return _train(spec, data.cast(settings.dtype), targets, settings)


def _train(spec: Spec, data: Data, targets: Sequence[float], settings: Settings) -> Record:
    snapshots, shortened, failures = [], 0, ""
    for budget in sorted(settings.budgets):
        model = build(spec, data, settings)
        longest = budget == max(settings.budgets)
        before = [target for target in targets if longest and target < budget]
        recorder = recorder_for(model, [*before, math.inf], settings.unit)  # inf: the end
        failed = False
        try:
            result = fit(
                model,
                (data.X_train, data.Y_train),
                **_options(spec, data, settings, budget, recorder),
            )
        except NumericalError as error:
            result, failed = error.result, True
            failures = f"failed in step {result.steps + 1}"
        snapshots += recorder.finish(
            lambda model=model: scores(model, data), result.history.get("seconds"), failed
        )
        snapshots[-1].target, snapshots[-1].final = budget, True
        if not failed:
            snapshots[-1].metrics.setdefault("elbo", result.elbo)
        shortened += result.shortened_steps
    note = failures or (f"{shortened} shortened steps" if shortened else "")
    ms = 1e3 * result.seconds / max(result.steps, 1)
    return Record(data.name, spec.name, spec.library, result.compile_seconds, ms, snapshots, note)


def _options(
    spec: Spec, data: Data, settings: Settings, budget: float, recorder: Recorder
) -> dict[str, Any]:
    """The options of `fit`."""
    start = {"initialize": "auto" if spec.start else None}
    if spec.family in ON_DATA:
        seconds = {settings.unit: int(budget) if settings.unit == "steps" else budget}
        return {
            **seconds,
            **start,
            "mean_solver": _DESCENT if spec.family == "descent" else None,
            "seed": settings.seed,
            "progress": False,
            "callbacks": Callbacks([recorder], every=1),
        }
    natural = (
        spec.natural and spec.family != "decoupled"
    )  # whose covariance has no natural parameters
    return {
        **start,
        settings.unit: int(budget) if settings.unit == "steps" else budget,
        "batch_size": min(settings.batch_size, len(data.X_train)),
        "learning_rate": settings.learning_rate,
        "natural_gradient": settings.step_of(spec.num_beta, data) if natural else None,
        "optimizer": "lbfgs" if spec.family == "lbfgs" else None,
        "hold": spec.family if spec.family in HELD else None,
        "schedule": Schedule(anneal=settings.anneal),
        "seed": settings.seed,
        "progress": False,
        "callbacks": Callbacks([recorder], every=1),
    }


def natural_step(
    model: gpflow.models.GPModel, data: Data, settings: Settings
) -> Callable[[], object]:
    """One compiled natural-gradient step on a minibatch gathered in the graph."""
    natural_gradient = NaturalGradient(settings.step_of(model.basis.sizes["beta"], data))
    draw = minibatches(data, settings)
    return tf.function(lambda: natural_gradient.minimize(model, draw()), autograph=False)


def build_large(
    gamma: np.ndarray, beta: np.ndarray, num_data: int, subsample: int
) -> gpflow.models.GPModel:
    """An ODVGP for very many mean points: diagonal scaling and a sampled divergence, so that
    nothing is M_gamma x M_gamma.

    :param subsample: mean points that the divergence is estimated from in each step.
    """
    kernel = gpflow.kernels.Matern52(lengthscales=np.ones(beta.shape[1]))
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    return ODVGP(
        kernel,
        likelihood,
        gamma,
        beta,
        num_data=num_data,
        mean_scaling="diagonal",
        mean_subsample=subsample,
    )


def whole_step(
    model: gpflow.models.GPModel,
    data: Data,
    settings: Settings,
    hold_sites: bool,
    mixed: bool = False,
) -> Callable[[], object]:
    """The compiled step of `fit` on random rows: one pass, then a natural gradient for q and Adam
    for the rest.

    :param hold_sites: whether the sites of q stay the same while the kernel changes, as `fit` does
        by default.
    :param mixed: products with rows of data in float32.
    """
    step = _training_step(model, data, settings, hold_sites, mixed=mixed)
    draw, seed = minibatches(data, settings), tf.constant([settings.seed, 0])
    return tf.function(lambda: step.step(*draw(), seed), autograph=False)


def fit_step(model: gpflow.models.GPModel, data: Data, settings: Settings) -> Callable[[], object]:
    """The same step on the minibatches of `fit`, which shuffles all rows once per epoch."""
    step = _training_step(model, data, settings, hold_sites=True, compile=True)
    batches = ArrayBatches(
        *map(tf.constant, (data.X_train, data.Y_train)), settings.batch_size, settings.seed
    )
    number, seed = itertools.count(), tf.constant([settings.seed, 0])
    step.prepare(*batches(0), seed)
    return lambda: step.step(*batches(next(number)), seed)


def _training_step(
    model: gpflow.models.GPModel,
    data: Data,
    settings: Settings,
    hold_sites: bool,
    compile: bool = False,
    mixed: bool = False,
) -> Minibatches:
    return Minibatches(
        model,
        NaturalGradient(settings.step_of(model.basis.sizes["beta"], data)),
        tf_keras.optimizers.Adam(settings.learning_rate),
        tf_keras.optimizers.Adam(0.03),
        compile=compile,
        hold_sites=hold_sites,
        low=tf.float32 if mixed else None,
    )
