"""Where the minibatches of a run come from: arrays in memory, or a `tf.data.Dataset` larger than it."""

from __future__ import annotations

__all__ = ["ArrayBatches", "DatasetBatches", "make_batches"]

import zlib
from numbers import Integral
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.likelihoods import Likelihood

from ..errors import DataError
from ..inducing.variables import input_dims
from ..likelihoods import check_labels
from ..models import BasisGP
from ..models.checks import check_shapes_of_data, check_values, warn_of_values

Batch = tuple[tf.Tensor, tf.Tensor]

DEFAULT_BATCH = 1024


class ArrayBatches:
    """Minibatches of arrays, without replacement within an epoch, each a function of (seed, step) alone.

    :param X: [N, D]. :param Y: [N, P]. :param batch_size: rows of a batch; None takes all, "auto" at most 1024.
    Raises `DataError` for a batch larger than the data.
    """

    def __init__(self, X: tf.Tensor, Y: tf.Tensor, batch_size: int | None | str, seed: int) -> None:
        self.X, self.Y, self.seed = X, Y, seed
        self.num_data = int(X.shape[0])
        if batch_size == "auto":
            batch_size = min(DEFAULT_BATCH, self.num_data)
        elif batch_size is not None and (not isinstance(batch_size, Integral) or batch_size < 1):
            raise DataError(
                f'batch_size={batch_size!r} must be a whole number of at least 1, None for all rows, or "auto".'
            )
        if batch_size is not None and batch_size > self.num_data:
            raise DataError(
                f"batch_size={batch_size} is larger than the data, which have {self.num_data} rows; use None."
            )
        self.batch_size = self.num_data if batch_size is None else batch_size
        self._epoch: int | None = None
        self._order = np.arange(self.num_data)

    @property
    def checkpointable(self) -> dict[str, Any]:
        """Nothing: the batches follow from the seed and the step."""
        return {}

    @property
    def settings(self) -> dict[str, Any]:
        """What must be the same for a run to go on."""
        digest = zlib.crc32(self.Y.numpy().tobytes(), zlib.crc32(self.X.numpy().tobytes()))
        return {"num_data": self.num_data, "batch_size": self.batch_size, "checksum of the data": digest}

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

    Shuffling and batching are the dataset's own. There is one iterator, since a second one, to look at the data first,
    would change the order of a shuffled dataset. Raises `DataError` for a dataset without batches, a first batch that
    is not finite, and labels outside the likelihood's support; later batches that are not finite make the step fail.
    """

    def __init__(self, dataset: tf.data.Dataset, num_data: int, likelihood: Likelihood) -> None:
        self.num_data, self.likelihood = num_data, likelihood
        self.iterator = iter(dataset.repeat())
        self._is_first = True

    @property
    def checkpointable(self) -> dict[str, Any]:
        """The place in the dataset."""
        return {"iterator": self.iterator}

    @property
    def settings(self) -> dict[str, Any]:
        """What must be the same for a run to go on."""
        return {"num_data": self.num_data}

    def __call__(self, step: int) -> Batch:
        """The next batch: X [B, D], Y [B, P]."""
        batch = next(self.iterator, None)
        if batch is None:
            raise DataError("The dataset has no batches; check what it is made from.")
        X, Y = batch
        labels = Y.numpy()
        if self._is_first:
            check_values(X.numpy(), labels, self.likelihood)
        elif np.all(np.isfinite(labels)):
            check_labels(self.likelihood, labels)
        self._is_first = False
        return X, Y


def make_batches(
    model: BasisGP, data: tuple | tf.data.Dataset, batch_size: int | None | str, seed: int
) -> ArrayBatches | DatasetBatches:
    """Check the data and wrap them. Arrays are checked in full, a dataset by its types and as it goes.

    Raises `DataError` for unusable data, a dataset without `num_data`, or a `num_data` that is not that of the arrays.
    """
    if isinstance(data, tf.data.Dataset):
        return _dataset_batches(model, data, batch_size)
    if not (isinstance(data, (tuple, list)) and len(data) == 2):
        raise DataError(f"data is a {type(data).__name__}; pass (X, Y), or a tf.data.Dataset of such pairs.")
    X, Y = model.as_tensors(data)
    check_values(X.numpy(), Y.numpy(), model.likelihood)
    if model.num_data is not None and int(model.num_data) != X.shape[0]:
        raise DataError(
            f"num_data={int(model.num_data)} and the data have {X.shape[0]} rows; if these are all data, set "
            f"model.num_data = {X.shape[0]}."
        )
    batches = ArrayBatches(X, Y, batch_size, seed)
    warn_of_values(X.numpy(), Y.numpy(), model.likelihood)
    return batches


def _dataset_batches(model: BasisGP, dataset: tf.data.Dataset, batch_size: int | None | str) -> DatasetBatches:
    if model.num_data is None:
        raise DataError("A dataset does not tell its size in rows: pass num_data=N to the model.")
    if batch_size is not None and batch_size != "auto":
        raise DataError(
            f"batch_size={batch_size} is for arrays; a dataset brings its own: use dataset.batch({batch_size})."
        )
    spec = dataset.element_spec
    if not (isinstance(spec, tuple) and len(spec) == 2 and all(isinstance(part, tf.TensorSpec) for part in spec)):
        raise DataError(f"The dataset's elements are {spec}; they must be pairs (X [B, D], Y [B, P]).")
    if spec[0].shape.rank == 1:
        raise DataError("The dataset gives single observations, not batches: use dataset.batch(1024).")
    check_shapes_of_data(*spec, model.likelihood, model.num_outputs, input_dims(model.basis.beta))
    return DatasetBatches(dataset, int(model.num_data), model.likelihood)
