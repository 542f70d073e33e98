"""Parameters of likelihoods: positive ones, and what site losses need, which is numbers and no functions of the inputs."""

from __future__ import annotations

__all__ = ["constant_parameter", "positive_parameter"]

from typing import Any

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.config import default_likelihood_positive_minimum
from gpflow.functions import Function
from gpflow.utilities import positive

from ..errors import DataError


def constant_parameter(parameter: Any, name: str, positive: bool = False) -> tf.Tensor:
    """A parameter of a likelihood as a tensor, of any shape that broadcasts to [N, L].

    Raises `DataError` for a function of the inputs, which a site loss does not know, and, where values can be seen, for
    one that is not finite, or not above 0 where it must be.
    """
    if isinstance(parameter, Function):
        raise DataError(
            f"{name} is a {type(parameter).__name__}, a function of the inputs: a site loss knows labels alone; pass a "
            "number, or an array [N, 1]."
        )
    tensor = tf.convert_to_tensor(parameter)
    if tf.executing_eagerly():
        values = np.asarray(tensor)
        good = np.isfinite(values) & ((values > 0) | (not positive))
        if not np.all(good):
            what = "positive and finite" if positive else "finite"
            raise DataError(f"{name} is {np.array2string(values, threshold=6)}; it must be {what}.")
    return tensor


def positive_parameter(value: Any, name: str) -> Parameter:
    """A Parameter that stays above 0, of the shape of `value`.

    Raises `DataError` for values that are not numbers above GPflow's least scale, 1e-6 unless it was configured otherwise.
    """
    if isinstance(value, Parameter):
        return value
    least = default_likelihood_positive_minimum()
    try:
        numbers = np.asarray(value, float)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name}={value!r} is not a number.") from error
    if not np.all(np.isfinite(numbers) & (numbers > least)):
        raise DataError(f"{name}={value!r} must be a finite number above {least:g}.")
    return Parameter(value, transform=positive(least))
