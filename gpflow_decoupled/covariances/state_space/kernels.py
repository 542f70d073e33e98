"""Which kernels are state spaces, and how they combine."""

from __future__ import annotations

__all__ = ["KERNELS", "refuse_kernel", "series_error_of", "state_space"]

import functools
import math

import tensorflow as tf
from gpflow import kernels
from gpflow.kernels import Kernel

from ...errors import DataError
from .matern import matern
from .model import StateSpace, added, multiplied
from .periodic import constant, cosine, periodic, series_error

KERNELS = (
    "Matern12, Matern32, Matern52, Exponential, Cosine, Constant, Periodic of a"
    " SquaredExponential, and sums and products of them"
)
_ORDERS: dict[type[Kernel], tuple[int, float]] = {
    kernels.Matern12: (0, 1.0),
    kernels.Exponential: (0, 0.5),
    kernels.Matern32: (1, math.sqrt(3.0)),
    kernels.Matern52: (2, math.sqrt(5.0)),
}
"""p of the Matern order p + 1/2, and the rate times the lengthscale."""


def state_space(kernel: Kernel, steps: tf.Tensor, harmonics: int) -> StateSpace:
    """The state space of a kernel on a line.

    :param kernel: see `refuse_kernel`.
    :param steps: between inputs [N], not negative.
    :param harmonics: terms of the cosine series of each periodic kernel.
    :raises DataError: for a kernel without a state space.

    Cost: N d^2 for d states: order plus 1/2 for a Matern kernel, 2 `harmonics` + 1 for a periodic
    one; sums add, products multiply them. Example::

        space = state_space(gpflow.kernels.Matern32(), tf.constant([0.1, 0.3]), 7)
    """
    refuse_kernel(kernel)
    if type(kernel) in (kernels.Sum, kernels.Product):
        parts = [state_space(part, steps, harmonics) for part in kernel.kernels]
        return functools.reduce(added if type(kernel) is kernels.Sum else multiplied, parts)
    if type(kernel) in _ORDERS:
        p, rate = _ORDERS[type(kernel)]
        return matern(p, kernel.variance, rate / _scalar(kernel.lengthscales), steps)
    if type(kernel) is kernels.Cosine:
        rate = 2.0 * math.pi / _scalar(kernel.lengthscales)
        return cosine(kernel.variance, rate, steps)
    if type(kernel) is kernels.Periodic:
        return periodic(kernel, steps, harmonics)
    return constant(kernel.variance, steps)


def refuse_kernel(kernel: Kernel) -> None:
    """Raise `DataError` for a kernel without a state space, naming the models that take it."""
    if type(kernel) in (kernels.Sum, kernels.Product):
        for part in kernel.kernels:
            refuse_kernel(part)
        return
    kind = type(kernel)
    periodic_of = kind is kernels.Periodic and type(kernel.base_kernel)
    if kind in _ORDERS or kind in (kernels.Cosine, kernels.Constant):
        return
    if periodic_of is kernels.SquaredExponential:
        return
    name = kind.__name__ if not periodic_of else f"Periodic({periodic_of.__name__})"
    raise DataError(
        f"The kernel {name} has no state space: use {KERNELS}; or, for up to some thousand rows, a"
        " CVIGP, and for more an NNGP, which take any kernel."
    )


def series_error_of(kernel: Kernel, harmonics: int) -> float:
    """The largest `series_error` of the periodic kernels in a kernel; zero if there are none."""
    if type(kernel) in (kernels.Sum, kernels.Product):
        return max(series_error_of(part, harmonics) for part in kernel.kernels)
    return float(series_error(kernel, harmonics)) if type(kernel) is kernels.Periodic else 0.0


def _scalar(parameter: tf.Tensor) -> tf.Tensor:
    return tf.reshape(parameter, [])
