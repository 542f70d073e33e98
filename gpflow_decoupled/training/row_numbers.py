"""Numbers of each row beside the outputs, such as weights."""

from __future__ import annotations

__all__ = ["ARGUMENTS", "RowNumbers", "number_columns"]

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType
from gpflow.config import default_float

from ..errors import DataError
from ..inputs import as_values
from ..likelihoods.row_likelihood import NEUTRAL
from .standardization import Standardization
from .tables.table import check_order, is_frame

ARGUMENTS = {
    "sample_weight": "weight", "offset": "offset", "exposure": "offset", "noise_variance": "noise",
    "trials": "trials", "censored": "censored",
}  # fmt: skip
"""Names of numbers by the arguments of `build`."""
_OF_OUTPUTS = ("noise_variance", "offset", "exposure")
"""Arguments with a column for each output."""
_UNITS = {"noise": 2.0, "offset": 1.0}
"""Numbers in units of Y to a power."""
_TINY = np.finfo(np.float64).tiny


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
    level: float = 1.0
    """The mean weight of the rows that a model was built from, by which weights are divided."""

    def weights(self, numbers: np.ndarray) -> np.ndarray | None:
        """Weights [N] among the numbers [N, k] of rows, or None."""
        return numbers[:, self.names.index("weight")] if "weight" in self.names else None

    def learned(self, Y: np.ndarray) -> RowNumbers:
        """The same with the level of the weights in Y [N, P + k]."""
        weights = self.weights(Y[:, self.outputs :])
        return self if weights is None else replace(self, level=float(np.mean(weights)))

    def information(self, Y: np.ndarray) -> np.ndarray:
        """How much an entry of Y [N, P + k] says about means and scales, [N, P].

        A weight, times (v / (v + s2))^2 where noise s2 is known: the precision of a squared
        residual. v is the variance of y in the sqrt(N) rows of least noise, and in others of as
        little.
        """
        found = self.by_name(Y)
        for name, values in found.items():
            bad = ~(np.isfinite(values) & (values >= 0.0))
            if name in ("weight", "noise") and np.any(bad):
                row, column = np.argwhere(bad)[0]
                argument = {"weight": "sample_weight", "noise": "noise_variance"}[name]
                raise DataError(
                    f"{argument} of row {row} is {values[row, column]:g}; pass a finite number of"
                    " at least 0."
                )
        weight = np.ones((len(Y), self.outputs)) * found.get("weight", 1.0)
        if "noise" not in found:
            return weight
        noise, y = found["noise"], Y[:, : self.outputs] - self.offsets(Y)
        known = np.where(np.isfinite(y), noise, np.inf)
        most = np.sort(known, axis=0)[int(np.ceil(np.sqrt(len(Y)))) - 1]
        seen = np.isfinite(y) & (known <= most)
        count = np.maximum(np.sum(seen, axis=0), 1)
        residual = np.where(seen, y - np.sum(np.where(seen, y, 0.0), axis=0) / count, 0.0)
        v = np.maximum(np.sum(np.square(residual), axis=0) / count, _TINY)
        return weight * np.square(v / (v + noise))

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
        usual = {**NEUTRAL, "weight": self.level}
        return tf.concat([Y, *(usual[name] * ones for name in self.names)], axis=-1)

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
        check_order(X=X, **given)
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
        """True unless all rows of a transformed Y [N, P + k] have the numbers of any other."""
        usual = [NEUTRAL[name] for name in self.names]
        return not np.allclose(Y[:, self.outputs :], usual)

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

    def transform(self, Y: TensorType, outputs: Standardization | None) -> tf.Tensor:
        """Y [..., P + k] with weights of mean 1 and, unless `outputs` is None, standardised
        outputs, and offsets and noise in their units.
        """
        y = Y[..., : self.outputs]
        return self._joined(y if outputs is None else outputs.transform(y), Y, outputs, -1.0)

    def inverse_transform(self, Y: TensorType, outputs: Standardization | None) -> tf.Tensor:
        """The inverse of `transform`."""
        y = Y[..., : self.outputs]
        return self._joined(y if outputs is None else outputs.inverse_transform(y), Y, outputs, 1.0)

    def _joined(
        self, y: TensorType, Y: TensorType, outputs: Standardization | None, power: float
    ) -> tf.Tensor:
        factor = np.ones(len(self.names))
        factor[self._places("weight")] = self.level**power
        if outputs is not None:
            scale = outputs.scale.numpy()
            for name, units in _UNITS.items():
                places = self._places(name)
                factor[places] = scale[: len(places)] ** (power * units)
        y, numbers = (tf.cast(part, default_float()) for part in (y, Y[..., self.outputs :]))
        return tf.concat([y, numbers * tf.constant(factor, y.dtype)], axis=-1)
