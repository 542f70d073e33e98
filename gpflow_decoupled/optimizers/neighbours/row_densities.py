"""Log densities of some rows and their gradients, as L-BFGS wants them."""

from __future__ import annotations

__all__ = ["RowDensities"]

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from ...compilation import Compiled
from ...lbfgs import Objective
from ...models import NNGP
from ..log_coordinates import LogCoordinates

_BLOCK = 250
"""Rows of one call: with more, matrices leave the cache, and with fewer, calls take the time."""

Gradients = list[tf.Tensor]


class RowDensities:
    """Sums of log densities of rows, as functions of a vector of hyperparameters.

    :param model: its log prior density of the Parameters is added.
    :param coordinates: of the Parameters that move.
    :param compile: False evaluates eagerly.
    """

    # The gradient of a block of rows is taken before the next block begins. So memory is that of a
    # block, and its matrices are still in the cache when the gradient needs them.

    def __init__(self, model: NNGP, coordinates: LogCoordinates, compile: bool = True) -> None:
        self.model, self.coordinates, self.compile = model, coordinates, compile
        self._near = self._compiled(self._near_with_gradients)

    def near(self, rows: np.ndarray, near: tf.Tensor, weights: np.ndarray) -> Objective:
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
        return self._objective(lambda: [self._near(*block) for block in blocks])

    def exact(self, rows: np.ndarray, weight: float) -> Objective:
        """The exact log density of some rows, as if there were no others.

        :param rows: row numbers [B].
        :param weight: of their density.
        :return: a function of the vector: nats, and their gradient.
        """
        density = self._compiled(
            lambda: self._with_gradients(lambda: weight * self.model.exact_log_likelihood(rows))
        )
        return self._objective(lambda: [density()])

    def _objective(self, parts: Callable[[], list[Gradients]]) -> Objective:
        """The sum of parts, each a value and gradients, and of the prior."""

        def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
            self.coordinates.assign(x)
            found = [*parts(), self._with_gradients(self.model.log_prior_density)]
            value, *gradients = (tf.add_n(same) for same in zip(*found))
            return float(value), self.coordinates.gradient(gradients)

        return objective

    def _near_with_gradients(
        self, rows: tf.Tensor, near: tf.Tensor, weights: tf.Tensor
    ) -> Gradients:
        return self._with_gradients(
            lambda: tf.reduce_sum(weights * self.model.log_likelihood(rows, near))
        )

    def _with_gradients(self, density: Callable[[], tf.Tensor]) -> Gradients:
        """A value, and its gradient in each variable."""
        variables = self.coordinates.variables
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            value = density()
        zero = tf.UnconnectedGradients.ZERO
        return [value, *tape.gradient(value, variables, unconnected_gradients=zero)]

    def _compiled(self, function: Callable[..., Gradients]) -> Callable[..., Gradients]:
        return Compiled(function) if self.compile else function
