"""Parameters in other units, sharing their variable."""

from __future__ import annotations

__all__ = ["ParameterView", "view_of"]

import copy
import functools
from collections.abc import Mapping
from typing import Any, TypeVar

import gpflow
import numpy as np
import numpy.typing as npt
import tensorflow as tf
from gpflow.base import TensorData

from ...errors import DataError, ModelError
from ...probability import tfb, tfu

Part = TypeVar("Part", bound=tf.Module)


class ParameterView(gpflow.Parameter):
    """A Parameter times a factor plus an offset, of the same value, flag and variable.

    :param inside: the Parameter that trains.
    :param factor: positive; a scalar `inside` and a factor [D] make a view [D].
    :param offset: for inputs, which are centred before they are scaled.
    """

    def __init__(
        self,
        inside: gpflow.Parameter,
        factor: npt.ArrayLike,
        name: str,
        offset: npt.ArrayLike = 0.0,
    ) -> None:
        scale, shift = (np.asarray(x, inside.dtype.as_numpy_dtype) for x in (factor, offset))
        own = tfb.Identity() if inside.transform is None else inside.transform
        to_units = [tfb.Scale(tf.constant(scale)), own]
        tfu.TransformedVariable.__init__(
            self,
            None,
            tfb.Chain([tfb.Shift(tf.constant(shift)), *to_units] if np.any(shift) else to_units),
            dtype=inside.dtype,
            name=name,
            pretransformed_input=inside.unconstrained_variable,
        )
        self._shape = tf.TensorShape(np.broadcast_shapes(tuple(inside.shape), scale.shape))
        self._own, self._factor, self._offset = own, scale, shift
        self.prior_on = "constrained"

    def __deepcopy__(self, memo: dict[int, object]) -> gpflow.Parameter:
        positive = isinstance(self._own, (tfb.Softplus, tfb.Chain))
        transform = gpflow.utilities.positive() if positive else self._own
        memo[id(self)] = plain = gpflow.Parameter(
            self.numpy(), transform=transform, trainable=self.trainable, dtype=self.dtype
        )
        return plain

    @property
    def prior(self) -> None:
        """None: a prior belongs to the Parameter that trains."""
        return None

    @prior.setter
    def prior(self, value: object) -> None:
        raise ModelError(
            f"{self.name} is in the units of the data, where a prior would have no effect: set it"
            " on the Parameter of standardised data, for example"
            " model.model.kernel.lengthscales.prior."
        )

    def assign(
        self,
        value: TensorData,
        use_locking: bool = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> tf.Tensor:
        """Set the Parameter that trains, so that this is `value`.

        :raises DataError: where several numbers stand for one Parameter and disagree.
        """
        shape = tuple(self.unconstrained_variable.shape)
        given = np.broadcast_to(np.asarray(value, self._factor.dtype), self.shape)
        values = (given - self._offset) / self._factor
        if values.shape != shape:
            if np.ptp(values) > 1e-6 * np.max(np.abs(values)):
                shown = ", ".join(f"{number:.6g}" for number in self._factor.reshape(-1)[:6])
                raise DataError(
                    f"{self.name} is a single number in standardised data, and its values in units"
                    f" are multiples of {shown}: assign such, or build the model with a Parameter"
                    " for each column."
                )
            values = np.full(shape, values.reshape(-1)[0])
        found = self._own.inverse(tf.constant(values, self.dtype))
        tf.debugging.assert_all_finite(found, f"{self.name} cannot be {value}.")
        return self.unconstrained_variable.assign(
            found, use_locking=use_locking, name=name, read_value=read_value
        )


def view_of(part: Part, attributes: Mapping[str, object]) -> Part:
    """A kernel or likelihood that shares everything with `part` except some attributes.

    It refuses new attributes, which would not reach `part`; deep copies are independent.

    :param part: stays unchanged.
    :param attributes: by name, replacing the attributes of `part`.
    """
    # not by setattr: the lists by which TensorFlow tracks variables are shared with `part`
    kind: Any = type(part)
    view: Part = object.__new__(_view_type(kind))
    vars(view).update({**vars(part), **attributes})
    return view


@functools.cache
def _view_type(kind: Any) -> Any:
    def refuse(self: Any, name: str, value: object) -> None:
        if name.startswith("_"):  # TensorFlow's own
            return object.__setattr__(self, name, value)
        raise ModelError(
            f"{kind.__name__}.{name} is a view of the model in the units of the data, and replacing"
            f" it would have no effect: use .{name}.assign(...), or set {name} of that part of"
            " model.model, of standardised data."
        )

    def deep_copy(self: Any, memo: dict[int, object]) -> Any:
        plain: Any = object.__new__(kind)
        memo[id(self)] = plain
        for name, value in vars(self).items():
            if not name.startswith("_self_"):  # TensorFlow's own, made again by setattr
                setattr(plain, name, copy.deepcopy(value, memo))
        return plain

    methods = {"__setattr__": refuse, "__deepcopy__": deep_copy, "__module__": kind.__module__}
    return type(kind.__name__, (kind,), methods)
