"""Copies of variables to return to."""

from __future__ import annotations

__all__ = ["Best", "Snapshot", "go_back", "snapshot"]

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

Snapshot = list[tuple[tf.Variable, tf.Tensor]]
"""Variables with the values that they had."""


def snapshot(variables: Sequence[tf.Variable]) -> Snapshot:
    """Return the present values, which share memory with the variables until these change."""
    return [(variable, _value_of(variable)) for variable in variables]


def _value_of(variable: tf.Variable) -> tf.Tensor:
    if isinstance(variable, tf.distribute.DistributedValues):
        return variable.read_value()  # replicas have a handle each
    return tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)


def go_back(then: Snapshot) -> None:
    """Give the variables the values that they had."""
    for variable, value in then:
        variable.assign(value)


class Best:
    """The values of a run's variables at its best evaluation; empty before the first."""

    def __init__(self) -> None:
        self.values: list[np.ndarray] = []

    def take(self, variables: Sequence[tf.Variable]) -> None:
        """Keep the present values."""
        self.values = [variable.numpy() for variable in variables]

    def put_back(self, variables: Sequence[tf.Variable]) -> bool:
        """Restore the values; False if there are none, or they belong to other variables."""
        if not self.values or len(self.values) != len(variables):
            return False
        for variable, value in zip(variables, self.values):
            variable.assign(value)
        return True
