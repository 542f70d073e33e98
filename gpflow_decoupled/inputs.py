"""The one rule for what callers pass: which arrays and numbers are taken or converted, and in which words others are refused.

Arrays, data frames and tensors keep their own type, which must be that of the model; numbers in lists take the model's type.
Labels may be integers or booleans. Inside a `tf.function` types and static shapes are checked, and values are not.
"""

from __future__ import annotations

__all__ = ["check_rate", "check_whole", "is_whole"]

import math
from numbers import Integral, Real

from .errors import DataError


def is_whole(value: object, low: int) -> bool:
    """Whether a value is a whole number of at least `low`; True and False are no numbers."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= low


def check_whole(low: int, **values: object) -> None:
    """Refuse numbers that count nothing.

    :param low: the least number that is taken.
    :param values: the values, by the name of their argument.
    :raises DataError: unless each is a whole number of at least `low`.

    Example::

        check_whole(1, steps=steps)
    """
    for name, value in values.items():
        if not is_whole(value, low):
            raise DataError(f"{name}={value!r} must be a whole number of at least {low}.")


def check_rate(high: float = math.inf, **values: object) -> None:
    """Refuse numbers that are no step size or tolerance.

    :param high: the largest number that is taken.
    :param values: the values, by the name of their argument.
    :raises DataError: unless each is a finite number above 0 and at most `high`.

    Example::

        check_rate(1.0, gamma=gamma)
    """
    for name, value in values.items():
        number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
        if not 0.0 < number <= high or math.isinf(number):
            limit = "" if math.isinf(high) else f" and at most {high:g}"
            raise DataError(f"{name}={value!r} must be a number above 0{limit}.")
