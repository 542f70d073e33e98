"""Log densities of some rows and their gradients, for L-BFGS."""

from __future__ import annotations

__all__ = ["RowDensities"]

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from ...models.neighbours import GaussianNNGP, LabelNNGP
from ...replicas import Group
from ..log_coordinates import LogCoordinates
from ..log_objective import Evaluated, LogObjective, with_gradients

_BLOCK = 250
"""Most rows of one call: with more, matrices leave the cache; with fewer, calls take the time."""


class RowDensities:
    """Sums of log densities of rows, as functions of a vector of hyperparameters.

    :param model: its log prior density of the Parameters is added.
    :param coordinates: of the Parameters that move.
    :param group: the workers, which share the rows of `near`.
    """

    # The gradient of a block of rows is taken before the next block begins. So memory is one
    # block, and its matrices are still in the cache when the gradient needs them.

    def __init__(
        self,
        model: GaussianNNGP | LabelNNGP,
        coordinates: LogCoordinates,
        compile: bool = True,
        group: Group | None = None,
    ) -> None:
        self.model, self.coordinates, self.compile = model, coordinates, compile
        self.group = group or Group()
        self._near = self._gradients(self._weighted, compile)
        self._prior = self._gradients(model.log_prior_density)

    def near(
        self, rows: np.ndarray, weights: np.ndarray, num_neighbours: int | None = None
    ) -> LogObjective:
        """The likelihood of neighbours, (N2), of weighted rows; of classes left-out labels.

        Each worker searches the neighbours of its rows now, and computes their terms; one message.

        :param rows: row numbers [B].
        :param weights: [B].
        :param num_neighbours: m; by default the model's.
        :return: a function of the vector: nats, and their gradient.
        """
        chosen, shares = _in_blocks(rows, weights, self.group.workers)
        own = self.group.share(len(chosen))
        near = self.group.together(
            lambda: self.model.neighbours_of(chosen[own].ravel(), num_neighbours=num_neighbours)
        )
        near = tf.split(near, len(chosen[own]), axis=1)
        kind = self.model.data[1].dtype
        blocks = {
            number: (tf.constant(chosen[number], tf.int32), part, tf.constant(shares[number], kind))
            for number, part in zip(np.arange(len(chosen))[own], near)
        }

        def sums_of(numbers: np.ndarray) -> list[np.ndarray]:
            return [np.stack([_flat(self._near(*blocks[number])) for number in numbers])]

        def terms() -> list[Evaluated]:
            (sums,) = self.group.over_rows(sums_of, np.arange(len(chosen)))
            return [self._evaluated(part) for part in (np.sum(sums, axis=0), _flat(self._prior()))]

        return LogObjective(self.coordinates, terms, self.group)

    def exact(self, rows: np.ndarray, weight: float) -> LogObjective:
        """The exact log density of some rows, as if there were no others.

        :param rows: row numbers [B].
        :param weight: of their density.
        :return: a function of the vector: nats, and their gradient.
        """
        density = self._gradients(
            lambda: weight * self.model.exact_log_likelihood(rows), self.compile
        )
        return LogObjective(self.coordinates, lambda: [density(), self._prior()], self.group)

    def _gradients(
        self, density: Callable[..., tf.Tensor], compile: bool = False
    ) -> Callable[..., Evaluated]:
        return with_gradients(density, self.coordinates, compile=compile, group=self.group)

    def _weighted(self, rows: tf.Tensor, near: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(weights * self.model.log_likelihood(rows, near))

    def _evaluated(self, sums: np.ndarray) -> Evaluated:
        variables = self.coordinates.variables
        ends = 1 + np.cumsum([int(np.prod(one.shape)) for one in variables])
        value, *parts = np.split(sums, [1, *ends[:-1]])
        gradients = [
            tf.constant(part.reshape(one.shape), one.dtype) for part, one in zip(parts, variables)
        ]
        return [tf.constant(value[0]), *gradients]


def _in_blocks(
    rows: np.ndarray, weights: np.ndarray, workers: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rows and weights [B] in blocks of equal size, [n, size] each: as many for each worker."""
    # The last block is filled up with rows of weight zero, so that one graph serves all.
    number = workers * -(-len(rows) // (_BLOCK * workers))
    size = -(-len(rows) // number)
    number = -(-len(rows) // size)
    missing = number * size - len(rows)
    rows = np.concatenate([rows, np.full(missing, rows[0])])
    weights = np.concatenate([weights, np.zeros(missing)])
    return rows.reshape(number, size), weights.reshape(number, size)


def _flat(evaluated: Evaluated) -> np.ndarray:
    return np.concatenate([np.asarray(part, np.float64).ravel() for part in evaluated])
