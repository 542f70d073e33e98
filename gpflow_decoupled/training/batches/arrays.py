"""Minibatches of arrays in memory, and the order of their rows."""

from __future__ import annotations

__all__ = ["DEFAULT_BATCH", "ArrayBatches", "RowOrder", "checksum"]

import zlib
from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from ...errors import DataError
from ...inputs import is_whole
from ...summaries import short_repr
from .base import Batch, Batches

DEFAULT_BATCH = 1024
_OF_MANY_LATENTS = 256
"""With `_MANY` latents or more: each costs M^2 operations per row, and more steps on fewer rows
train faster per second.
"""
_MANY = 4


class RowOrder:
    """Rows of minibatches, without replacement within an epoch, a function of (seed, step) alone.

    :param batch_size: rows of a batch; None takes all rows, "auto" at most 1024, or 256 with four
        latents or more.
    :param latents: L, the latent functions of the model.
    """

    def __init__(
        self, num_data: int, batch_size: int | None | str, seed: int, latents: int = 1
    ) -> None:
        if batch_size == "auto":
            batch_size = min(_OF_MANY_LATENTS if latents >= _MANY else DEFAULT_BATCH, num_data)
        elif batch_size is not None and (
            isinstance(batch_size, str) or not is_whole(batch_size, 1)
        ):
            raise DataError(
                f"batch_size={short_repr(batch_size)} must be a whole number of at least 1, None"
                ' for all rows, or "auto".'
            )
        if batch_size is not None and batch_size > num_data:
            raise DataError(
                f"batch_size={batch_size} is larger than the data, which have {num_data} rows; use"
                " None."
            )
        self.num_data, self.seed = num_data, seed
        self.batch_size = num_data if batch_size is None else batch_size
        self._epoch: int | None = None
        self._order = np.arange(num_data)

    def __call__(self, step: int) -> np.ndarray:
        epoch, place = divmod(step, self.num_data // self.batch_size)
        if epoch != self._epoch:
            self._order = np.random.default_rng([self.seed, epoch]).permutation(self.num_data)
            self._epoch = epoch
        return self._order[place * self.batch_size : (place + 1) * self.batch_size]


class ArrayBatches(Batches):
    """Minibatches of X [N, D], Y [N, P], without replacement within an epoch.

    A batch depends on (seed, step) alone; sizes and errors as in `RowOrder`.
    """

    batch_size: int

    def __init__(
        self, X: tf.Tensor, Y: tf.Tensor, batch_size: int | None | str, seed: int, latents: int = 1
    ) -> None:
        self.X, self.Y, self.num_data = X, Y, int(X.shape[0])
        self._rows = RowOrder(self.num_data, batch_size, seed, latents)
        self.batch_size = self._rows.batch_size

    @property
    def whole(self) -> Batch | None:
        return (self.X, self.Y) if self.batch_size == self.num_data else None

    @property
    def settings(self) -> dict[str, object]:
        digest = checksum((self.X, self.Y))
        return {
            "num_data": self.num_data,
            "batch_size": self.batch_size,
            "checksum of the data": digest,
        }

    def __call__(self, step: int) -> Batch:
        if self.batch_size == self.num_data:
            return self.X, self.Y
        return self._rows_of_both(self._rows(step))

    def several(self, step: int, count: int) -> Batch:
        """Batches of `count` = K steps from step 0, 1, ... on: X [K, B, D], Y [K, B, P]."""
        if self.batch_size == self.num_data:
            return self._rows_of_both(np.tile(np.arange(self.num_data), [count, 1]))
        return self._rows_of_both(
            np.stack([self._rows(number) for number in range(step, step + count)])
        )

    def _rows_of_both(self, numbers: np.ndarray) -> Batch:
        rows = tf.convert_to_tensor(numbers)
        return _rows_of(self.X, rows), _rows_of(self.Y, rows)


def _rows_of(array: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Gather rows [...] of [N, D] in half of `tf.gather`'s time, which matters for short steps."""
    return tf.raw_ops.GatherV2(params=array, indices=rows, axis=0)


def checksum(arrays: Iterable[tf.Tensor]) -> int:
    """Return a number by which to recognise arrays of any shapes [...]."""
    digest = 0
    for array in arrays:
        digest = zlib.crc32(array.numpy().tobytes(), digest)
    return digest
