"""Minibatches of arrays that stay on disk."""

from __future__ import annotations

__all__ = ["DiskBatches"]

import zlib
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from ...errors import DataError
from ...models import BasisGP
from ...models.checks import check_shapes_of_data, check_values, warn_of_values
from .arrays import RowOrder
from .base import Batch, Batches

_BLOCK = 8192
"""Rows that are read at a time."""
_SAMPLE = 10_000
"""Rows that the scales of the data are judged by."""


class DiskBatches(Batches):
    """Minibatches as in `ArrayBatches`, of arrays whose rows are read when needed.

    All entries are checked before the first step. Memory: a batch of rows, a sample of 10,000, and
    8 N bytes.

    :param data: X [N, D] and Y [N, P] with a shape, a dtype and slices, as `numpy.memmap` or in
        HDF5 files.
    """

    batch_size: int

    def __init__(self, model: BasisGP, data: tuple[np.ndarray, np.ndarray], rows: RowOrder) -> None:
        self.model, self.num_data, self.batch_size = model, rows.num_data, rows.batch_size
        self._X, self._Y = data
        self._rows = rows
        check_shapes_of_data(
            self._X, self._Y, model.likelihood, model.num_outputs, model.num_dims, model.float_type
        )
        self.sample = self._checked()
        """Rows of X and Y at regular distances"""

    @property
    def settings(self) -> dict[str, object]:
        digest = 0
        for name in "XY":
            for X, Y in self._blocks():
                digest = zlib.crc32((X if name == "X" else Y).numpy().tobytes(), digest)
        return {
            "num_data": self.num_data,
            "batch_size": self.batch_size,
            "checksum of the data": digest,
        }

    def __call__(self, step: int) -> Batch:
        rows = self._rows(step)
        order = np.argsort(rows)
        places = np.argsort(order)
        X, Y = self._read(rows[order])
        return tf.gather(X, places), tf.gather(Y, places)

    def _read(self, rows: np.ndarray | slice) -> Batch:
        return self.model.as_tensors((np.asarray(self._X[rows]), np.asarray(self._Y[rows])))

    def _blocks(self) -> Iterator[Batch]:
        for start in range(0, self.num_data, _BLOCK):
            yield self._read(slice(start, start + _BLOCK))

    def _checked(self) -> tuple[np.ndarray, np.ndarray]:
        stride = -(-self.num_data // _SAMPLE)
        parts: list[tuple[np.ndarray, np.ndarray]] = []
        extremes: list[tuple[np.ndarray, np.ndarray]] = []
        for number, block in enumerate(self._blocks()):
            X, Y = (part.numpy() for part in block)
            try:
                check_values(
                    X, Y, self.model.likelihood, self.model.kernel, self.model.mean_function
                )
            except DataError as error:
                raise DataError(
                    f"In the rows from {number * _BLOCK} on, which count as 0, 1, ... here: {error}"
                ) from error
            skip = -(number * _BLOCK) % stride
            parts.append((X[skip::stride], Y[skip::stride]))
            extremes.append((np.stack([X.min(0), X.max(0)]), np.stack([Y.min(0), Y.max(0)])))
        low_high = [np.concatenate(ends) for ends in zip(*extremes)]
        warn_of_values(low_high[0], low_high[1], self.model.likelihood)
        X, Y = (np.concatenate(part) for part in zip(*parts))
        return X, Y
