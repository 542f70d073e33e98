"""Make minibatches of the user's data."""

from __future__ import annotations

__all__ = ["Data", "make_batches"]

from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ...errors import DataError
from ...inputs import as_array, stays_on_disk
from ...models import BasisGP
from ...models.checks import check_shapes_of_data, check_values, warn_of_values
from .arrays import ArrayBatches, RowOrder
from .datasets import DatasetBatches
from .functions import FunctionBatches, Passes
from .on_disk import DiskBatches

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
