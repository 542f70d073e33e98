"""Shift and scale of columns."""

from __future__ import annotations

__all__ = [
    "ARGUMENTS", "NormalScores", "RowNumbers", "Standardization", "as_matrix",
    "checked_columns", "number_columns",
]  # fmt: skip

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from gpflow.base import TensorType
from gpflow.config import default_float
from scipy.special import ndtri

from ..errors import DataError
from ..inputs import as_array, as_values, use_column
from ..likelihoods.row_likelihood import NEUTRAL
from ..summaries import one_line
from ..user_warnings import warn_user
from .tables import check_order, is_frame

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


# ---
# Numbers of each row beside the outputs, such as weights.


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


# ---
# Columns by their ranks.


_KNOTS = 500
"""Most distinct values of a column that are mapped exactly; between them the map is linear."""


class NormalScores(tf.Module):
    """Columns by their ranks: rank r among N becomes the normal quantile of (r - 1/2) / N.

    For columns with heavy tails or clusters. Each map is increasing and piecewise linear, also
    beyond the data.

    :param array: the training data [N, D], at least two rows.
    :param name: of the array, for messages.
    :param fixed: [D], true for columns to leave unchanged.
    :param weights: how much each row counts, [N, 1].

    Cost: D N log N; `transform` takes D log 500 a row. The maps are saved with a
    `tf.train.Checkpoint`. Example::

        inputs = NormalScores(X, "X")
        inputs.transform(X_new)
    """

    def __init__(
        self,
        array: npt.ArrayLike,
        name: str = "X",
        fixed: npt.ArrayLike = False,
        *,
        weights: npt.ArrayLike = 1.0,
    ) -> None:
        super().__init__()
        self._of = name
        values = checked_columns(array, name)
        fixed = np.broadcast_to(np.asarray(fixed, bool), values.shape[1:])
        rows = np.broadcast_to(np.asarray(weights, np.float64), (len(values), 1))[:, 0]
        pairs = [_identity() if stays else _knots(x, rows) for x, stays in zip(values.T, fixed)]
        longest = max(len(x) for x, _ in pairs)
        x, z = (np.stack([_padded(one, longest) for one in part]) for part in zip(*pairs))
        self.values = tf.Variable(x, trainable=False, dtype=tf.float64)
        """Increasing values of each column, [D, Q]."""
        self.scores = tf.Variable(z, trainable=False, dtype=tf.float64)
        """Normal scores of the knots, [D, Q]."""

    def __repr__(self) -> str:
        return one_line(self, self._of, columns=int(self.values.shape[0]))

    def transform(self, array: TensorType) -> tf.Tensor:
        """The normal scores of an array [..., D], of GPflow's default float type."""
        return _mapped(self.values, self.scores, as_matrix(array, self._of, self.values.shape[0]))

    def inverse_transform(self, array: TensorType) -> tf.Tensor:
        """An array [..., D] in the units of the data, from its normal scores."""
        return _mapped(self.scores, self.values, as_matrix(array, self._of, self.values.shape[0]))


def _knots(column: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x, place = np.unique(column, return_inverse=True)
    counts = np.bincount(place, weights)
    if len(x) == 1:  # nothing to spread
        return np.array([x[0], x[0] + 1.0]), np.array([0.0, 1.0])
    share = (np.cumsum(counts) - 0.5 * counts) / np.sum(counts)
    if len(x) > _KNOTS:
        kept = np.unique(np.searchsorted(share, np.linspace(share[0], share[-1], _KNOTS)))
        x, share = x[kept], share[kept]
    z = ndtri(share)
    ends = [np.array([one[0] - np.ptp(one), one[-1] + np.ptp(one)]) for one in (x, z)]
    x, z = (np.concatenate([e[:1], one, e[1:]]) for e, one in zip(ends, (x, z)))
    return x, z


def _identity() -> tuple[np.ndarray, np.ndarray]:
    return np.array([0.0, 1.0]), np.array([0.0, 1.0])


def _padded(values: np.ndarray, length: int) -> np.ndarray:
    steps = np.arange(1, length - len(values) + 1)
    return np.concatenate([values, values[-1] + steps * (values[-1] - values[-2])])


def _mapped(knots: tf.Tensor, targets: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    knots, targets = tf.convert_to_tensor(knots), tf.convert_to_tensor(targets)
    columns = int(knots.shape[0])
    flat = tf.transpose(tf.reshape(values, [-1, columns]))
    above = tf.clip_by_value(tf.searchsorted(knots, flat), 1, int(knots.shape[1]) - 1)
    (x0, x1), (z0, z1) = (
        [tf.gather(part, at, batch_dims=1) for at in (above - 1, above)]
        for part in (knots, targets)
    )
    found = z0 + (flat - x0) * (z1 - z0) / (x1 - x0)
    return tf.cast(tf.reshape(tf.transpose(found), tf.shape(values)), default_float())
