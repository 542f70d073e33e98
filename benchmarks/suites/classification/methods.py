"""Trains one classifier on one split of a task: a Gaussian process, a network, or a baseline of
scikit-learn.
"""

from __future__ import annotations

__all__ = ["NETWORK", "Outcome", "is_process", "measure"]

import argparse
from collections.abc import Sequence
from contextlib import nullcontext
from typing import NamedTuple

import numpy as np

from ...harness.data import Data, load
from ...harness.machine import counts_processor_seconds, training_clock
from ...harness.metrics import classification_scores
from ...libraries.models import Settings, parse
from ...libraries.scikit_learn import BASELINES, train_baseline
from ...libraries.selu_network import train_network
from ...libraries.training import train

NETWORK = "network"
_NETWORK_SECONDS = 60.0
"""Training time of the network where there is no Gaussian process beside it."""
_DOUBT = 1e-3
"""Probability that all classes share. It is added where a library gives some class none; robust
maximum has it built in.
"""


class Outcome(NamedTuple):
    """One model on one split of a task."""

    task: str
    split: int
    model: str
    num_data: int
    num_inputs: int
    num_classes: int
    accuracy: float
    log_loss: float
    """nats per test row"""
    elbo: float
    """nats, all training rows; NaN where there is none"""
    seconds: float
    """of training: processor seconds with one thread, else wall-clock seconds"""
    steps: int
    note: str


def is_process(model: str) -> bool:
    """Whether the name of a model is that of a Gaussian process."""
    return model != NETWORK and model not in BASELINES


def measure(
    options: argparse.Namespace, task: str, split: int, model: str, earlier: Sequence[Outcome]
) -> list[Outcome]:
    """Train one model.

    :param earlier: the models before it. The network is given as many seconds as the slowest
        Gaussian process on the same split took, unless the options say how many.
    """
    data = load(task, split, options.data).classes()
    start = data.name, split, model, *data.X_train.shape, data.num_classes
    if is_process(model):
        return [Outcome(*start, *_process(data, model, options))]
    steps, note = 0, ""
    if model == NETWORK:
        others = [
            one.seconds
            for one in earlier
            if (one.task, one.split) == (task, split) and is_process(one.model)
        ]
        limit = options.network_seconds or max(others, default=_NETWORK_SECONDS)
        chances, seconds, steps, note = train_network(
            data, options.network_depths, limit, options.seed
        )
    else:
        chances, seconds = train_baseline(model, data, options.seed)
    scores = classification_scores(data.Y_test, _doubted(chances))
    return [
        Outcome(*start, scores["accuracy"], scores["log_loss"], float("nan"), seconds, steps, note)
    ]


def _process(
    data: Data, model: str, options: argparse.Namespace
) -> tuple[float, float, float, float, int, str]:
    """Accuracy, log loss, bound, seconds, steps and note of a Gaussian process."""
    timed = options.seconds is not None
    settings = Settings(
        options.batch_size,
        options.learning_rate,
        options.natural_gradient,
        seed=options.seed,
        multiclass=options.likelihood,
        budgets=(float(options.seconds if timed else options.steps),),
        unit="seconds" if timed else "steps",
        dtype="float32" if options.float32 else "float64",
    )
    with training_clock() if timed else nullcontext():
        record = train(parse(model), data, settings.budgets, settings)
    end = record.snapshots[-1]
    accuracy, loss, elbo = (
        end.metrics.get(name, float("nan")) for name in ("accuracy", "log_loss", "elbo")
    )
    seconds = end.cpu_seconds if counts_processor_seconds() else end.seconds
    return accuracy, loss, elbo, seconds, end.step, record.note


def _doubted(chances: np.ndarray) -> np.ndarray:
    """Probabilities [N, C] without zeros."""
    return (1.0 - _DOUBT) * chances + _DOUBT / chances.shape[1]
