"""From a model to JSON and arrays."""

from __future__ import annotations

__all__ = ["Description", "describe"]

import enum
import functools
import types
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.likelihoods import HeteroskedasticTFPConditional

from ..errors import DataError
from ..probability import tfp
from .names import name_of

SKIPPED = ("_self_", "_name_scope", "_scope_name", "_setattr_tracking", "_obj_reference_counts")
"""Beginnings of the attributes that TensorFlow keeps for itself, and makes again."""


class Description(NamedTuple):
    """A model as data."""

    tree: Any
    """A value for JSON; see `describe`."""
    arrays: list[np.ndarray]


def describe(model: tf.Module) -> Description:
    """Describe a model.

    :param model: any tree of `tf.Module`s, Parameters, variables, tensors, arrays, plain values,
        containers, named tuples, functions with a name, and TFP's bijectors and distributions.
    """
    # Numbers, strings, None and lists are plain JSON. Other objects have a member "is": "array",
    # "tensor", "variable" and "parameter" name an array by its index, "object" has a class and
    # attributes, "again" is an object described before.
    writer = _Writer()
    tree = writer.node(model, "model")
    return Description(tree, writer.arrays)


class _Writer:
    def __init__(self) -> None:
        self.arrays: list[np.ndarray] = []
        self.seen: dict[int, tuple[int, object]] = {}

    def node(self, value: Any, path: str) -> Any:
        if value is None or isinstance(value, (bool, str)) or type(value) is int:
            return value
        if type(value) is float:
            return value if np.isfinite(value) else {"is": "float", "value": repr(value)}
        if id(value) in self.seen:
            return {"is": "again", "id": self.seen[id(value)][0]}
        found = self._value(value, path)
        if found is not None:
            return found
        self.seen[id(value)] = (len(self.seen), value)
        return {"id": self.seen[id(value)][0], **self._shared(value, path)}

    def _value(self, value: Any, path: str) -> dict | None:
        if isinstance(value, enum.Enum):
            return {"is": "enum", "class": name_of(type(value)), "name": value.name}
        if isinstance(value, np.generic):
            return {"is": "scalar", "array": self._array(np.asarray(value), path)}
        if isinstance(value, tf.DType):
            return {"is": "dtype", "name": value.name}
        if isinstance(value, np.dtype) or (
            isinstance(value, type) and issubclass(value, np.generic)
        ):
            return {"is": "numpy dtype", "name": np.dtype(value).str}
        if isinstance(value, tf.TensorShape):
            return {"is": "shape", "sizes": None if value.rank is None else value.as_list()}
        if isinstance(value, type) and issubclass(value, tfp.distributions.Distribution):
            return {"is": "distribution class", "name": name_of(value)}
        if isinstance(value, slice):
            ends = [value.start, value.stop, value.step]
            return {"is": "slice", "parts": self._parts(ends, path)}
        if isinstance(value, tuple):
            # of a tuple with variables TensorFlow makes a proxy, whose type is no tuple
            own = value.__class__
            kind = {} if own is tuple else {"class": name_of(own)}
            return {"is": "tuple", **kind, "parts": self._parts(value, path)}
        if isinstance(value, (set, frozenset)):
            return {"is": type(value).__name__, "parts": self._parts(value, path)}
        if isinstance(value, functools.partial):
            parts = [value.func, list(value.args), value.keywords]
            return {"is": "partial", "parts": self._parts(parts, path)}
        if isinstance(value, (types.FunctionType, types.BuiltinFunctionType)):
            try:
                return {"is": "function", "name": name_of(value)}
            except DataError as error:
                raise DataError(f"{path}: {error}") from error
        return None

    def _shared(self, value: Any, path: str) -> dict:
        if isinstance(value, np.ndarray):
            return {"is": "array", "array": self._array(value, path)}
        if isinstance(value, gpflow.Parameter):
            return self._parameter(value, path)
        if isinstance(value, tf.Variable):
            array = self._array(value.numpy(), path)
            return {"is": "variable", "array": array, "trainable": bool(value.trainable)}
        if tf.is_tensor(value):
            if not hasattr(value, "numpy"):
                raise DataError(f"{path} is a tensor of a graph, which has no value")
            return {"is": "tensor", "array": self._array(value.numpy(), path)}
        if isinstance(value, dict):  # TensorFlow's wrappers of containers are these, too
            items = [[self.node(k, path), self.node(v, f"{path}[{k!r}]")] for k, v in value.items()]
            return {"is": "dict", "items": items}
        if isinstance(value, list):
            return {"is": "list", "parts": self._parts(value, path)}
        if isinstance(value, (tfp.bijectors.Bijector, tfp.distributions.Distribution)):
            given = {k: v for k, v in value.parameters.items() if not k.startswith("__")}
            return {"is": "made", **self._object(value, given, path)}
        if type(value) is HeteroskedasticTFPConditional:
            return {"is": "made", **self._object(value, _arguments(value), path)}
        if not hasattr(value, "__dict__"):
            raise DataError(
                f"{path} is a {type(value).__name__}, which no file of a model can hold"
            )
        own = {k: v for k, v in vars(value).items() if not k.startswith(SKIPPED)}
        return {"is": "object", **self._object(value, own, path)}

    def _object(self, value: object, attributes: dict[str, Any], path: str) -> dict:
        described = {k: self.node(v, f"{path}.{k}") for k, v in attributes.items()}
        return {"class": name_of(type(value)), "attributes": described}

    def _parameter(self, value: gpflow.Parameter, path: str) -> dict:
        number = value.unconstrained_variable.numpy()
        if not np.all(np.isfinite(number)):
            raise DataError(f"{path} has entries that are NaN or infinite: train the model again")
        return {
            "is": "parameter",
            "array": self._array(number, path),
            "transform": self.node(value.transform, f"{path}.transform"),
            "prior": self.node(value.prior, f"{path}.prior"),
            "prior_on": value.prior_on.name,
            "trainable": bool(value.trainable),
        }

    def _parts(self, values: Any, path: str) -> list:
        return [self.node(value, f"{path}[{place}]") for place, value in enumerate(values)]

    def _array(self, array: np.ndarray, path: str) -> int:
        if array.dtype.kind not in "biufc":
            raise DataError(f"{path} is an array of {array.dtype}, and files hold numbers alone")
        self.arrays.append(array)
        return len(self.arrays) - 1


def _arguments(likelihood: HeteroskedasticTFPConditional) -> dict[str, object]:
    one = likelihood.conditional_distribution(tf.zeros([1, 2], gpflow.default_float()))
    return {
        "distribution_class": type(one),
        "scale_transform": likelihood.scale_transform,
        "quadrature": likelihood.quadrature,
    }
