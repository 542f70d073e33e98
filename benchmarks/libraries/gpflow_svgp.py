"""GPflow's SVGP, trained as a careful user of GPflow would: one compiled step of its natural
gradients and of Adam.
"""

from __future__ import annotations

__all__ = ["GPflowSteps", "gpflow_steps", "train_gpflow"]

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import gpflow
import tensorflow as tf
from gpflow.keras import tf_keras

from gpflow_decoupled.training.schedules import annealed, ramped

from ..harness.data import Data
from ..harness.records import Record
from .models import Settings, Spec, build
from .tensorflow_tools import minibatches, recorder_for, scores

_RAMP_STEPS = 10
"""Steps over which the natural-gradient step grows geometrically to its size."""


class GPflowSteps(NamedTuple):
    """The compiled steps of GPflow's own optimisers on one SVGP; each draws its own minibatch."""

    natural: Callable[[], None]
    adam: Callable[[], None]
    both: Callable[[], None]
    gamma: tf.Variable
    """step size of the natural gradient"""
    rate: tf.Variable
    """step size of Adam"""


def gpflow_steps(
    model: gpflow.models.SVGP, data: Data, settings: Settings, natural_q: bool = True
) -> GPflowSteps:
    """A tf.function per optimiser, and one for both.

    Adam trains kernel, noise and inducing inputs, and q as well where natural gradients do not.
    """
    gpflow.set_trainable(model.q_mu, not natural_q)
    gpflow.set_trainable(model.q_sqrt, not natural_q)
    step = settings.step_of(int(model.inducing_variable.num_inducing), data)
    gamma = tf.Variable(step, dtype=gpflow.default_float(), trainable=False)
    natural_gradient = gpflow.optimizers.NaturalGradient(gamma)
    adam = tf_keras.optimizers.Adam(settings.learning_rate)
    adam.build(model.trainable_variables)  # so that no step is traced twice
    draw, variables, q = (
        minibatches(data, settings),
        model.trainable_variables,
        [(model.q_mu, model.q_sqrt)],
    )

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
    # without AutoGraph: nothing here needs it, the graph is the same, and it takes most of the time
    # of tracing
    return GPflowSteps(
        *(tf.function(part, autograph=False) for part in parts), gamma, adam.learning_rate
    )


def train_gpflow(spec: Spec, data: Data, targets: Sequence[float], settings: Settings) -> Record:
    """Train GPflow's SVGP, once for every budget of `settings`, because the step sizes fall at the
    end as those of `fit` do.

    It is evaluated at the end of each run, and in that of the largest budget also at `targets`.
    """
    budgets = sorted(settings.budgets or [max(targets)])
    records = [_run(spec, data, [budget], settings) for budget in budgets[:-1]]
    records.append(
        _run(
            spec,
            data,
            sorted({*(one for one in targets if one < budgets[-1]), budgets[-1]}),
            settings,
        )
    )
    for record in records:
        record.snapshots[-1].final = True
    shorter = [record.snapshots[-1] for record in records[:-1]]
    note = "; ".join(record.note for record in records if record.note)
    return replace(records[-1], snapshots=[*shorter, *records[-1].snapshots], note=note)


def _run(spec: Spec, data: Data, targets: Sequence[float], settings: Settings) -> Record:
    """One run until the last of `targets`."""
    model = build(spec, data, settings)
    steps = gpflow_steps(model, data, settings, spec.natural)
    recorder = recorder_for(model, targets, settings.unit)
    start = time.perf_counter()
    steps.both.get_concrete_function()
    compile_seconds = time.perf_counter() - start
    recorder.start()
    note = ""
    while not recorder.done and not note:
        factor = annealed(recorder.elapsed / targets[-1], settings.anneal)
        steps.gamma.assign(
            factor * ramped(recorder.step, settings.step_of(spec.num_beta, data), _RAMP_STEPS)
        )
        steps.rate.assign(factor * settings.learning_rate)
        try:
            steps.both()
        except tf.errors.InvalidArgumentError:  # a factorisation failed, or a parameter is NaN
            note = f"failed in step {recorder.step + 1}"
        else:
            recorder()
    ms = recorder.ms_per_step
    snapshots = recorder.finish(lambda: scores(model, data), failed=bool(note))
    return Record(data.name, spec.name, spec.library, compile_seconds, ms, snapshots, note)
