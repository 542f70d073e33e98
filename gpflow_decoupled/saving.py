"""A trained model in one file: `save` and `load`.

The file is a zip archive of two members: `versions.json`, with the versions of the libraries, and
`model.pickle`, in Python's own format for objects, which holds the whole model: its class and
options, q, hyperparameters, and the scales of a `Standardized`. Reading this format may call
whatever a file names, and may set attributes of it. So `load` looks every name up in a list, of
models and of what they are made of, and refuses a file that has another one before anything of that
name is called; and it refuses a file that would set attributes of a class or a function, which all
models share.
"""

from __future__ import annotations

__all__ = ["load", "save"]

import io
import json
import os
import pickle
import platform
import zipfile
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import Any

import tensorflow as tf
from gpflow.models import GPModel

from .errors import CheckpointError, DataError, ModelError
from .models import FactorGraph
from .training import Standardized
from .user_warnings import warn_user

_FORMAT = 1
_PROTOCOL = 4
"""Of pickle; later ones write arrays by private functions of NumPy."""
_LIBRARIES = ("gpflow_decoupled", "gpflow", "tensorflow", "tensorflow_probability", "numpy")
_CLASSES = (
    *(
        f"gpflow.{name}"
        for name in (
            "base",
            "functions",
            "inducing_variables",
            "kernels",
            "likelihoods",
            "models",
            "quadrature",
        )
    ),
    *(
        f"gpflow_decoupled.{name}"
        for name in ("bases", "distributions", "expectations", "inducing", "likelihoods", "models")
    ),
    "gpflow_decoupled.training.standardized",
    *(
        f"tensorflow_probability.python.{name}"
        for name in ("bijectors", "distributions", "internal.reparameterization")
    ),
)
"""Modules, and packages, whose classes may be in a file."""
_NAMES = {
    "builtins": {"slice", "set", "frozenset", "complex"},
    "collections": {"OrderedDict", "defaultdict"},
    "functools": {"partial"},
    "gpflow.likelihoods.utils": {"inv_probit"},
    "numpy": {"dtype", "ndarray"},
    "numpy.core.multiarray": {"_reconstruct", "scalar"},
    "numpy._core.multiarray": {"_reconstruct", "scalar"},
    "tensorflow.python.framework.dtypes": {"as_dtype"},
    "tensorflow.python.framework.ops": {"convert_to_tensor", "name_scope_v2"},
    "tensorflow.python.framework.tensor_shape": {"Dimension", "TensorShape"},
    "tensorflow.python.ops.math_ops": {"exp", "sigmoid", "square", "tanh"},
    "tensorflow.python.ops.nn_ops": {"softplus"},
    "tensorflow.python.ops.resource_variable_ops": {"ResourceVariable"},
    "tensorflow.python.trackable.base": {"TrackableReference"},
    "tensorflow.python.trackable.data_structures": {"ListWrapper", "_DictWrapper"},
}
"""Single names beside these: arrays, variables, containers, and the functions that likelihoods are
made with.
"""

_SHARED = (type, FunctionType, BuiltinFunctionType, tf.DType)
"""Kinds of what those names stand for, which belongs to all models. A model's own parts are of none
of them.
"""


