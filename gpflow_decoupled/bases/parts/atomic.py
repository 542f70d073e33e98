"""All-or-nothing changes of several variables."""

from __future__ import annotations

__all__ = ["all_or_nothing"]

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import tensorflow as tf


@contextmanager
def all_or_nothing(variables: Sequence[tf.Variable]) -> Iterator[None]:
    """Restore the variables if the block raises anything."""
    before = [(variable, variable.read_value()) for variable in variables]
    try:
        yield
    except BaseException:  # an interrupt, too
        for variable, value in before:
            variable.assign(value)
        raise
