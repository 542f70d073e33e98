"""Log densities of some rows and their gradients, for L-BFGS."""

from __future__ import annotations

__all__ = ["RowDensities"]

import numpy as np
import tensorflow as tf

from ...models.neighbours import GaussianNNGP
from ..log_coordinates import LogCoordinates
from ..log_objective import LogObjective, with_gradients

_BLOCK = 250
"""Rows of one call: with more, matrices leave the cache, and with fewer, calls take the time."""


class RowDensities:
    """Sums of log densities of rows, as functions of a vector of hyperparameters.

    :param model: its log prior density of the Parameters is added.
    :param coordinates: of the Parameters that move.
    :param compile: False evaluates eagerly.
    """

    # The gradient of a block of rows is taken before the next block begins. So memory is that of a
    # block, and its matrices are still in the cache when the gradient needs them.

    def __init__(
        self, model: GaussianNNGP, coordinates: LogCoordinates, compile: bool = True
    ) -> None:
        self.model, self.coordinates, self.compile = model, coordinates, compile
        self._near = with_gradients(self._weighted, coordinates, compile=compile)
        self._prior = with_gradients(model.log_prior_density, coordinates)

    def near(self, rows: np.ndarray, near: tf.Tensor, weights: np.ndarray) -> LogObjective:
        """The likelihood of neighbours, (N2), of weighted rows.

        :param rows: row numbers [B].
        :param near: their neighbours [G, B, m].
        :param weights: [B].
        :return: a function of the vector: nats, and their gradient.
        """
        weights = tf.constant(weights, self.model.data[1].dtype)
        rows = tf.constant(rows, tf.int32)
        places = [slice(k, k + _BLOCK) for k in range(0, len(rows), _BLOCK)]
        blocks = [(rows[p], near[:, p], weights[p]) for p in places]
        return LogObjective(
            self.coordinates,
            lambda: [*(self._near(*block) for block in blocks), self._prior()],
        )

    def exact(self, rows: np.ndarray, weight: float) -> LogObjective:
        """The exact log density of some rows, as if there were no others.

        :param rows: row numbers [B].
        :param weight: of their density.
        :return: a function of the vector: nats, and their gradient.
        """
        density = with_gradients(
            lambda: weight * self.model.exact_log_likelihood(rows),
            self.coordinates,
            compile=self.compile,
        )
        return LogObjective(self.coordinates, lambda: [density(), self._prior()])

    def _weighted(self, rows: tf.Tensor, near: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(weights * self.model.log_likelihood(rows, near))
