"""Numbers of each row beside the outputs, such as weights."""

from __future__ import annotations

__all__ = ["ARGUMENTS", "RowNumbers", "number_columns"]

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType
from gpflow.config import default_float

from ..errors import DataError
from ..inputs import as_values
from ..likelihoods.row_likelihood import NEUTRAL
from .standardization import Standardization
from .tables.table import is_frame

ARGUMENTS = {
    "sample_weight": "weight", "offset": "offset", "exposure": "offset", "noise_variance": "noise",
    "trials": "trials", "censored": "censored",
}  # fmt: skip
"""Names of numbers by the arguments of `build`."""
_OF_OUTPUTS = ("noise_variance", "offset", "exposure")
"""Arguments with a column for each output."""
_UNITS = {"noise": 2.0, "offset": 1.0}
"""Numbers in units of Y to a power."""


def number_columns(argument: str, value: Any, rows: int, outputs: int) -> np.ndarray:
    """The columns of one argument of `build`, [N, 1]; known noise, offsets and logs of exposures
    [N, P].

    :param argument: "sample_weight", "offset", "exposure", "noise_variance", "trials" or
        "censored".
    :param value: [N], or [N, 1], or [N, P].
    :param rows: N.
    :param outputs: P.
    """
    values = as_values(value, argument).astype(np.float64)
    block = values[:, None] if values.ndim == 1 else values
    width = outputs if argument in _OF_OUTPUTS else 1
    if block.ndim != 2 or len(block) != rows or block.shape[1] not in (1, width):
        raise DataError(f"{argument} has shape {values.shape}; pass a number per row, [{rows}].")
    block = np.repeat(block, width, axis=1) if block.shape[1] < width else block
    if not np.all(np.isfinite(block)):
        row, column = np.argwhere(~np.isfinite(block))[0]
        raise DataError(f"{argument} of row {row} is {block[row, column]}; pass a finite number.")
    if argument == "exposure":
        if not np.all(block > 0.0):
            raise DataError("exposure has entries that are not positive; leave these rows out.")
        return np.log(block)
    return block


@dataclass(frozen=True)
class RowNumbers:
    """The last columns of Y [N, P + k], for a `likelihoods.RowLikelihood`."""

    outputs: int
    """P"""
    names: tuple[str, ...]
    """Of the columns, [k], as in `RowLikelihood.numbers`."""
    columns: tuple[tuple[str, Hashable], ...] = ()
    """Arguments of `build` and the columns of a data frame that have them, for those in columns."""

    def complete(self, Y: TensorType) -> TensorType:
        """Y with all columns; rows whose numbers are not given are like any other.

        :param Y: [..., P] or [..., P + k].
        """
        columns = Y.shape[-1]
        if columns == self.outputs + len(self.names):
            return Y
        if columns != self.outputs:
            raise DataError(
                f"Y has {columns} columns; pass {self.outputs}, and then, if they are known,"
                f" {', '.join(self.names)}."
            )
        Y = tf.cast(tf.convert_to_tensor(Y), default_float())
        ones = tf.ones_like(Y[..., :1])
        return tf.concat([Y, *(NEUTRAL[name] * ones for name in self.names)], axis=-1)

    def of_frame(self, frame: Any) -> np.ndarray | None:
        """The numbers [N, k] of a data frame, or None where it does not have all of them."""
        known = {ARGUMENTS[argument] for argument, name in self.columns if name in frame.columns}
        if known != set(self.names):
            return None
        parts = [
            number_columns(argument, frame[name].to_numpy(), len(frame), self.outputs)
            for argument, name in self.columns
        ]
        return np.hstack(parts)

    def of_new(self, X: Any, rows: int, given: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The numbers of new rows by name, [N, 1] or [N, P]: the arguments that are given, else the
        columns of training that a frame has; rows are like any other in what neither says.

        :param X: as the caller passed it.
        :param rows: N.
        :param given: by argument, arrays or names of columns; None where not given.
        """
        given, found = {key: one for key, one in given.items() if one is not None}, {}
        names = [ARGUMENTS[argument] for argument in given]
        if len(set(names)) < len(names):
            raise DataError("offset and exposure are both given: pass one.")
        columns = X.columns if is_frame(X) else ()
        usual = {
            argument: column
            for argument, column in self.columns
            if column in columns and ARGUMENTS[argument] not in names
        }
        for argument, value in (usual | given).items():
            name = ARGUMENTS[argument]
            if name not in self.names:
                raise DataError(
                    f"the model was built without {argument}, and has no place for it: build it"
                    f" with {argument}=, of 0 or 1 in all rows where it is not known."
                )
            if argument in usual or isinstance(value, str):
                if value not in columns:
                    raise DataError(f"{argument}={value!r} is no column of X; pass numbers, [N].")
                value = X[value].to_numpy()
            found[name] = number_columns(argument, value, rows, self.outputs)
            if name == "trials" and not np.all(found[name] >= 1.0):
                raise DataError("trials has entries that are below 1; leave these rows out.")
        return found

    def in_columns(self, found: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
        """The numbers of `of_new` in the order of the columns, [N, k]."""
        return np.hstack(
            [
                found.get(name, np.full((rows, self.names.count(name)), NEUTRAL[name]))
                for name in dict.fromkeys(self.names)
            ]
        )

    def by_name(self, Y: np.ndarray) -> dict[str, np.ndarray]:
        """The numbers of Y [N, P + k] by name, [N, 1], or [N, P] where outputs have their own."""
        return {
            name: Y[:, [self.outputs + place for place in self._places(name)]]
            for name in self.names
        }

    def differ(self, Y: np.ndarray) -> bool:
        """True unless all rows of Y [N, P + k] have the numbers of a row like any other."""
        usual = [NEUTRAL[name] for name in self.names]
        return bool(np.any(Y[:, self.outputs :] != usual))

    def measured(self, Y: TensorType) -> TensorType:
        """[..., 1], False where Y [..., P + k] is a limit: the mass beyond it has no units."""
        if "censored" not in self.names:
            return np.array([True])
        place = self.outputs + self.names.index("censored")
        return Y[..., place : place + 1] == 0.0

    def offsets(self, Y: TensorType) -> TensorType:
        """The offsets [..., P] in the columns of Y [..., P + k]; 0 if it has none."""
        places = [self.outputs + place for place in self._places("offset")]
        return Y[..., places[0] : places[-1] + 1] if places else np.zeros(1)

    def _places(self, name: str) -> list[int]:
        return [place for place, one in enumerate(self.names) if one == name]

    def transform(self, Y: TensorType, outputs: Standardization) -> tf.Tensor:
        """Y [..., P + k] with standardised outputs, and offsets and noise in their units."""
        y = outputs.transform(Y[..., : self.outputs])
        return tf.concat([y, self._numbers(Y, outputs, -1.0, y.dtype)], axis=-1)

    def inverse_transform(self, Y: TensorType, outputs: Standardization) -> tf.Tensor:
        """The inverse of `transform`."""
        y = outputs.inverse_transform(Y[..., : self.outputs])
        return tf.concat([y, self._numbers(Y, outputs, 1.0, y.dtype)], axis=-1)

    def _numbers(
        self, Y: TensorType, outputs: Standardization, power: float, dtype: tf.DType
    ) -> tf.Tensor:
        numbers = tf.cast(Y[..., self.outputs :], dtype)
        factor, scale = np.ones(len(self.names)), outputs.scale.numpy()
        for name, units in _UNITS.items():
            places = self._places(name)
            factor[places] = scale[: len(places)] ** (power * units)
        return numbers * tf.constant(factor, dtype)
