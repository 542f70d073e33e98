"""Make minibatches of the user's data."""

from __future__ import annotations

__all__ = [
    "ArrayBatches", "Batch", "Batches", "DEFAULT_BATCH", "Data", "DatasetBatches",
    "DiskBatches", "FunctionBatches", "Passes", "RowOrder", "Trackable", "checksum",
    "make_batches",
]  # fmt: skip

import abc
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import TypeAlias, cast

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from gpflow.likelihoods import Likelihood

from ..errors import DataError
from ..inputs import as_array, is_whole, stays_on_disk
from ..likelihoods import check_labels
from ..models import BasisGP
from ..models.checks import check_shapes_of_data, check_values, warn_of_values
from ..summaries import short_repr

# ---
# The contract between a run and its data.


Trackable: TypeAlias = "tf.Module | tf.Variable | tf.data.Iterator"
"""Objects that `tf.train.Checkpoint` saves."""

Batch: TypeAlias = tuple[tf.Tensor, tf.Tensor]
"""X [B, D] and Y [B, P]."""


class Batches(abc.ABC):
    """A batch for each step, and the values that a checkpoint must know of the data."""

    num_data: int
    batch_size: int | None = None
    """Rows of a batch; None where the data bring their own batches."""

    @property
    def whole(self) -> Batch | None:
        """All data, where every step sees all of them; else None."""
        return None

    @property
    def checkpointable(self) -> dict[str, Trackable]:
        """Objects by which a checkpoint finds the place in the data, by name; none are needed where
        batches follow from the seed and the step.
        """
        return {}

    @property
    def settings(self) -> dict[str, object]:
        """Values, by name, that must be equal for a resumed run."""
        return {"num_data": self.num_data}

    @abc.abstractmethod
    def __call__(self, step: int) -> Batch:
        """The batch of step 0, 1, ...: X [B, D], Y [B, P]."""

    def close(self) -> None:
        """Close open files, after the last batch."""
        return None


# ---
# Minibatches of arrays in memory, and the order of their rows.


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


# ---
# Minibatches of a `tf.data.Dataset`.


class DatasetBatches(Batches):
    """The batches of a `tf.data.Dataset` of (X [B, D], Y [B, P]), in its order, repeated.

    :param shards: the number of workers, each of which has a dataset of its share of the rows.

    :raises DataError: when called, for a dataset without batches, with another number of rows, or
        with an unusable first batch. Later batches that are not finite make the step fail.
    """

    # Shuffling and batching are left to the dataset. It is iterated once only: a second iterator
    # would change the order of a shuffled dataset.

    def __init__(
        self, dataset: tf.data.Dataset, num_data: int, likelihood: Likelihood, shards: int = 1
    ) -> None:
        self.num_data, self.likelihood = num_data, likelihood
        self.iterator = iter(dataset.repeat())
        self._dataset, self._shards = dataset, shards
        self.look: Callable[[np.ndarray, np.ndarray], None] = lambda X, Y: None
        """Is shown X [B, D] and Y [B, P] of the first batch, once they are checked"""
        self._is_first = True
        self.signature = [
            tf.TensorSpec([None, *part.shape[1:]], part.dtype) for part in dataset.element_spec
        ]
        """Of all batches, which may differ in their rows."""

    @property
    def checkpointable(self) -> dict[str, Trackable]:
        return {"iterator": self.iterator}

    def __call__(self, step: int) -> Batch:
        batch = next(self.iterator, None)
        if batch is None:
            raise DataError("The dataset has no batches; check what it is made from.")
        X, Y = batch
        labels = Y.numpy()
        if len(labels) == 0:
            raise DataError(
                f"Batch {step + 1} of the dataset has no rows; filter rows before they are batched."
            )
        if self._is_first:
            check_values(X.numpy(), labels, self.likelihood)
            _check_rows(self._dataset, self.num_data, len(labels), self._shards)
            self.look(X.numpy(), labels)
        elif np.all(np.isfinite(labels)):
            check_labels(self.likelihood, labels)
        self._is_first = False
        return X, Y


