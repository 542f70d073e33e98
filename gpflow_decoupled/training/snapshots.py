"""Copies of variables to return to."""

from __future__ import annotations

__all__ = ["Best", "Snapshot", "exact_bound", "go_back", "is_sound", "snapshot"]

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from .stages.stage import all_finite

Snapshot = list[tuple[tf.Variable, tf.Tensor]]
"""Variables with the values that they had."""

UNSOUND = (ArithmeticError, tf.errors.InvalidArgumentError)
"""Errors of a bound that cannot be computed."""


def exact_bound(bound: Callable[[], tf.Tensor | None]) -> float | None:
    """Return a bound [] in nats as a float; NaN if it failed, None if there is none."""
    try:
        value = bound()
    except UNSOUND:  # a failed factorisation counts as NaN
        return float("nan")
    return None if value is None else float(value)


def is_sound(variables: Sequence[tf.Variable], bound: Callable[[], tf.Tensor | float]) -> bool:
    """True if all floating-point variables and the bound are finite."""
    if not all_finite(
        [tf.zeros([]), *(variable for variable in variables if variable.dtype.is_floating)]
    ):
        return False
    try:
        return bool(np.isfinite(float(bound())))
    except UNSOUND:
        return False


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
