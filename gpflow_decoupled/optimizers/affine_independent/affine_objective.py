"""The bound of one vector, compiled for L-BFGS."""

from __future__ import annotations

__all__ = ["as_vector", "assign_vector", "compiled_objective"]

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from gpflow.optimizers import Scipy

from ...compilation import Compiled
from ...lbfgs import Objective


def compiled_objective(
    bound: Callable[[], tf.Tensor], variables: Sequence[tf.Variable]
) -> Objective:
    """Return x [n] -> (bound, gradient) after writing x to `variables`."""

    def value_and_gradient() -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            value = bound()
        gradients = tape.gradient(
            value, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        return value, Scipy.pack_tensors(gradients)

    graph = Compiled(value_and_gradient)

    def function(x: np.ndarray) -> tuple[float, np.ndarray]:
        assign_vector(variables, x)
        value, gradient = graph()
        return float(value), gradient.numpy().astype(np.float64)

    return function


def as_vector(variables: Sequence[tf.Variable]) -> np.ndarray:
    """Pack the variables into one vector [n]."""
    return Scipy.pack_tensors(variables).numpy().astype(np.float64)


def assign_vector(variables: Sequence[tf.Variable], x: np.ndarray) -> None:
    """Write a vector [n] to the variables."""
    Scipy.assign_tensors(variables, Scipy.unpack_tensors(variables, x))
