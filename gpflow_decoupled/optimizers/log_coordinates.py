"""Parameters as a flat vector for L-BFGS: positive ones by their logarithms."""

from __future__ import annotations

__all__ = ["LogCoordinates"]

from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from tensorflow_probability import bijectors as tfb
from tensorflow_probability import math as tfm


class LogCoordinates:
    """Trainable Parameters as one vector x [n]: positive ones by their logarithms.

    In GPflow's unconstrained u a large lengthscale grows by a few units an iteration, and L-BFGS
    ends long before an irrelevant column has left the distances. In

        x = log softplus(u),     du/dx = softplus(u) / sigmoid(u)

    a step multiplies. Other Parameters keep their u.

    :param parameters: those that move; shared ones are taken once.

    Example::

        coordinates = LogCoordinates(model.trainable_parameters)
        x = coordinates.pack()
        coordinates.assign(x + 0.1)  # about 10 % more of everything positive
    """

    def __init__(self, parameters: Iterable[Parameter]) -> None:
        unique = {id(p.unconstrained_variable): p for p in parameters}
        self.variables = [p.unconstrained_variable for p in unique.values()]
        """Unconstrained variables, in the order of the vector."""
        self._logarithmic = [_is_softplus(p.transform) for p in unique.values()]
        sizes = [int(np.prod(variable.shape)) for variable in self.variables]
        self._ends = np.cumsum(sizes)[:-1]
        self.is_log = np.repeat(self._logarithmic, sizes).astype(bool)
        """[n]: which entries are logarithms."""

    def pack(self) -> np.ndarray:
        """The vector [n] of the present values."""
        parts = [
            tf.math.log(tf.nn.softplus(u)) if logarithmic else tf.convert_to_tensor(u)
            for u, logarithmic in zip(self.variables, self._logarithmic)
        ]
        return _flat(parts)

    def assign(self, x: np.ndarray) -> None:
        """Set the variables to a vector [n]."""
        for u, part, logarithmic in zip(self.variables, self._split(x), self._logarithmic):
            value = tf.constant(part.reshape(u.shape), u.dtype)
            u.assign(tfm.softplus_inverse(tf.exp(value)) if logarithmic else value)

    def gradient(self, gradients: Sequence[tf.Tensor]) -> np.ndarray:
        """Return the gradient [n] in x at the present values.

        :param gradients: by `variables`, one for each.
        """
        parts = [
            g * tf.nn.softplus(u) / tf.nn.sigmoid(u) if logarithmic else g
            for u, g, logarithmic in zip(self.variables, gradients, self._logarithmic)
        ]
        return _flat(parts)

    def _split(self, x: np.ndarray) -> list[np.ndarray]:
        return np.split(x, self._ends) if self.variables else []


def _is_softplus(transform: tfb.Bijector | None) -> bool:
    """Recognise GPflow's transform of positive numbers, with or without a lower bound."""
    first = transform.bijectors[-1] if isinstance(transform, tfb.Chain) else transform
    return isinstance(first, tfb.Softplus)


def _flat(parts: Sequence[tf.Tensor]) -> np.ndarray:
    flat = [np.asarray(part, dtype=np.float64).reshape(-1) for part in parts]
    return np.concatenate(flat) if flat else np.zeros(0)
