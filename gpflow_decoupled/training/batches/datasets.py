"""Minibatches of a `tf.data.Dataset`."""

from __future__ import annotations

__all__ = ["DatasetBatches"]

from collections.abc import Callable

import numpy as np
import tensorflow as tf
from gpflow.likelihoods import Likelihood

from ...errors import DataError
from ...likelihoods import check_labels
from ...models.checks import check_values
from .base import Batch, Batches, Trackable


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
