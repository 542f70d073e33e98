"""From JSON and arrays to a model."""

from __future__ import annotations

__all__ = ["Description", "describe", "rebuild"]

import enum
import functools
import math
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.likelihoods import HeteroskedasticTFPConditional

from ..errors import DataError
from ..probability import tfp
from .archive import Names, name_of

# ---
# From a model to JSON and arrays.


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


# ---


def rebuild(tree: Any, arrays: list[np.ndarray], names: Names) -> object:
    """Make the object of a description by `describe`.

    Bijectors, distributions, Parameters and noise that varies are made by constructors, others
    attribute by attribute. Arrays [...] are named by indices.

    :raises DataError: for a class that is not in `names`. A tree that `describe` did not make may
        raise any `Exception`.
    """
    return _Reader(arrays, names).value(tree)


class _Reader:
    def __init__(self, arrays: list[np.ndarray], names: Names) -> None:
        self.arrays, self.names = dict(enumerate(arrays)), names
        self.total = sum(array.size for array in arrays)
        self.made: dict[int, object] = {}
        self.kinds: dict[str, Callable[[dict], Any]] = {
            "again": lambda node: self.made[node["id"]],
            "float": lambda node: float(node["value"]),
            "enum": lambda node: self._enum(node),
            "scalar": lambda node: self._array(node)[()],
            "dtype": lambda node: tf.as_dtype(_text(node["name"])),
            "numpy dtype": lambda node: _plain_dtype(node["name"]),
            "shape": lambda node: tf.TensorShape(node["sizes"]),
            "slice": lambda node: slice(*self._parts(node)),
            "tuple": self._tuple,
            "set": lambda node: set(self._parts(node)),
            "frozenset": lambda node: frozenset(self._parts(node)),
            "partial": self._partial,
            "function": lambda node: self.names.function(node["name"]),
            "distribution class": lambda node: self.names.kind(
                node["name"], tfp.distributions.Distribution
            ),
            "array": lambda node: self._keep(node, self._array(node)),
            "tensor": lambda node: self._keep(node, tf.constant(self._array(node))),
            "variable": self._variable,
            "parameter": self._parameter,
            "dict": self._dict,
            "list": self._list,
            "made": self._made,
            "object": self._object,
        }

    def value(self, node: Any) -> Any:
        if node is None or isinstance(node, (bool, int, float, str)):
            return node
        return self.kinds[_text(node["is"])](node)

    def _keep(self, node: dict, value: Any) -> Any:
        if type(node["id"]) is not int or node["id"] in self.made:
            raise DataError("it describes two objects as one")
        self.made[node["id"]] = value
        return value

    def _array(self, node: dict) -> np.ndarray:
        # once each, so that a short description cannot ask for many copies
        return self.arrays.pop(node["array"])

    def _parts(self, node: dict) -> list:
        return [self.value(part) for part in node["parts"]]

    def _enum(self, node: dict) -> Any:
        if node["class"] != "gpflow.base:PriorOn":
            raise DataError(f"it has the enumeration {node['class']!r} in it")
        return gpflow.base.PriorOn[node["name"]]

    def _tuple(self, node: dict) -> tuple:
        if "class" not in node:
            return tuple(self._parts(node))
        return self.names.kind(node["class"], tuple)(*self._parts(node))

    def _partial(self, node: dict) -> functools.partial:
        function, *_ = node["parts"]
        _, arguments, keywords = self._parts(node)
        return functools.partial(self.names.function(function["name"]), *arguments, **keywords)

    def _variable(self, node: dict) -> tf.Variable:
        value = self._array(node)
        return self._keep(node, tf.Variable(value, trainable=bool(node["trainable"])))

    def _parameter(self, node: dict) -> gpflow.Parameter:
        # A value at the edge of a transform's range has no inverse.
        transform = self.value(node["transform"])
        number = self._array(node)
        if not np.all(np.isfinite(number)):
            raise DataError("a Parameter has entries that are NaN or infinite")
        _check_stretch(transform, number.shape)
        start = tf.zeros_like(number)
        parameter = gpflow.Parameter(
            start if transform is None else transform.forward(start),
            transform=transform,
            prior=self.value(node["prior"]),
            prior_on=gpflow.base.PriorOn[node["prior_on"]],
            trainable=bool(node["trainable"]),
            dtype=number.dtype,
        )
        parameter.unconstrained_variable.assign(number)
        return self._keep(node, parameter)

    def _dict(self, node: dict) -> dict:
        found = self._keep(node, {})
        found.update({self.value(key): self.value(value) for key, value in node["items"]})
        return found

    def _list(self, node: dict) -> list:
        found = self._keep(node, [])
        found.extend(self.value(part) for part in node["parts"])
        return found

    def _made(self, node: dict) -> Any:
        kinds = (tfp.bijectors.Bijector, tfp.distributions.Distribution)
        kind = self.names.kind(node["class"])
        if not issubclass(kind, (*kinds, HeteroskedasticTFPConditional)):
            raise DataError(f"{kind.__name__} is no bijector and no distribution")
        given = {key: self.value(value) for key, value in node["attributes"].items()}
        shapes = [np.shape(value) for value in given.values() if tf.is_tensor(value)]
        if math.prod(np.broadcast_shapes(*shapes)) > self.total:
            raise DataError(f"the arguments of a {kind.__name__} are stretched to each other")
        return self._keep(node, kind(**given))

    def _object(self, node: dict) -> Any:
        kind = self.names.kind(node["class"])
        if issubclass(kind, (type, BaseException, tuple, gpflow.Parameter)):
            raise DataError(f"{kind.__name__} is no part of a model")
        found = kind.__new__(kind)
        if isinstance(found, tf.Module):
            tf.Module.__init__(found, name=_text(node["attributes"].get("_name", "module")))
        self._keep(node, found)
        for key, part in node["attributes"].items():
            if key.startswith("__") or not key.isidentifier():
                raise DataError(f"it sets {key[:50]} of a {kind.__name__}")
            value = self.value(part)
            # Frozen data classes refuse the usual way; TensorFlow's way keeps track of variables.
            set_one = setattr if isinstance(found, tf.Module) else object.__setattr__
            set_one(found, key, value)
        return found


def _check_stretch(transform: tfp.bijectors.Bijector | None, shape: tuple[int, ...]) -> None:
    """Refuse a transform whose arrays would make more numbers than it is given."""
    if transform is None:
        return
    try:
        batch = tuple(transform.experimental_batch_shape())
    except NotImplementedError:  # of a class that does not say it, such as the caller's
        return
    lead = len(shape) - transform.forward_min_event_ndims
    if batch and np.broadcast_shapes(batch, shape[:lead]) != shape[:lead]:
        raise DataError(f"a transform of shape {batch} does not fit a Parameter of shape {shape}")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise DataError(f"it has a {type(value).__name__} in the place of a name")
    return value


def _plain_dtype(name: object) -> np.dtype:
    found = np.dtype(_text(name))
    if found.kind not in "biufc" or found.fields is not None:
        raise DataError(f"it has the dtype {found} in it")
    return found