def _check_rows(dataset: tf.data.Dataset, num_data: int, batch_size: int, shards: int) -> None:
    # The number of batches, if known, and the first batch's size decide; if they do not fit, all
    # batches are read once and counted. A last batch may be left out or not full, and
    # `dataset.repeat(k)` has k passes. Datasets of unknown length are not checked. The shards of
    # other workers have as many rows, up to a batch.
    batches = int(dataset.cardinality())
    if batches <= 0 or _fits(batches * batch_size * shards, num_data, batch_size * shards):
        return
    sizes = [len(labels) for _, labels in dataset]
    rows = sum(sizes) * shards
    if _fits(rows, num_data, max(sizes) * shards):
        return
    raise DataError(
        f"The dataset has {rows} rows and num_data={num_data}: the data of each step would count"
        f" {num_data / rows:.3g} times as much as they do. If these are all data, set"
        f" model.num_data = {rows}."
    )


def _fits(rows: int, num_data: int, slack: int) -> bool:
    passes = max(1, round(rows / num_data))
    return abs(rows - passes * num_data) < passes * slack or rows == passes * num_data


# ---
# Minibatches from a function that reads them.


Passes: TypeAlias = Callable[[], Iterable[tuple[npt.ArrayLike, npt.ArrayLike]]]
"""Starts a pass over batches X [B, D] and Y [B, P]."""


class FunctionBatches(Batches):
    """Batches of a function that is called for each pass over the data, in its order.

    Every batch is checked when it is read.

    :param model: checks the batches, and knows the number of rows, `num_data`.
    :param passes: a function without arguments that returns an iterator of (X [B, D], Y [B, P]).
    """

    def __init__(self, model: BasisGP, passes: Passes) -> None:
        if model.num_data is None:
            raise DataError(
                "A function does not tell the size of the data in rows: pass num_data=N to the"
                " model."
            )
        self.model, self.passes, self.num_data = model, passes, int(model.num_data)
        self.look: Callable[[np.ndarray, np.ndarray], None] = lambda X, Y: None
        """Is shown X [B, D] and Y [B, P] of the first batch, once they are checked"""
        self._pass: Iterator[tuple[npt.ArrayLike, npt.ArrayLike]] | None = None
        self._read = self._rows = 0

    # a resumed run reads up to its place, so that a checkpoint needs nothing

    def __call__(self, step: int) -> Batch:
        """The batch of step 0, 1, ...: X [B, D], Y [B, P]; earlier ones are read and dropped."""
        is_first = self._read == 0
        X, Y = self._next()
        while self._read <= step:
            X, Y = self._next()
        if is_first:
            self.look(X.numpy(), Y.numpy())
        return X, Y

    def close(self) -> None:
        """End the pass, so that a generator runs its `finally` now."""
        if isinstance(self._pass, Generator):
            self._pass.close()
        self._pass = None

    def _next(self) -> Batch:
        batch = None if self._pass is None else next(self._pass, None)
        if batch is None:
            self._start_pass()
            assert self._pass is not None
            batch = next(self._pass, None)
            if batch is None:
                raise DataError(
                    "The function of the data gave no batches: it must return a new iterator at"
                    " each call."
                )
        X, Y = self.model.as_tensors(batch)
        model = self.model
        check_values(X.numpy(), Y.numpy(), model.likelihood, model.kernel, model.mean_function)
        self._read += 1
        self._rows += int(X.shape[0])
        return X, Y

    def _start_pass(self) -> None:
        if self._pass is not None and self._rows != self.num_data:
            raise DataError(
                f"This pass had {self._rows} rows and num_data is {self.num_data}: every pass must"
                " go through the whole data set. If these rows are all data, set model.num_data ="
                f" {self._rows}."
            )
        batches = self.passes()
        if not isinstance(batches, Iterable):
            raise DataError(
                f"The function of the data returned a {type(batches).__name__}; it must return an"
                " iterator of batches (X, Y)."
            )
        self._pass, self._rows = iter(batches), 0


# ---
# Minibatches of arrays that stay on disk.


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


# ---


