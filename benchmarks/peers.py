"""GPflow trained as its careful user would: one compiled step, whitened SVGP, natural gradients and Adam.

Rows are gathered in the graph. GPyTorch and GPJax, where they are installed, are in files of their own.
"""

from __future__ import annotations

__all__ = ["GPflowSteps", "gpflow_steps", "minibatches", "recorder_for", "scores", "train_gpflow"]

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gpflow
import tensorflow as tf
from gpflow.keras import tf_keras

from gpflow_decoupled.training.schedules import annealed, ramped

from .data import Data
from .metrics import elbo, evaluate, evaluate_classes
from .models import Settings, Spec, build
from .records import Record, Recorder

_RAMP_STEPS = 10
"""The natural-gradient step grows geometrically in so many steps."""
_ANNEAL = 0.2
"""Share of a run of known length over which all step sizes fall, as in `fit`."""


class GPflowSteps(NamedTuple):
    """The compiled steps of GPflow's own optimisers on one SVGP; each draws its own minibatch."""

    natural: Callable[[], None]
    adam: Callable[[], None]
    both: Callable[[], None]
    gamma: tf.Variable
    """step of the natural gradient"""
    rate: tf.Variable
    """step of Adam"""


def minibatches(data: Data, settings: Settings) -> Callable[[], tuple[tf.Tensor, tf.Tensor]]:
    """A function that gathers `batch_size` random rows in the graph: 0.1 ms, where tf.data costs 2.8 ms."""
    dtype = gpflow.default_float()
    X, Y = tf.constant(data.X_train, dtype), tf.constant(data.Y_train, dtype)
    generator = tf.random.Generator.from_seed(settings.seed)
    size, count = min(settings.batch_size, len(data.X_train)), len(data.X_train)

    def draw() -> tuple[tf.Tensor, tf.Tensor]:
        rows = generator.uniform([size], 0, count, tf.int32)
        return tf.gather(X, rows), tf.gather(Y, rows)

    return draw


def gpflow_steps(model: gpflow.models.SVGP, data: Data, settings: Settings, natural_q: bool = True) -> GPflowSteps:
    """One tf.function an optimiser and one for both; Adam moves kernel, noise and inducing inputs, and q too where natural
    gradients are not to.
    """
    gpflow.set_trainable(model.q_mu, not natural_q)
    gpflow.set_trainable(model.q_sqrt, not natural_q)
    gamma = tf.Variable(settings.natural_gradient, dtype=gpflow.default_float(), trainable=False)
    natural_gradient = gpflow.optimizers.NaturalGradient(gamma)
    adam = tf_keras.optimizers.Adam(settings.learning_rate)
    adam.build(model.trainable_variables)  # so that no step is traced twice
    draw, variables, q = minibatches(data, settings), model.trainable_variables, [(model.q_mu, model.q_sqrt)]

    def natural() -> None:
        batch = draw()
        natural_gradient.minimize(lambda: model.training_loss(batch), q)

    def hyperparameters() -> None:
        batch = draw()
        adam.minimize(lambda: model.training_loss(batch), variables)

    def both() -> None:
        batch = draw()
        natural_gradient.minimize(lambda: model.training_loss(batch), q)
        adam.minimize(lambda: model.training_loss(batch), variables)

    parts = natural, hyperparameters, both if natural_q else hyperparameters
    return GPflowSteps(*map(tf.function, parts), gamma, adam.learning_rate)


def recorder_for(model: tf.Module, targets: Sequence[float], unit: str = "seconds") -> Recorder:
    """A recorder that copies and restores every variable of a TensorFlow module."""
    return Recorder(
        targets,
        read=lambda: [(variable, variable.numpy()) for variable in model.variables],
        write=lambda state: [variable.assign(value) for variable, value in state],
        unit=unit,
    )


def train_gpflow(spec: Spec, data: Data, targets: Sequence[float], settings: Settings) -> Record:
    """Train GPflow's SVGP until the last of `targets`; evaluate it afterwards at each of them.

    Step sizes fall at the end of a given number of steps as those of `fit` do; within given seconds they stay.
    """
    model = build(spec, data, settings)
    steps = gpflow_steps(model, data, settings, spec.natural)
    recorder = recorder_for(model, targets, settings.unit)
    start = time.perf_counter()
    steps.both.get_concrete_function()
    compile_seconds = time.perf_counter() - start
    recorder.start()
    note = ""
    while not recorder.done and not note:
        factor = annealed(recorder.step / max(targets), _ANNEAL) if settings.unit == "steps" else 1.0
        steps.gamma.assign(factor * ramped(recorder.step, settings.natural_gradient, _RAMP_STEPS))
        steps.rate.assign(factor * settings.learning_rate)
        try:
            steps.both()
        except tf.errors.InvalidArgumentError:  # a factorisation, or a parameter that is NaN
            note = f"failed in step {recorder.step + 1}"
        else:
            recorder()
    ms = recorder.ms_per_step
    snapshots = recorder.finish(lambda: scores(model, data), failed=bool(note))
    return Record(data.name, spec.name, spec.library, compile_seconds, ms, snapshots, note)


def scores(model: Any, data: Data) -> dict[str, float]:
    """All metrics of a GPflow model, of its classes where it has some."""
    measure = evaluate_classes if data.num_classes else evaluate
    return {**measure(model, data), "elbo": elbo(model, data)}
