"""The neighbours of the likelihood of all rows, which a model keeps."""

from __future__ import annotations

__all__ = ["EarlierNeighbours"]

import abc

import numpy as np
import tensorflow as tf

from .groups import Group
from .ordering import most_neighbours


class EarlierNeighbours:
    """The nearest earlier rows of all rows, for `training_loss`, a mixin."""

    data: tuple[tf.Tensor, tf.Tensor]
    num_neighbours: int
    _earlier: tf.Variable | None = None

    @property
    @abc.abstractmethod
    def groups(self) -> list[Group]:
        """Outputs that share neighbours."""

    @abc.abstractmethod
    def neighbours_of(
        self, rows: np.ndarray, *, before: bool = True, num_neighbours: int | None = None
    ) -> tf.Tensor:
        """Row numbers [G, B, m] of the nearest earlier rows of some rows [B]."""

    def refresh_neighbours(self) -> None:
        """Search the neighbours of `training_loss` again, at the present kernel.

        Functions compiled before see the new ones. Cost: N^2 D, or N m log N by trees in up to
        eight columns.
        """
        self._keep(self.neighbours_of(np.arange(int(self.data[0].shape[0]))))

    def earlier_neighbours(self) -> tf.Variable | None:
        """Row numbers [G, N, m], searched where they are missing: at first, and of new rows."""
        N = int(self.data[0].shape[0])
        groups = self.groups
        G, count = (
            len(groups),
            min(self.num_neighbours, most_neighbours(groups, self.data[0], True)),
        )
        known = (0, 0, 0) if self._earlier is None else tuple(self._earlier.shape)
        if known[0] == G and known[1] < N and known[2] == count:
            # rows that were added are last in the order, so no earlier row has them as neighbours
            new = self.neighbours_of(np.arange(known[1], N))
            self._keep(tf.concat([self._earlier, new], axis=1))
        elif known != (G, N, count):
            self.refresh_neighbours()
        return self._earlier

    def _keep(self, neighbours: tf.Tensor) -> None:
        if self._earlier is not None and self._earlier.shape == neighbours.shape:
            self._earlier.assign(neighbours)
        else:
            self._earlier = tf.Variable(neighbours, trainable=False)
