"""The contract between a run and its data."""

from __future__ import annotations

__all__ = ["Batch", "Batches", "Trackable"]

import abc
from typing import TypeAlias

import tensorflow as tf

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