def save(model: GPModel | FactorGraph | Standardized, path: str | os.PathLike[str]) -> None:
    """Write a model to a file that `load` reads, in this process or another.

    :param model: a model of this package or of GPflow, or a `Standardized`. All of it is saved: the
        data too, where the model owns them.
    :param path: of the file. A file of that name is replaced as soon as the new one is complete.
    :raises ModelError: for another object.
    :raises DataError: for a model with a part that Python cannot save, for example a `lambda`.
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
    try:
        content = pickle.dumps(model, protocol=_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError, ValueError) as error:
        raise DataError(
            f"A part of this {type(model).__name__} cannot be saved: {error}. Define its functions"
            " and classes in a module of their own, not in another function; or save the numbers,"
            " by gpflow.utilities.parameter_dict(model)."
        ) from error
    target = Path(path)
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    try:
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(
                "versions.json", json.dumps({"format": _FORMAT, **_versions()}, indent=1)
            )
            archive.writestr("model.pickle", content)
        os.replace(partial, target)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        raise CheckpointError(
            f"{target} cannot be written: {error.strerror or error}; choose another path."
        ) from error


def load(
    path: str | os.PathLike[str], classes: Iterable[type] = ()
) -> GPModel | FactorGraph | Standardized:
    """The model that `save` has written. Nothing in the file is executed.

    :param path: of the file.
    :param classes: your own classes that the model is made of, such as a kernel. They are trusted.
    :raises CheckpointError: if the file cannot be read.
    :raises DataError: if it is damaged, no file of `save`, of a later version, or has a name in it
        that is neither a part of a model nor in `classes`.

    There is a warning if the file was written with another version of GPflow or of this package.
    Example::

        model = gpflow_decoupled.load("model.zip", classes=[MyKernel])
    """
    try:
        with zipfile.ZipFile(path) as archive:
            versions, content = (
                json.loads(archive.read("versions.json")),
                archive.read("model.pickle"),
            )
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        raise DataError(
            f"{path} is damaged, or was not written by gpflow_decoupled.save: {error}."
        ) from error
    if versions.get("format") != _FORMAT:
        raise DataError(
            f"{path} has format {versions.get('format')!r}, and this version of gpflow_decoupled"
            f" reads format {_FORMAT}; it was written with gpflow_decoupled"
            f" {versions.get('gpflow_decoupled')}."
        )
    others = [
        f"{name} {versions.get(name)}"
        for name in _LIBRARIES[:2]
        if versions.get(name) != version(name)
    ]
    if others:
        warn_user(
            f"{path} was written with {', '.join(others)}; compare a prediction before you rely"
            " on it.",
        )
    try:
        model = _Reader(content, path, classes).load()
    except DataError:
        raise
    except (
        Exception
    ) as error:  # whatever the parts of a damaged model, or of another version, may raise
        raise DataError(
            f"{path} is damaged, or of versions {versions} that do not fit: {error!r}."
        ) from error
    if not isinstance(model, (GPModel, FactorGraph, Standardized)):
        raise DataError(f"{path} has a {type(model).__name__} in it, which is no model.")
    return model


def _fill_in(reader: Any) -> None:
    """Set the state of the object below the top of a reader's stack, unless that object is a class
    or a function.
    """
    target = reader.stack[-2]
    if isinstance(target, _SHARED):
        raise DataError(
            f"{reader.path} would change {target!r} for all models. No file of"
            " gpflow_decoupled.save does: do not trust it."
        )
    pickle._Unpickler.dispatch[pickle.BUILD[0]](reader)


class _Reader(pickle._Unpickler):  # the one in Python, which can be asked before a state is set
    """Finds the classes of models and what they are made of, and nothing else; fills in objects,
    and never classes.
    """

    dispatch = {**pickle._Unpickler.dispatch, pickle.BUILD[0]: _fill_in}

    def __init__(
        self, content: bytes, path: str | os.PathLike[str], classes: Iterable[type]
    ) -> None:
        super().__init__(io.BytesIO(content))
        self.path = path
        self._own = {(one.__module__, one.__qualname__): one for one in classes}

    def find_class(self, module: str, name: str) -> object:
        """The class or function of a name in the file."""
        if (module, name) in self._own:
            return self._own[module, name]
        if name in _NAMES.get(module, ()):
            return super().find_class(module, name)
        if "." not in name and any(
            module == one or module.startswith(f"{one}.") for one in _CLASSES
        ):
            found = super().find_class(module, name)
            if isinstance(found, type) and found.__module__ == module:
                return found
        raise DataError(
            f"{self.path} needs {module}.{name}, which is no part of GPflow's models or of this"
            " package's: if it is a class of your own, import it and call load(path,"
            f" classes=[{name}]). If you do not know it, do not trust the file."
        )


def _versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{name: version(name) for name in _LIBRARIES}}
