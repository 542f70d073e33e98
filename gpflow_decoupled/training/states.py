"""States of a run: whether one is sound, and the values that variables had, to go back to them."""

from __future__ import annotations

__all__ = ["Best", "Snapshot", "exact_bound", "go_back", "is_sound", "snapshot"]

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from .batches import Batch
from .steps import Step, all_finite

Snapshot = list[tuple[tf.Variable, tf.Tensor]]
"""Variables with the values that they had."""


UNSOUND = (ArithmeticError, tf.errors.InvalidArgumentError)
"""What a bound may raise that cannot be computed."""


def exact_bound(step: Step, whole: Batch | None) -> float | None:
    """The bound at the Parameters as they are, in nats; NaN if it cannot be computed, None where
    only estimates exist.

    :param step: which knows the bound.
    :param whole: all data, X [N, D] and Y [N, P], where every step sees all of them.
    """
    if whole is None:
        return None
    try:
        bound = step.bound(*whole)
    except UNSOUND:
        return float("nan")
    return None if bound is None else float(bound)


def is_sound(variables: Sequence[tf.Variable], bound: Callable[[], tf.Tensor | float]) -> bool:
    """Whether all variables of floating-point numbers and the bound there are finite."""
    if not all_finite(
        [tf.zeros([]), *(variable for variable in variables if variable.dtype.is_floating)]
    ):
        return False
    try:
        return bool(np.isfinite(float(bound())))
    except UNSOUND:
        return False


def snapshot(variables: Sequence[tf.Variable]) -> Snapshot:
    """The values as they are; they share memory with the variables until those change."""
    return [(variable, _value_of(variable)) for variable in variables]


def _value_of(variable: tf.Variable) -> tf.Tensor:
    """What `read_value` returns, in a quarter of its time, which counts where a step takes a
    millisecond.
    """
    if isinstance(
        variable, tf.distribute.DistributedValues
    ):  # one of several replicas, each with a handle of its own
        return variable.read_value()
    return tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)


def go_back(then: Snapshot) -> None:
    """Give the variables the values that they had."""
    for variable, value in then:
        variable.assign(value)


class Best:
    """What a step writes, as it was at the best evaluation; empty before the first."""

    def __init__(self) -> None:
        self.values: list[np.ndarray] = []

    def take(self, variables: Sequence[tf.Variable]) -> None:
        """Keep the values as they are."""
        self.values = [variable.numpy() for variable in variables]

    def put_back(self, variables: Sequence[tf.Variable]) -> bool:
        """Give the variables these values; False if there are none, or they are of other
        variables.
        """
        if not self.values or len(self.values) != len(variables):
            return False
        for variable, value in zip(variables, self.values):
            variable.assign(value)
        return True
