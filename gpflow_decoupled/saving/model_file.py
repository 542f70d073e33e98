"""`save` and `load`."""

from __future__ import annotations

__all__ = ["load", "save"]

import contextlib
import os
import platform
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tensorflow as tf
from gpflow.config import default_float
from gpflow.models import GPModel

from ..errors import CheckpointError, DataError, ModelError, NumericalError
from ..models import FactorGraph
from ..summaries import short_repr
from ..training import Standardized
from ..user_warnings import warn_user
from .archive import Names, read_archive, replaced, write_archive
from .structure import describe, rebuild

_FORMAT = 2  # one more whenever older files cannot be read
_TRACED = 2**30  # bytes of a file: a graph holds constants of up to 2 GB
_LIBRARIES = ("gpflow_decoupled", "gpflow", "tensorflow", "tensorflow_probability", "numpy")


def save(model: GPModel | FactorGraph | Standardized, path: str | os.PathLike[str]) -> None:
    """Write a model to a file that `load` reads, in this process or another.

    :param model: a model of this package or of GPflow, or a `Standardized`; with its data, if it
        owns them.
    :param path: of the file. An old file is replaced once the new one is complete, and keeps its
        permissions.
    :raises DataError: for a part that no file can hold, such as a `lambda`, or a Parameter that is
        not finite.
    :raises CheckpointError: if the file cannot be written.

    Example::

        gpflow_decoupled.save(model, "model.zip")
        twin = gpflow_decoupled.load("model.zip")
    """
    if not isinstance(model, (GPModel, FactorGraph, Standardized)):
        raise ModelError(
            f"save is for models, and {type(model).__name__} is none; pass the model, or its"
            " `Standardized`."
        )
    target = _as_path(path)
    try:
        tree, arrays = describe(model)
    except DataError as error:
        raise DataError(f"This {type(model).__name__} cannot be saved: {error}.") from error
    try:
        with replaced(target) as file:
            write_archive(file, {"format": _FORMAT, "versions": _versions(), "model": tree}, arrays)
    except OSError as error:
        raise CheckpointError(
            f"{target} cannot be written: {error.strerror or error}; choose another path."
        ) from error


def load(
    path: str | os.PathLike[str], classes: Iterable[type | Callable] = ()
) -> GPModel | FactorGraph | Standardized:
    """Read a model of `save`. Nothing in the file is executed.

    Warns if another version of GPflow or of this package wrote it.

    :param path: of the file.
    :param classes: your own classes and functions in the model, such as a kernel. They are trusted.
    :raises CheckpointError: if the file cannot be read, for lack of memory too.
    :raises DataError: if it is damaged, no file of `save`, or names a class that is not in
        `classes`; without `classes` also if its parts do not fit together.

    Example::

        model = gpflow_decoupled.load("model.zip", classes=[MyKernel])
    """
    source, names = _as_path(path), Names(classes)
    try:
        file = source.open("rb")
    except OSError as error:
        raise CheckpointError(f"{source} cannot be read: {error.strerror or error}.") from error
    with file:
        tree, arrays = _guarded(source, lambda: read_archive(file))
    _guarded(source, lambda: _check_format(tree))
    others = [
        f"{name} {tree['versions'].get(name)}"
        for name in _LIBRARIES[:2]
        if tree["versions"].get(name) != version(name)
    ]
    if others:
        warn_user(
            f"{source} was written with {', '.join(others)}; compare a prediction before you rely"
            " on it."
        )
    model = _guarded(source, lambda: rebuild(tree["model"], arrays, names))
    if not isinstance(model, (GPModel, FactorGraph, Standardized)):
        raise DataError(f"{source} has a {type(model).__name__} in it, which is no model.")
    traceable = not isinstance(model, FactorGraph) and source.stat().st_size < _TRACED
    if traceable and not classes:
        _guarded(source, lambda: _check_parts(model))
    return model


def _check_parts(model: GPModel | Standardized) -> None:
    """Trace a prediction: without numbers, shapes and types of all parts must agree."""
    inside = model.model if isinstance(model, Standardized) else model
    X = getattr(inside, "data", getattr(inside, "inducing_variable", None))
    X = X[0] if isinstance(X, tuple) else getattr(X, "Z", None)
    columns = getattr(inside, "num_dims", None) if X is None else X.shape[1]
    if columns is None or any(p.dtype != default_float() for p in inside.parameters):
        return
    at = tf.TensorSpec([2, columns], default_float())
    with contextlib.suppress(DataError, ModelError, NumericalError, NotImplementedError):
        tf.function(lambda X: model.predict_f(X), autograph=False).get_concrete_function(at)


def _guarded(source: Path, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except DataError as error:
        raise DataError(f"{source} cannot be loaded: {error}.") from error
    except (MemoryError, tf.errors.ResourceExhaustedError) as error:
        raise CheckpointError(
            f"{source} needs more memory than is free here; it has {source.stat().st_size} bytes."
        ) from error
    except Exception as error:  # a damaged file may raise anything in zipfile, json and TensorFlow
        raise DataError(
            f"{source} is damaged, or was not written by gpflow_decoupled.save: {error!r:.300}."
        ) from error


def _check_format(tree: Any) -> None:
    if tree["format"] != _FORMAT:
        raise DataError(
            f"it has format {short_repr(tree['format'])}, and this version of gpflow_decoupled"
            f" reads format {_FORMAT}; it was written with gpflow_decoupled"
            f" {tree['versions'].get('gpflow_decoupled')}"
        )
    tree["versions"].get("gpflow")


def _as_path(path: Any) -> Path:
    try:
        text = os.fspath(path)
    except TypeError as error:
        raise DataError(
            f'path={short_repr(path)} is no path of a file: pass its name, such as "model.zip".'
        ) from error
    if isinstance(text, bytes):
        text = os.fsdecode(text)
    if not text or "\0" in text:
        raise DataError(
            f'path={short_repr(text)} is no name of a file: pass one such as "model.zip".'
        )
    return Path(text)


def _versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{name: version(name) for name in _LIBRARIES}}
