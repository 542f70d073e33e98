"""Data in their units, and as a model of standardised data sees them."""

from __future__ import annotations

__all__ = ["DataInUnits"]

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType
from gpflow.config import default_float
from gpflow.models import GPModel

from ...errors import DataError
from ...replicas import starts_passes
from ...user_warnings import warn_user
from ..batches import Data, Passes
from ..normal_scores import NormalScores
from ..row_numbers import RowNumbers
from ..standardization import Standardization
from ..tables import Table


class DataInUnits(tf.Module):
    """The scalings of X and Y, and the data that a `model` inside was built from.

    `inputs` is the scaling of X, `outputs` that of Y, None if Y stays; `table` has the columns of a
    frame, and `numbers` what follows Y in its columns.
    """

    model: GPModel
    table: Table
    inputs: Standardization | NormalScores
    outputs: Standardization | None
    numbers: RowNumbers | None
    _X: np.ndarray
    """[N, D], and `_Y` [N, P], as the model inside sees them."""
    _Y: np.ndarray

    @property
    def column_names(self) -> tuple[Sequence[object], Sequence[object]]:
        """Names of the columns of X and of Y, none where they were arrays."""
        return self.table.names, self.table.targets

    @property
    def training_data(self) -> tuple[tf.Tensor, tf.Tensor]:
        """X [N, D] and Y [N, P] that the model was built from, in original units."""
        X, Y = self.inputs.inverse_transform(self._X), self._Y
        if self.numbers is not None:
            return X, self.numbers.inverse_transform(Y, self.outputs)
        return X, Y if self.outputs is None else self.outputs.inverse_transform(Y)

    def encoded(self, Xnew: object) -> tf.Tensor:
        """Inputs [..., N, D], a frame or an array, as the model inside sees them.

        :raises DataError: for a frame that lacks a column, by its name, and other numbers of
            columns.
        """
        return self.inputs.transform(self.table.inputs(Xnew))

    @property
    def shape(self) -> tuple[int, int]:
        """N and D of the data that the model was built from."""
        return self._X.shape[0], self._X.shape[1]

    @property
    def _data(self) -> tuple[np.ndarray, np.ndarray] | None:
        return None if hasattr(self.model, "data") else (self._X, self._Y)

    def _standardised(
        self, data: Sequence[TensorType], **given: object
    ) -> tuple[TensorType, TensorType]:
        X, Y = self._to_predict(data, given)
        return self.inputs.transform(X), self._seen(Y)

    def _to_predict(
        self, data: Sequence[TensorType], given: Mapping[str, object]
    ) -> tuple[TensorType, TensorType]:
        """X and Y, which ends with the numbers that are given or in the columns of a frame."""
        numbers = self.numbers
        if numbers is None:
            self.numbers_of(None, 0, given)  # refuses them
            return self.table.arrays(data)

        def of_frame(frame: Any) -> np.ndarray:
            found = numbers.of_new(frame, len(frame), given)
            return numbers.in_columns(found, len(frame))

        X, Y = self.table.arrays(data, of_frame)
        if any(one is not None for one in given.values()) and Y.shape[-1] == numbers.outputs:
            found = numbers.of_new(None, len(Y), given)
            Y = np.hstack([np.asarray(Y, np.float64), numbers.in_columns(found, len(Y))])
        return X, Y

    def numbers_of(self, X: Any, rows: int, given: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """`RowNumbers.of_new`, of none for a model without numbers of rows."""
        return (self.numbers or RowNumbers(self._Y.shape[1], ())).of_new(X, rows, given)

    def _arrays(self, data: Sequence[TensorType]) -> tuple[TensorType, TensorType]:
        of_rows = None if self.numbers is None else self.numbers.of_frame
        return self.table.arrays(data, of_rows)

    def _seen(self, Y: TensorType) -> TensorType:
        if self.numbers is not None:
            return self.numbers.transform(self.numbers.complete(Y), self.outputs)
        if self.outputs is not None:
            return self.outputs.transform(Y)
        kind = tf.as_dtype(Y.dtype)
        return tf.cast(Y, default_float()) if kind.is_floating else Y

    def _inside(self, data: Data) -> Data:
        if data is None:
            return self._data
        if isinstance(data, tf.data.Dataset):
            return data.map(lambda X, Y: self._to_train_on((X, Y)))
        if starts_passes(data):
            passes = cast(Passes, data)
            return lambda: (self._to_train_on(batch) for batch in passes())
        if callable(data):
            of_worker = cast("Callable[[tf.distribute.InputContext], tf.data.Dataset]", data)
            # the dataset of a worker is known only there
            return lambda context: self._inside(of_worker(context))
        inside = self._to_train_on(data)
        if self._data is None:
            self._check_own(*inside)
            return None
        return inside

    def _to_train_on(self, data: Sequence[TensorType]) -> tuple[TensorType, TensorType]:
        """X and Y as the model inside sees them; rows it was built from keep their numbers."""
        X, Y = self._arrays(data)
        if self.numbers is not None:
            X, Y = self._counted(X, Y, self.numbers)
        inside = self.inputs.transform(X), self._seen(Y)
        if self.numbers is None or Y.shape[-1] != self.numbers.outputs:
            return inside
        if not self._other_than_own(*inside, self.numbers.outputs):
            return self._X, self._Y
        if self.numbers.differ(self._Y):
            names = ", ".join(dict.fromkeys(self.numbers.names))
            warn_user(
                f"Y has no {names} of its rows, and the rows that the model was built from have:"
                f" these count like any other. Pass {names} as further columns of Y."
            )
        return inside

    def _counted(
        self, X: TensorType, Y: TensorType, numbers: RowNumbers
    ) -> tuple[TensorType, TensorType]:
        """X and Y [N, P] or [N, P + k] without rows of weight 0."""
        if tf.is_symbolic_tensor(X) or tf.is_symbolic_tensor(Y):
            return X, Y  # they add nothing to a bound
        counts = np.ones(len(Y), bool)
        if Y.shape[-1] != numbers.outputs:
            weights = numbers.weights(np.asarray(Y)[:, numbers.outputs :])
            counts = counts if weights is None else weights != 0.0
        elif len(Y) == len(self._Y) + len(self.table.weightless):
            counts[list(self.table.weightless)] = False
        return (X, Y) if counts.all() else (np.asarray(X)[counts], np.asarray(Y)[counts])

    def _other_than_own(self, X: TensorType, Y: TensorType, width: int | None = None) -> str:
        """The name of an array that is none of those it was built from, X or Y; else empty."""
        # width: columns of Y to compare.
        if tf.is_symbolic_tensor(X) or tf.is_symbolic_tensor(Y):
            return "X"
        for name, array, theirs in zip("XY", (X, Y), (self._X, self._Y)):
            values = np.asarray(array)
            if name == "Y":
                values, theirs = values[:, :width], theirs[:, :width]
            # up to the round-off of standardising twice
            if values.shape != theirs.shape or not np.allclose(
                values, theirs, rtol=1e-6, atol=1e-6, equal_nan=True
            ):
                return name
        return ""

    def _check_own(self, X: TensorType, Y: TensorType) -> None:
        kind = type(self.model).__name__
        if tf.is_symbolic_tensor(X) or tf.is_symbolic_tensor(Y):
            raise DataError(
                f"{kind} owns the {len(self._X)} rows that it was built from, and others cannot be"
                " compared with them inside of a tf.function: call elbo() there, without data."
            )
        if name := self._other_than_own(X, Y):
            raise DataError(
                f"{kind} owns the {len(self._X)} rows that it was built from, and {name} is"
                " another: call fit(model) for those rows, and build a new model of others."
            )
