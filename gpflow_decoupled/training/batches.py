"""Where the minibatches of a run come from: arrays in memory, or a `tf.data.Dataset` that may be larger than memory."""

from __future__ import annotations

__all__ = ["ArrayBatches", "Batch", "Batches", "DatasetBatches", "checksum", "make_batches"]

import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from gpflow.likelihoods import Likelihood

from ..errors import DataError
from ..inputs import is_whole
from ..likelihoods import check_labels
from ..models import BasisGP
from ..models.checks import check_shapes_of_data, check_values, warn_of_values
from .step import Trackable

Batch = tuple[tf.Tensor, tf.Tensor]

DEFAULT_BATCH = 1024


class Batches(Protocol):
    """What the loop needs of the data: a batch for each step, and what a checkpoint must know of them."""

    num_data: int

    @property
    def whole(self) -> Batch | None:
        """All data, where every step sees all of them; else None."""
        ...

    @property
    def checkpointable(self) -> dict[str, Trackable]:
        """What a checkpoint saves to find the place in the data again, by name."""
        ...

    @property
    def settings(self) -> dict[str, object]:
        """What must be the same for a resumed run to go on, by name."""
        ...

    def __call__(self, step: int) -> Batch:
        """The batch of step 0, 1, ...: X [B, D], Y [B, P]."""
        ...


class ArrayBatches:
    """Minibatches of arrays, without replacement within an epoch, each a function of (seed, step) alone.

    :param X: [N, D].
    :param Y: [N, P].
    :param batch_size: rows of a batch; None takes all rows, "auto" at most 1024.
    :param seed: of the order of the rows.
    :raises DataError: for a batch larger than the data.
    """

    def __init__(self, X: tf.Tensor, Y: tf.Tensor, batch_size: int | None | str, seed: int) -> None:
        self.X, self.Y, self.seed = X, Y, seed
        self.num_data = int(X.shape[0])
        if batch_size == "auto":
            batch_size = min(DEFAULT_BATCH, self.num_data)
        elif batch_size is not None and (isinstance(batch_size, str) or not is_whole(batch_size, 1)):
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
    def whole(self) -> Batch | None:
        """All rows, where a batch has them all."""
        return (self.X, self.Y) if self.batch_size == self.num_data else None

    @property
    def checkpointable(self) -> dict[str, Trackable]:
        """Nothing: the batches follow from the seed and the step."""
        return {}

    @property
    def settings(self) -> dict[str, object]:
        """Sizes, and a checksum of the arrays."""
        digest = checksum((self.X, self.Y))
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

    Shuffling and batching are left to the dataset. There is one iterator only: a second one, to look at the data first,
    would change the order of a shuffled dataset.

    :param dataset: of pairs (X [B, D], Y [B, P]).
    :param num_data: N, the rows of all batches together.
    :param likelihood: whose support the labels are checked against.
    :raises DataError: when called, for a dataset without batches, a first batch that is not finite, and labels outside the
        likelihood's support. Later batches that are not finite make the step fail.
    """

    def __init__(self, dataset: tf.data.Dataset, num_data: int, likelihood: Likelihood) -> None:
        self.num_data, self.likelihood = num_data, likelihood
        self.iterator = iter(dataset.repeat())
        self.look: Callable[[np.ndarray, np.ndarray], None] = lambda X, Y: None
        """Is shown X [B, D] and Y [B, P] of the first batch, once they are checked"""
        self._is_first = True
        self.signature = [tf.TensorSpec([None, *part.shape[1:]], part.dtype) for part in dataset.element_spec]
        """Of all batches, which may differ in their rows."""

    @property
    def whole(self) -> None:
        """None: a dataset is read in batches."""
        return None

    @property
    def checkpointable(self) -> dict[str, Trackable]:
        """The place in the dataset."""
        return {"iterator": self.iterator}

    @property
    def settings(self) -> dict[str, object]:
        """The size of the data."""
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
            self.look(X.numpy(), labels)
        elif np.all(np.isfinite(labels)):
            check_labels(self.likelihood, labels)
        self._is_first = False
        return X, Y


def checksum(arrays: Iterable[tf.Tensor]) -> int:
    """A number that tells whether arrays, of any shapes [...], are the same as before."""
    digest = 0
    for array in arrays:
        digest = zlib.crc32(array.numpy().tobytes(), digest)
    return digest


def make_batches(
    model: BasisGP, data: Sequence[npt.ArrayLike] | tf.data.Dataset | None, batch_size: int | None | str, seed: int
) -> ArrayBatches | DatasetBatches:
    """Check the data and wrap them. Arrays are checked in full, a dataset by its types now and by its values in training.

    :param model: whose likelihood and number of inputs and outputs the data must fit.
    :param data: arrays (X [N, D], Y [N, P]), or a dataset of batches of them.
    :param batch_size: of arrays, see `ArrayBatches`.
    :param seed: of the order of the rows.
    :raises DataError: for unusable data, a dataset without `num_data`, or a `num_data` that is not that of the arrays.
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
    check_shapes_of_data(*spec, model.likelihood, model.num_outputs, model.num_dims, model.float_type)
    return DatasetBatches(dataset, int(model.num_data), model.likelihood)
