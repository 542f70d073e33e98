"""Shift and scale of columns."""

from __future__ import annotations

__all__ = ["Standardization", "as_matrix", "checked_columns"]

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from gpflow.base import TensorType
from gpflow.config import default_float

from ..errors import DataError
from ..inputs import as_array, as_values, use_column
from ..summaries import one_line
from ..user_warnings import warn_user

_DIGITS = 8.0 * np.finfo(np.float64).eps
"""Range of a column, relative to its size, below which it varies by nothing but round-off."""
_LARGEST = 1e150
"""The largest entry of Y, whose square, as of a variance, is far from overflow."""


class Standardization(tf.Module):
    """Columns less their mean, over their standard deviation: z = (x - mean) / scale.

    A constant column is shifted to 0 and keeps its scale.

    :param array: the training data [N, D], at least two rows.
    :param name: of the array, for messages.
    :param fixed: [D], true for columns to leave unchanged, such as indices.
    :param gaps: NaN entries are allowed, and count for nothing.
    :param weights: how much each entry counts, [N, D], or [N, 1].

    Example::

        inputs = Standardization(X, "X")
        inputs.transform(X_new)  # the new rows, by mean and standard deviation of X
    """

    def __init__(
        self,
        array: npt.ArrayLike,
        name: str = "X",
        fixed: npt.ArrayLike = False,
        gaps: bool = False,
        weights: npt.ArrayLike = 1.0,
    ) -> None:
        super().__init__()
        self._of = name
        values = checked_columns(array, name, gaps)
        if gaps:
            _check_seen(values, name)
        share = ~np.isnan(values) * np.asarray(weights, np.float64)
        share /= np.sum(share, axis=0)
        values = np.where(np.isnan(values), np.nanmean(values, axis=0), values) if gaps else values
        largest = np.max(np.abs(values), axis=0)
        # numbers below the smallest normal one are zero to TensorFlow, and so would be the scale
        smallest = 8.0 * np.finfo(np.float64).tiny
        constant = np.ptp(values, axis=0) <= np.maximum(_DIGITS * largest, smallest)
        fixed = np.broadcast_to(np.asarray(fixed, bool), largest.shape)
        for column in np.flatnonzero(~fixed & constant & np.any(values != values[:1], axis=0)):
            warn_user(
                f"{name}[:, {column}] is {values[0, column]:.6g} and differs in its last digits"
                " only: taken as constant."
            )
        mean = np.where(
            constant,
            values[0],
            np.sum(share * (values / np.maximum(largest, 1.0)), axis=0) * np.maximum(largest, 1.0),
        )
        centred = values - mean
        size = np.where(constant, 1.0, np.max(np.abs(centred), axis=0))
        spread = size * np.sqrt(np.sum(share * np.square(centred / size), axis=0))
        scale = np.where(constant | (spread <= smallest), 1.0, spread)
        self.mean = tf.Variable(np.where(fixed, 0.0, mean), trainable=False, dtype=tf.float64)
        self.scale = tf.Variable(np.where(fixed, 1.0, scale), trainable=False, dtype=tf.float64)

    def __repr__(self) -> str:
        return one_line(self, self._of, columns=int(self.mean.shape[0]))

    def transform(self, array: TensorType) -> tf.Tensor:
        """Return an array [..., D] in standard deviations from the mean, of GPflow's default float
        type.
        """
        values = as_matrix(array, self._of, self.mean.shape[0])
        return tf.cast((values - self.mean) / self.scale, default_float())

    def inverse_transform(self, array: TensorType) -> tf.Tensor:
        """A standardised array [..., D] in the units of the data."""
        return tf.cast(_float64(array, self._of) * self.scale + self.mean, default_float())


def as_matrix(array: TensorType, name: str, columns: int) -> tf.Tensor:
    """An array [..., D] in float64; raises `DataError` for another number of columns."""
    values = _float64(array, name)
    if values.shape.rank is not None and (
        values.shape.rank < 2 or values.shape[-1] not in (None, columns)
    ):
        fix = f" Use {name}[:, None]." if values.shape.rank == 1 and columns == 1 else ""
        raise DataError(
            f"{name} has shape {tuple(values.shape)}; it must be a matrix of {columns}"
            f" columns, as in training.{fix}"
        )
    return values


def _float64(array: TensorType, name: str) -> tf.Tensor:
    return tf.cast(as_array(array, name), tf.float64)


def _check_seen(values: np.ndarray, name: str) -> None:
    if np.any(empty := np.isnan(values).all(axis=0)):
        column = int(np.flatnonzero(empty)[0])
        raise DataError(
            f"{name}[:, {column}] is NaN in all rows: nothing of this output is observed. Drop it:"
            f" {name} = np.delete({name}, {column}, axis=1)."
        )


def checked_columns(array: npt.ArrayLike, name: str, gaps: bool = False) -> np.ndarray:
    """The array [N, D] in float64; raises `DataError` for others, and for fewer than two rows.

    With `gaps` entries may be NaN.
    """
    values = as_values(array, name)
    if values.ndim != 2:
        fix = use_column(name) if values.ndim == 1 else f"{name} must be a matrix"
        raise DataError(f"{name} has shape {values.shape}; {fix}.")
    if values.shape[1] == 0:
        raise DataError(f"{name} has no columns; pass a matrix with at least one.")
    if values.dtype.kind not in "fiub":
        raise DataError(f"{name} holds {values.dtype} values; encode them as numbers.")
    if len(values) < 2:
        raise DataError(
            f"{name} has {len(values)} row(s): no scale can be learned from that; pass two rows at"
            " least."
        )
    values = values.astype(np.float64)
    bad = ~np.isfinite(values) & ~(gaps & np.isnan(values))
    if np.any(bad):
        row, column = np.argwhere(bad)[0]
        raise DataError(
            f"{name}[{row}, {column}] is {values[row, column]}; remove or impute rows that are not"
            " finite."
        )
    too_large = np.abs(values) > _LARGEST
    if name == "Y" and np.any(too_large):
        row, column = np.argwhere(too_large)[0]
        raise DataError(
            f"{name}[{row}, {column}] is {values[row, column]:.3g}, whose square no float64 holds,"
            f" and neither would a variance: divide {name} by {np.max(np.abs(values)):.0e}."
        )
    return values
