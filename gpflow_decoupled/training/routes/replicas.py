"""Refusals on several replicas."""

from __future__ import annotations

__all__ = ["check_on_replicas", "check_workers", "shards_of"]

from collections.abc import Mapping

import tensorflow as tf
from gpflow.models import GPModel

from ...errors import DataError, UnknownOptionError
from ...optimizers.data_mean.mean_optimizer import MeanOptimizer
from ...replicas import Group, named_variables, parameter_digests, refuse_elsewhere
from ..batches import ArrayBatches, Batches, DatasetBatches, DiskBatches
from ..schedules import MeanSolver
from ..workers import refuse_other_run, run_settings

_OF_ONE_WORKER = ("progress", "callbacks")
"""Options that may differ from worker to worker."""
_PLAIN = (bool, int, float, str, type(None))


def check_on_replicas(
    model: GPModel, strategy: tf.distribute.Strategy, asked: Mapping[str, object]
) -> None:
    """Refuse models, solvers and workers that a strategy cannot train together."""
    # Differing workers would wait for messages that others do not send.
    if asked.get("compile") == "xla":
        raise UnknownOptionError(
            'compile="xla" compiles a step for one device; use compile=True with strategy.'
        )
    solver = asked.get("mean_solver")
    if isinstance(solver, MeanOptimizer):
        solver.check_replicas(strategy)
    method = solver.method if isinstance(solver, MeanSolver) else solver
    if method == "newton" and strategy.num_replicas_in_sync > 1:
        raise UnknownOptionError(
            'mean_solver="newton" solves by conjugate gradients, a loop in which TensorFlow cannot'
            ' sum over replicas; use "adam" or "natural" with strategy.'
        )
    refuse_elsewhere(
        strategy,
        named_variables(model),
        "build the whole model inside of `with strategy.scope():`.",
    )
    check_workers(model, strategy, asked)


def check_workers(
    model: GPModel, strategy: tf.distribute.Strategy, asked: Mapping[str, object]
) -> None:
    """Refuse workers that were started with another model or other options than the first."""
    solver = asked.get("mean_solver")
    parts = {
        name: value if isinstance(value, _PLAIN) else type(value).__name__
        for name, value in asked.items()
        if name not in _OF_ONE_WORKER
    }
    if isinstance(solver, MeanOptimizer):
        parts["mean_solver"] = (  # where solves end, and so how many messages
            f"{type(solver).__name__}, {solver.settings}"
        )
    group = Group(strategy)
    refuse_other_run(
        group, lambda: {**run_settings(model, parts, 0, group), **parameter_digests(model)}
    )


def shards_of(batches: Batches, group: Group) -> list[tf.TensorSpec] | None:
    """Shapes and types of the workers' own batches; None if all share one."""
    if isinstance(batches, (ArrayBatches, DiskBatches)) and batches.batch_size < group.replicas:
        raise DataError(
            f"A batch of {batches.batch_size} rows cannot be shared out to {group.replicas}"
            " replicas; use a larger batch_size, or fewer replicas."
        )
    return batches.signature if isinstance(batches, DatasetBatches) and group.workers > 1 else None
