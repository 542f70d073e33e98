"""Where the minibatches of a run come from: arrays in memory, or a `tf.data.Dataset` larger than it."""
from __future__ import annotations

__all__ = ["ArrayBatches", "DatasetBatches", "make_batches"]

from typing import Any, Optional, Union

import numpy as np
import tensorflow as tf

from ..errors import DataError
from ..models import BasisGP
from ..models.checks import check_values

Batch = tuple[tf.Tensor, tf.Tensor]


class ArrayBatches:
    """Minibatches of arrays, without replacement within an epoch, each a function of (seed, step) alone.

    :param X: [N, D]. :param Y: [N, P]. :param batch_size: rows of a batch; None takes all.
    Raises `DataError` for a batch larger than the data.
    """

    def __init__(self, X: tf.Tensor, Y: tf.Tensor, batch_size: Optional[int], seed: int) -> None:
        self.X, self.Y, self.seed = X, Y, seed
        self.num_data = int(X.shape[0])
        if batch_size is not None and batch_size > self.num_data:
            raise DataError(f"batch_size={batch_size} is larger than the data, which have {self.num_data} rows; use None.")
        if batch_size is not None and batch_size < 1:
            raise DataError(f"batch_size={batch_size}; use at least 1, or None for all rows.")
        self.batch_size = self.num_data if batch_size is None else batch_size
        self._epoch: Optional[int] = None
        self._order = np.arange(self.num_data)

    @property
    def checkpointable(self) -> dict[str, Any]:
        """Nothing: the batches follow from the seed and the step."""
        return {}

    def __call__(self, step: int) -> Batch:
        """The batch of step 0, 1, ...: X [B, D], Y [B, P]."""
        if self.batch_size == self.num_data:
            return self.X, self.Y
        epoch, place = divmod(step, self.num_data // self.batch_size)
        if epoch != self._epoch:
            self._order = np.random.default_rng([self.seed, epoch]).permutation(self.num_data)
            self._epoch = epoch
        rows = self._order[place * self.batch_size : (place + 1) * self.batch_size]
        return tf.gather(self.X, rows), tf.gather(self.Y, rows)


class DatasetBatches:
    """The batches of a `tf.data.Dataset` of (X, Y), in its order, from the start again when it ends.

    Shuffling and batching are the dataset's own. Raises `DataError` for a dataset without batches.
    """

    def __init__(self, dataset: tf.data.Dataset, num_data: int) -> None:
        self.dataset, self.num_data = dataset, num_data
        self.iterator = iter(dataset)

    @property
    def checkpointable(self) -> dict[str, Any]:
        """The place in the dataset."""
        return {"iterator": self.iterator}

    def __call__(self, step: int) -> Batch:
        """The next batch: X [B, D], Y [B, P]."""
        try:
            return next(self.iterator)
        except StopIteration:
            self.iterator = iter(self.dataset)
        try:
            return next(self.iterator)
        except StopIteration:
            raise DataError("The dataset has no batches; check what it is made from.") from None


def make_batches(
    model: BasisGP, data: Union[tuple, tf.data.Dataset], batch_size: Optional[int], seed: int
) -> Union[ArrayBatches, DatasetBatches]:
    """Check the data and wrap them. Arrays are checked in full, a dataset by its first batch.

    Raises `DataError` for unusable data, a dataset without `num_data`, or a `num_data` that is not that of the arrays.
    """
    if isinstance(data, tf.data.Dataset):
        if model.num_data is None:
            raise DataError("A dataset does not tell its size in rows: pass num_data=N to the model.")
        X, Y = model.as_tensors(next(iter(data.take(1))))
        check_values(X.numpy(), Y.numpy(), model.likelihood)
        return DatasetBatches(data, int(model.num_data))
    if not (isinstance(data, (tuple, list)) and len(data) == 2):
        raise DataError(f"data is a {type(data).__name__}; pass (X, Y), or a tf.data.Dataset of such pairs.")
    X, Y = model.as_tensors(data)
    check_values(X.numpy(), Y.numpy(), model.likelihood)
    if model.num_data is not None and int(model.num_data) != X.shape[0]:
        raise DataError(f"num_data={int(model.num_data)} and the data have {X.shape[0]} rows; leave num_data out, or fix it.")
    return ArrayBatches(X, Y, batch_size, seed)
