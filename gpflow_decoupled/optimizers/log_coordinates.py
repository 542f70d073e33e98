"""Parameters as a vector for L-BFGS."""

from __future__ import annotations

__all__ = ["LogCoordinates", "coordinates_of"]

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import tensorflow as tf
from gpflow import Parameter

from ..probability import tfb, tfm


class LogCoordinates:
    """Trainable Parameters as one vector x [n]: positive ones by their logarithms.

    :param parameters: to move; shared ones are taken once.
    :param logarithms: False keeps every u.
    """

    # Large lengthscales hardly grow in GPflow's u. In
    #
    #     x = log softplus(u),     du/dx = softplus(u) / sigmoid(u)
    #
    # a step multiplies. Other Parameters, and variables without one, keep their u.

    def __init__(
        self, parameters: Iterable[Parameter | tf.Variable], logarithms: bool = True
    ) -> None:
        unique = {id(_variable_of(p)): p for p in parameters}
        self.variables = [_variable_of(p) for p in unique.values()]
        """Unconstrained variables, in the order of the vector."""
        self._logarithmic = [
            logarithms and isinstance(p, Parameter) and _is_softplus(p.transform)
            for p in unique.values()
        ]
        self._least = [
            _least(p) if logarithmic else 0.0
            for p, logarithmic in zip(unique.values(), self._logarithmic)
        ]
        plain = [_is_plain(p) for p in unique.values()]
        self.is_closed = all(a or b for a, b in zip(self._logarithmic, plain))
        """True if values are logarithms or the numbers themselves, so that `values` exist."""
        sizes = [int(np.prod(variable.shape)) for variable in self.variables]
        self._ends = np.cumsum(sizes)[:-1]
        self.is_log = np.repeat(self._logarithmic, sizes).astype(bool)
        """[n]: which entries are logarithms."""
        self.has_least = np.repeat([least > 0.0 for least in self._least], sizes).astype(bool)
        """[n]: which entries are logarithms of a Parameter above its least value, if not zero."""

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

    def numbers(self) -> list[np.ndarray]:
        """The present numbers of the variables."""
        return [variable.numpy() for variable in self.variables]

    def restore(self, numbers: Sequence[np.ndarray]) -> None:
        """Give the variables exact earlier numbers, not by way of logarithms."""
        for variable, number in zip(self.variables, numbers):
            variable.assign(number)

    def gradient(self, gradients: Sequence[tf.Tensor]) -> np.ndarray:
        """Return the gradient [n] in x at the present values.

        :param gradients: by `variables`, one for each.
        """
        parts = [
            g * tf.nn.softplus(u) / tf.nn.sigmoid(u) if logarithmic else g
            for u, g, logarithmic in zip(self.variables, gradients, self._logarithmic)
        ]
        return _flat(parts)

    def values(self, x: np.ndarray) -> list[np.ndarray]:
        """The values of the Parameters at a vector [n], without setting them."""
        return [
            (least + np.exp(part) if logarithmic else part).reshape(u.shape)
            for u, part, logarithmic, least in zip(
                self.variables, self._split(x), self._logarithmic, self._least
            )
        ]

    def reader(
        self, parameters: Iterable[Parameter]
    ) -> Callable[[np.ndarray], Callable[[Parameter], np.ndarray]]:
        """Return x [n] -> Parameter -> its value there, without setting or reading a variable.

        :param parameters: those that may be asked for; fixed ones are read now.
        """
        # TFP's transforms take 8 ms for a Parameter's value, more than a gram of 500 rows
        moved = [id(variable) for variable in self.variables]
        rest = {id(p.unconstrained_variable): p for p in parameters}
        fixed = {key: p.numpy() for key, p in rest.items() if key not in moved}

        def at(x: np.ndarray) -> Callable[[Parameter], np.ndarray]:
            values = {**fixed, **dict(zip(moved, self.values(x)))}
            return lambda parameter: values[id(parameter.unconstrained_variable)]

        return at

    def gradient_by_parameters(
        self, x: np.ndarray, gradients: Iterable[tuple[Parameter, np.ndarray]]
    ) -> np.ndarray:
        """The gradient [n] in x at a vector [n].

        :param gradients: by values of Parameters; repeated ones are added, fixed ones left out.
        """
        sums = {id(u): np.zeros(u.shape) for u in self.variables}
        for parameter, gradient in gradients:
            if (key := id(parameter.unconstrained_variable)) in sums:
                sums[key] = sums[key] + gradient
        return self.gradient_by_values(x, list(sums.values()))

    def gradient_by_values(self, x: np.ndarray, gradients: Sequence[np.ndarray]) -> np.ndarray:
        """The gradient [n] in x at a vector [n].

        :param gradients: by `values`, one for each.
        """
        flat = _flat(gradients)
        return np.where(self.is_log, np.exp(np.where(self.is_log, x, 0.0)) * flat, flat)

    def _split(self, x: np.ndarray) -> list[np.ndarray]:
        return np.split(x, self._ends) if self.variables else []


def coordinates_of(
    module: tf.Module, variables: Iterable[tf.Variable], logarithms: bool = True
) -> LogCoordinates:
    """Coordinates of some variables of a module, by the Parameters that they belong to."""
    parts = module.submodules
    owners = {p.unconstrained_variable.ref(): p for p in parts if isinstance(p, Parameter)}
    moved = [owners.get(variable.ref(), variable) for variable in variables]
    return LogCoordinates(moved, logarithms)


def _variable_of(parameter: Parameter | tf.Variable) -> tf.Variable:
    return parameter.unconstrained_variable if isinstance(parameter, Parameter) else parameter


def _is_plain(parameter: Parameter | tf.Variable) -> bool:
    transform = parameter.transform if isinstance(parameter, Parameter) else None
    return transform is None or type(transform) is tfb.Identity


def _is_softplus(transform: tfb.Bijector | None) -> bool:
    first = transform.bijectors[-1] if isinstance(transform, tfb.Chain) else transform
    return isinstance(first, tfb.Softplus)


def _least(parameter: Parameter) -> float:
    return float(parameter.transform.forward(tf.constant(-1e4, parameter.dtype)))


def _flat(parts: Sequence[tf.Tensor | np.ndarray]) -> np.ndarray:
    flat = [np.asarray(part, dtype=np.float64).reshape(-1) for part in parts]
    return np.concatenate(flat) if flat else np.zeros(0)
