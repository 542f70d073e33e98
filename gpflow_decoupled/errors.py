"""Exceptions of the package: every message names the array, parameter or matrix, and the fix."""

from __future__ import annotations

__all__ = ["DataError", "ModelError", "NumericalError", "UnknownOptionError", "check_option"]

from collections.abc import Iterable
from typing import Any


class DataError(ValueError):
    """Data, inducing points or a setting were refused before anything was computed; nothing was changed.

    Only a `tf.data.Dataset` can still turn bad in training: then `result` is the record of the steps before.
    """

    result: Any = None


class UnknownOptionError(ValueError):
    """An option has a value, or a name, that does not exist."""


class ModelError(TypeError):
    """A method was handed a model of a family that it cannot work on; the message says what to use for that model."""


class NumericalError(ArithmeticError):
    """A computation failed in training. The model holds the last good parameters.

    `matrix` names what failed; `result`, where training had begun, is the record of the steps before.
    """

    def __init__(self, message: str, matrix: str = "", result: Any = None) -> None:
        super().__init__(message)
        self.matrix = matrix
        self.result = result


def check_option(name: str, value: Any, allowed: Iterable[Any]) -> None:
    """Raise `UnknownOptionError` unless `value` is one of `allowed`."""
    allowed = tuple(allowed)
    if value not in allowed:
        raise UnknownOptionError(f"{name}={value!r} is not known; use one of {', '.join(map(repr, allowed))}.")
