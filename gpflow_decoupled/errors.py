"""Exceptions; messages name the array, parameter or matrix, and the fix.

All public calls raise `DataError` for unusable data and settings out of range,
`UnknownOptionError` for unknown words, and `ModelError` for a model of another kind, before
anything changes; `NumericalError` where a factorisation fails or a bound is not finite, with the
model at its last good Parameters. Docstrings list errors that are particular.
"""

from __future__ import annotations

__all__ = [
    "CheckpointError", "DataError", "ModelError", "NumericalError", "RunRecord",
    "UnknownOptionError", "WorkerError", "check_option", "check_parameters", "naming_memory",
    "not_a_number",
]  # fmt: skip

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Protocol

import numpy as np
import tensorflow as tf
from gpflow.utilities import parameter_dict

from .summaries import short_repr


class RunRecord(Protocol):
    """The record of a stopped run, such as a `training.FitResult`.

    `history` has arrays [steps], among them "step", "seconds" and "elbo".

    Example::

        try:
            result = gpflow_decoupled.fit(model, data)
        except gpflow_decoupled.errors.NumericalError as error:
            result = error.result
        print(result.steps, result.history["elbo"])
    """

    steps: int
    seconds: float
    history: dict[str, np.ndarray]


class _AsRaised:
    """An error that keeps its class where it is raised inside a user's `tf.function`."""

    # AutoGraph replaces others by a StagingError, which no `except DataError` catches.
    ag_pass_through = True


class DataError(_AsRaised, ValueError):
    """Unusable data, inducing points or settings; raised before any computation.

    Only a `tf.data.Dataset` may fail during training; `result` then records the steps before.

    Example::

        try:
            result = gpflow_decoupled.fit(model, dataset)
        except gpflow_decoupled.errors.DataError as error:
            print(error, error.result)
    """

    result: RunRecord | None = None


class CheckpointError(_AsRaised, OSError):
    """A checkpoint folder that cannot be used or written; its states stay usable.

    The model is as the last whole step left it; `result` is the record of the steps.

    Example::

        try:
            result = gpflow_decoupled.fit(model, data, checkpoint="run")
        except gpflow_decoupled.errors.CheckpointError as error:
            print(error, error.result)
    """

    result: RunRecord | None = None


class UnknownOptionError(_AsRaised, ValueError):
    """An unknown option or value; the message lists the known ones.

    Example::

        # raises: use one of "greedy_variance", "kmeans", "random"
        inducing.select(X, 10, method="k-means")
    """


class ModelError(_AsRaised, TypeError):
    """A method called on a model of the wrong family; the message names the right method.

    Example::

        model = LCLGP((X, Y), kernel, likelihood)
        # raises: LinearlyConstrainedLagrangian().run(model) trains an LCLGP
        ConjugateComputation().run(model)
    """


class NumericalError(_AsRaised, ArithmeticError):
    """A failed computation, for instance a Cholesky factorisation.

    During training, the model is restored to the last parameters with finite values.

    :param message: the failure, and the likely fixes.
    :param matrix: the name of the matrix or quantity that failed.
    :param result: the record of the steps before the failure; None before training.

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


class WorkerError(_AsRaised, RuntimeError):
    """A failed or ended process of a `tf.distribute` strategy.

    Start all again: with a checkpoint the run continues. `result` is the record of the steps
    before.

    Example::

        try:
            result = gpflow_decoupled.fit(model, data, strategy=strategy, checkpoint="run")
        except gpflow_decoupled.errors.WorkerError as error:
            sys.exit(str(error))
    """

    result: RunRecord | None = None


def check_option(
    name: str, value: object, allowed: Iterable[object], usual: Mapping[str, str] | None = None
) -> None:
    """Refuse a value that is not one of `allowed`, and name the nearest.

    :param name: of the option, for the message.
    :param value: the caller's value.
    :param allowed: the known values.
    :param usual: other names of them, elsewhere.
    :raises UnknownOptionError: unless `value` is one of them.

    Example::

        check_option("method", method, ("greedy_variance", "kmeans", "random"))
    """
    allowed = tuple(allowed)
    if getattr(value, "shape", ()) != () or value not in allowed:
        word = value.lower() if isinstance(value, str) else ""
        words = [one for one in allowed if isinstance(one, str)]
        near = [(usual or {}).get(word)] + get_close_matches(word, words, 1)
        hint = next((f" Did you mean {one!r}?" for one in near if one), "")
        known = ", ".join(map(repr, allowed))
        raise UnknownOptionError(
            f"{name}={short_repr(value)} is not known; use one of {known}.{hint}"
        )


def not_a_number(module: tf.Module, result: str) -> NumericalError:
    """The error for a result with NaN, which names the Parameters at fault.

    :param module: a model or a posterior.
    :param result: in words.

    Example::

        raise not_a_number(model, "mean of f at Xnew")
    """
    names = _not_finite(module)
    why = f" {', '.join(names)} has entries that are NaN or infinite." if names else ""
    return NumericalError(
        f"The {result} is not a number.{why} Train the model again, or build it anew.",
        matrix=result,
    )


def check_parameters(module: tf.Module, result: str) -> None:
    """Outside of `tf.function`, refuse Parameters that are NaN or infinite.

    Parameters as in `not_a_number`.

    :raises NumericalError: with their names.

    Example::

        check_parameters(model, "mean of f at Xnew")
    """
    if tf.executing_eagerly() and _not_finite(module):
        raise not_a_number(module, result)


@contextmanager
def naming_memory(asked: Callable[[], str]) -> Iterator[None]:
    """Make errors of TensorFlow and NumPy for a lack of memory say what was asked, and a fix.

    :param asked: returns both, in words.
    :raises MemoryError: instead of the library's own error.

    Example::

        with naming_memory(lambda: f"predictions at {len(Xnew)} rows: pass fewer"):
            moments = model.predict_f(Xnew)
    """
    try:
        yield
    except (MemoryError, tf.errors.ResourceExhaustedError) as error:
        raise MemoryError(f"There is not enough memory for {asked()}.") from error


def _not_finite(module: tf.Module) -> list[str]:
    """Names of Parameters and variables, but for a posterior's cache, which follows from them."""
    found = dict[int, str]()  # a part that is shared has its shortest name
    for name, value in sorted(parameter_dict(module).items(), key=lambda item: len(item[0])):
        # a copy for each replica is no array before it is a tensor
        numbers = tf.convert_to_tensor(getattr(value, "unconstrained_variable", value))
        if not name.startswith(".cache") and not np.all(np.isfinite(numbers)):
            found.setdefault(id(value), f"model{name}")
    return list(found.values())


def __dir__() -> list[str]:
    return sorted(__all__)
