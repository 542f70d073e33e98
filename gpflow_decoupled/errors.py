"""Exceptions of the package: every message names the array, parameter or matrix, and says how to
fix it.
"""

from __future__ import annotations

__all__ = [
    "CheckpointError", "DataError", "ModelError", "NumericalError", "RunRecord",
    "UnknownOptionError", "WorkerError", "check_option",
]  # fmt: skip

from collections.abc import Iterable
from typing import Protocol

import numpy as np

from .summaries import short_repr


class RunRecord(Protocol):
    """What an error that stops a training run tells about the steps before it, for instance a
    `training.FitResult`.

    `history` has arrays [steps], among them "step", "seconds" and "elbo". Example::

        try:
            result = gpflow_decoupled.fit(model, data)
        except gpflow_decoupled.errors.NumericalError as error:
            result = error.result
        print(result.steps, result.history["elbo"])
    """

    steps: int
    seconds: float
    history: dict[str, np.ndarray]


class DataError(ValueError):
    """Data, inducing points or a setting that cannot be used; raised before anything is computed or
    changed.

    The one exception is a `tf.data.Dataset`, whose later batches are only seen during training.
    Then `result` is the record
    of the steps before the bad batch. Example::

        try:
            result = gpflow_decoupled.fit(model, dataset)
        except gpflow_decoupled.errors.DataError as error:
            print(error, error.result)
    """

    result: RunRecord | None = None


class CheckpointError(OSError):
    """The folder of a run's checkpoints cannot be used or written: another run holds it, it is a
    file, the disk is full.

    The states that are in the folder stay, and a later run goes on from them. If training had
    begun, the model is as the last
    whole step left it, and `result` is the record of the steps. Example::

        try:
            result = gpflow_decoupled.fit(model, data, checkpoint="run")
        except gpflow_decoupled.errors.CheckpointError as error:
            print(error, error.result)
    """

    result: RunRecord | None = None


class UnknownOptionError(ValueError):
    """An option, or the value of an option, that does not exist; the message lists those that do.

    Example::

        # raises: use one of "greedy_variance", "kmeans", "random"
        inducing.select(X, 10, method="k-means")
    """


class ModelError(TypeError):
    """A method was given a model of a family that it cannot work on; the message says what to use
    for that model.

    Example::

        model = LCLGP((X, Y), kernel, likelihood)
        # raises: LinearlyConstrainedLagrangian().run(model) trains an LCLGP
        ConjugateComputation().run(model)
    """


class NumericalError(ArithmeticError):
    """A computation failed, for instance a Cholesky factorisation.

    If it failed during training, the model has been set back to the last parameters at which
    everything was finite.

    :param message: what failed, and the likely fixes.
    :param matrix: the name of the matrix or quantity that failed.
    :param result: the record of the steps before the failure; None if training had not begun.

    Example::

        try:
            result = gpflow_decoupled.fit(model, data)
        except gpflow_decoupled.errors.NumericalError as error:
            print(error.matrix, error.result)
    """

    def __init__(self, message: str, matrix: str = "", result: RunRecord | None = None) -> None:
        super().__init__(message)
        self.matrix = matrix
        self.result = result


class WorkerError(RuntimeError):
    """Another process of a `tf.distribute` strategy has failed or ended; the message says which,
    and why if that is known.

    TensorFlow cannot go on with fewer processes: start all of them again. With a checkpoint the run
    goes on from its latest
    state. `result` is the record of the steps before. Example::

        try:
            result = gpflow_decoupled.fit(model, data, strategy=strategy, checkpoint="run")
        except gpflow_decoupled.errors.WorkerError as error:
            sys.exit(str(error))
    """

    result: RunRecord | None = None


def check_option(name: str, value: object, allowed: Iterable[object]) -> None:
    """Refuse a value that is not one of `allowed`.

    :param name: the name of the option, for the message.
    :param value: what the caller passed.
    :param allowed: the values that exist.
    :raises UnknownOptionError: unless `value` is one of them.

    Example::

        check_option("method", method, ("greedy_variance", "kmeans", "random"))
    """
    allowed = tuple(allowed)
    if getattr(value, "shape", ()) != () or value not in allowed:
        raise UnknownOptionError(
            f"{name}={short_repr(value)} is not known; use one of {', '.join(map(repr, allowed))}."
        )


def __dir__() -> list[str]:
    return sorted(__all__)