Data: TypeAlias = (
    "Sequence[npt.ArrayLike] | tf.data.Dataset | Passes | "
    "Callable[[tf.distribute.InputContext], tf.data.Dataset] | None"
)
"""The data that `fit` takes."""


def make_batches(
    model: BasisGP,
    data: Sequence[npt.ArrayLike] | tf.data.Dataset | Passes | None,
    batch_size: int | None | str,
    seed: int,
    shards: int = 1,
) -> ArrayBatches | DiskBatches | DatasetBatches | FunctionBatches:
    """Check the data and wrap them: arrays in full now, streams by value in training.

    :param data: arrays (X [N, D], Y [N, P]), a dataset or a function, as for `fit`.
    :param batch_size: of arrays, see `RowOrder`.
    :param shards: see `DatasetBatches`.
    """
    if isinstance(data, tf.data.Dataset):
        return _dataset_batches(model, data, batch_size, shards)
    if callable(data):
        _refuse_size(batch_size, "a function brings its own: let it return batches of as many rows")
        return FunctionBatches(model, data)
    if not (isinstance(data, (tuple, list)) and len(data) == 2):
        raise DataError(
            f"data is a {type(data).__name__}; pass (X, Y), or a tf.data.Dataset of such pairs, or"
            " a function that returns an iterator of them."
        )
    on_disk = _disk_batches(model, data, batch_size, seed)
    if on_disk is not None:
        return on_disk
    X, Y = model.as_tensors(data)
    check_values(X.numpy(), Y.numpy(), model.likelihood, model.kernel, model.mean_function)
    _check_size(model, X.shape[0])
    batches = ArrayBatches(X, Y, batch_size, seed, model.basis.num_latent_gps)
    warn_of_values(X.numpy(), Y.numpy(), model.likelihood)
    return batches


def _disk_batches(
    model: BasisGP, data: Sequence[npt.ArrayLike], batch_size: int | None | str, seed: int
) -> DiskBatches | None:
    if not any(map(stays_on_disk, data)):
        return None
    X, Y = (
        (
            cast(np.ndarray, one)
            if stays_on_disk(one)
            else np.asarray(as_array(one, name, model.float_type))
        )
        for one, name in zip(data, "XY")
    )
    check_shapes_of_data(
        X, Y, model.likelihood, model.num_outputs, model.num_dims, model.float_type
    )
    _check_size(model, len(X))
    rows = RowOrder(len(X), batch_size, seed, model.basis.num_latent_gps)
    return None if rows.batch_size == len(X) else DiskBatches(model, (X, Y), rows)


def _check_size(model: BasisGP, rows: int) -> None:
    if model.num_data is not None and int(model.num_data) != rows:
        raise DataError(
            f"num_data={int(model.num_data)} and the data have {rows} rows; if these are all data,"
            f" set model.num_data = {rows}."
        )


def _refuse_size(batch_size: int | None | str, instead: str) -> None:
    if batch_size is not None and batch_size != "auto":
        raise DataError(f"batch_size={batch_size} is for arrays; {instead}.")


def _dataset_batches(
    model: BasisGP, dataset: tf.data.Dataset, batch_size: int | None | str, shards: int
) -> DatasetBatches:
    if model.num_data is None:
        raise DataError("A dataset does not tell its size in rows: pass num_data=N to the model.")
    _refuse_size(batch_size, f"a dataset brings its own: use dataset.batch({batch_size})")
    spec = dataset.element_spec
    if not (
        isinstance(spec, tuple)
        and len(spec) == 2
        and all(isinstance(part, tf.TensorSpec) for part in spec)
    ):
        raise DataError(
            f"The dataset's elements are {spec}; they must be pairs (X [B, D], Y [B, P])."
        )
    if spec[0].shape.rank == 1:
        raise DataError(
            "The dataset gives single observations, not batches: use dataset.batch(1024)."
        )
    check_shapes_of_data(
        *spec, model.likelihood, model.num_outputs, model.num_dims, model.float_type
    )
    return DatasetBatches(dataset, int(model.num_data), model.likelihood, shards)
