"""What a model on inducing points cannot do on several replicas of `tf.distribute`, refused before the first step."""

from __future__ import annotations

__all__ = ["check_on_replicas", "dataset_of", "shards_of", "ways_to_trace"]

import tensorflow as tf
from gpflow.models import SVGP
from gpflow.utilities import parameter_dict

from ...bases.parts.data_mean import DataMean
from ...errors import DataError, UnknownOptionError
from ...models import BasisGP
from ...replicas import Group, refuse_elsewhere
from ..batches import ArrayBatches, Batches, DatasetBatches
from .route import Data, MeanSolver


def check_on_replicas(model: BasisGP | SVGP, strategy: tf.distribute.Strategy, solver: object) -> None:
    """Refuse a model, or a solver of its mean, that a strategy cannot train.

    :param model: that is to be trained.
    :param strategy: that trains it.
    :param solver: the `mean_solver` that was chosen, or None.
    :raises DataError: for variables that were created outside of the scope of the strategy.
    :raises UnknownOptionError: for a mean on all data and for `mean_solver="newton"`.
    """
    if isinstance(model, BasisGP) and isinstance(model.basis.kernel_mean, DataMean):
        raise UnknownOptionError(
            'strategy is not for a mean on all data, gamma="data": its conjugate gradients do not share out their products. '
            "Use mean points of their own, gamma=inducing.select(X, M, kernel), or leave strategy out."
        )
    method = solver.method if isinstance(solver, MeanSolver) else solver
    if method == "newton" and strategy.num_replicas_in_sync > 1:
        raise UnknownOptionError(
            'mean_solver="newton" solves by conjugate gradients, a loop in which TensorFlow cannot sum over replicas; use '
            '"adam" or "natural" with strategy.'
        )
    refuse_elsewhere(strategy, _variables(model), "build the whole model inside of `with strategy.scope():`.")


def dataset_of(data: Data, group: Group) -> Data:
    """The data of this worker: what was passed, or what a function of `tf.distribute.InputContext` returns.

    :param data: as they were passed to `fit`.
    :param group: the workers of the run.
    :raises DataError: for a dataset that each of several workers would read in full, and for what the function must not be.
    """
    if isinstance(data, tf.data.Dataset) and group.workers > 1:
        raise DataError(
            f"Each of {group.workers} workers would read all of this dataset: pass a function of a tf.distribute.InputContext "
            "that returns the shard of one, as lambda context: "
            "dataset.shard(context.num_input_pipelines, context.input_pipeline_id)."
        )
    if isinstance(data, tf.data.Dataset) or not callable(data):
        return data
    if group.strategy is None:
        raise DataError(
            "A function that returns a dataset is for several workers: pass strategy, or the dataset itself."
        )
    dataset = data(group.input_context())
    if not isinstance(dataset, tf.data.Dataset):
        raise DataError(
            f"The function of the data returned a {type(dataset).__name__}; it must return the tf.data.Dataset of one worker."
        )
    return dataset


def shards_of(batches: Batches, group: Group) -> list[tf.TensorSpec] | None:
    """The shapes and types of batches that each worker has of its own; None where all have the same batch.

    :param batches: of this worker.
    :param group: the workers of the run.
    :raises DataError: for batches that do not have a row for each replica.
    """
    if isinstance(batches, ArrayBatches) and batches.batch_size < group.replicas:
        raise DataError(
            f"A batch of {batches.batch_size} rows cannot be shared out to {group.replicas} replicas; use a larger "
            "batch_size, or fewer replicas."
        )
    return batches.signature if isinstance(batches, DatasetBatches) and group.workers > 1 else None


def ways_to_trace(shards: list[tf.TensorSpec] | None) -> dict[str, object]:
    """The options of `tf.function` for a step on batches of these shapes and types, or on the same batch on all workers.

    A worker that traced anew, for a batch with more rows, would not send the messages that the others wait for.
    """
    if shards is None:
        return {"reduce_retracing": True}
    return {"input_signature": [*shards, tf.TensorSpec([2], tf.int32)]}


def _variables(model: BasisGP | SVGP) -> dict[str, tf.Variable]:
    """All variables of a model, those of Parameters by the names of these."""
    leaves = {name: getattr(leaf, "unconstrained_variable", leaf) for name, leaf in parameter_dict(model).items()}
    known = {variable.ref() for variable in leaves.values()}
    others = {variable.name: variable for variable in model.variables if variable.ref() not in known}
    return {f"{type(model).__name__}{name}": variable for name, variable in leaves.items()} | others
