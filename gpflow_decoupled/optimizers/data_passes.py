"""Expectations of observations, and passes over their blocks."""

from __future__ import annotations

__all__ = [
    "Batches", "Blocks", "Expectations", "by_quadrature", "by_sampling",
]  # fmt: skip

from collections.abc import Callable, Iterator
from numbers import Integral
from typing import NamedTuple, SupportsIndex

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.models import GPModel

from ..errors import DataError
from ..inputs import as_array, stays_on_disk
from ..models import CVIGP, BasisGP
from ..models.checks import check_draws, check_shapes_of_data, check_values, log_densities
from ..replicas import Group
from ..summaries import short_repr

# ---
# One observation's contribution to the bound.


class Expectations(NamedTuple):
    """E_n = E_q log p(y_n | f_n), and its derivatives in mean and variance of the latents."""

    value: tf.Tensor
    """E [N], nats."""
    g: tf.Tensor
    """dE/dmean [N, L]."""
    h: tf.Tensor
    """dE/dvariance [N, L]."""


def by_quadrature(
    model: CVIGP | BasisGP, mean: tf.Tensor, variance: tf.Tensor, data: RegressionData
) -> Expectations:
    """Expectations by the likelihood's integrals: closed forms or Gauss-Hermite quadrature.

    Mean (less the mean function) and variance of q are [N, L], X [N, D], Y [N, P].
    """
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch([mean, variance])
        value = model.variational_expectations(mean, variance, data)
    return Expectations(value, *tape.gradient(value, [mean, variance]))


def by_sampling(
    model: GPModel,
    mean: tf.Tensor,
    variance: tf.Tensor,
    data: RegressionData,
    samples: int,
    seed: tf.Tensor,
) -> Expectations:
    """Expectations from draws of each latent, independent across observations.

    :param seed: [2]; other shapes as in `by_quadrature`.
    :param samples: draws of each latent.
    """
    # With l = log p(y | f), f = mean + sd eps, the averages of g = E l' and h = E l' eps / (2 sd)
    # are unbiased.
    check_draws(model.likelihood)
    shape = tf.concat([[samples], tf.shape(mean)], axis=0)
    epsilon = tf.random.stateless_normal(shape, seed, dtype=mean.dtype)
    deviation = tf.sqrt(variance)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        draws = mean + deviation * epsilon
        tape.watch(draws)
        densities = log_densities(model, draws, data)
    slope = tape.gradient(densities, draws)
    g = tf.reduce_mean(slope, axis=0)  # (C5)
    h = tf.reduce_mean(slope * epsilon, axis=0) / (2.0 * deviation)  # (C6)
    return Expectations(tf.reduce_mean(densities, axis=0), g, h)


# ---
# Repeated passes over data, by blocks.


Batch = tuple[tf.Tensor, tf.Tensor]
"""X [B, D] and Y [B, P]."""
Batches = Callable[[], Iterator[Batch]]
"""Starts a pass."""
_SAMPLE = 2048  # rows of the last block, by which the quadrature is judged


class Blocks:
    """Passes over data with one block in memory; arrays are checked once, streams in each pass.

    Each worker reads its share of the blocks, or its own dataset.

    :param data: (X [N, D], Y [N, P]), a dataset or a function, as for `fit`.
    """

    def __init__(
        self,
        model: BasisGP,
        data: RegressionData | tf.data.Dataset | Batches,
        size: SupportsIndex,
        group: Group | None = None,
    ) -> None:
        if not isinstance(size, Integral) or isinstance(size, bool) or size < 1:
            raise DataError(
                f"block={short_repr(size)} must be a whole number of at least 1, the rows that are"
                " in memory at a time."
            )
        self.model, self.size, self.group = model, int(size), group or Group()
        self.num_data = None if model.num_data is None else int(model.num_data)
        self._streams, self._must_check = callable(data) or isinstance(data, tf.data.Dataset), True
        self.sample: Batch | None = None
        """Rows of the last block, for the check at the end of a run"""
        self.rows = self.first = 0
        """This worker's rows read in the present pass, and the last block's first row."""
        self.length: int | None = None
        """N of arrays, which all workers must have; None for datasets"""
        self._source = self._factory(data)

    def __iter__(self) -> Iterator[Batch]:
        self.rows = 0
        for X, Y in self._source():
            X, Y = self.model.as_tensors((X, Y))
            if self._must_check:
                model = self.model
                check_values(
                    X.numpy(), Y.numpy(), model.likelihood, model.kernel, model.mean_function
                )
            self.first = self.rows if self._streams else self._first_of(self.rows // self.size)
            self.rows += int(X.shape[0])
            self.sample = X[:: -(-int(X.shape[0]) // _SAMPLE)], Y[:: -(-int(X.shape[0]) // _SAMPLE)]
            yield X, Y
        self._must_check = self._streams

    def check_rows(self) -> None:
        """Check the number of rows after a pass; one message with several workers."""
        rows = self.rows if self.group.workers == 1 else int(np.sum(self.group.gather(self.rows)))
        if rows == 0:
            raise DataError(
                "The data have no rows: check what they are made from; an iterator serves one pass"
                " only."
            )
        if self.num_data is not None and rows != self.num_data:
            raise DataError(
                f"This pass had {rows} rows and num_data is {self.num_data}: every pass must go"
                " through the whole data set. If these rows are all data, set model.num_data ="
                f" {rows}."
            )
        self.num_data = rows

    def _factory(self, data: RegressionData | tf.data.Dataset | Batches) -> Batches:
        if isinstance(data, tf.data.Dataset):
            if int(data.cardinality()) == tf.data.INFINITE_CARDINALITY:
                raise DataError(
                    "The dataset has no end, and a pass must come to one: leave out repeat()."
                )
            return lambda: iter(data)
        if callable(data):
            return data
        if not (isinstance(data, (tuple, list)) and len(data) == 2):
            raise DataError(
                f"data is a {type(data).__name__}; pass (X, Y), a tf.data.Dataset of batches (X,"
                " Y), or a function that returns an iterator of such batches."
            )
        model = self.model
        X, Y = (
            array if stays_on_disk(array) else as_array(array, name, model.float_type)
            for array, name in zip(data, "XY")
        )
        check_shapes_of_data(
            X, Y, model.likelihood, model.num_outputs, model.num_dims, model.float_type
        )
        self.length = len(X)
        starts = range(self._first_of(0), len(X), self._first_of(1) - self._first_of(0))
        return lambda: ((X[i : i + self.size], Y[i : i + self.size]) for i in starts)

    def _first_of(self, block: int) -> int:
        return (block * self.group.workers + self.group.number) * self.size
