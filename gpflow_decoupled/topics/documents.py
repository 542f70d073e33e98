"""Arrays with one row per document."""

from __future__ import annotations

__all__ = ["PerDocument", "chosen", "copied", "put_rows", "rows_of"]

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

import numpy as np

Arrays = TypeVar("Arrays", bound="PerDocument")


class PerDocument(Protocol):
    """A NamedTuple of arrays [b, ...], one row per document."""

    def __iter__(self) -> Iterator[np.ndarray]:
        """The arrays."""


def rows_of(arrays: Arrays, which: np.ndarray) -> Arrays:
    """Rows of arrays [b, ...], by a mask [b] or indices."""
    return _rebuilt(arrays, (array[which] for array in arrays))


def copied(arrays: Arrays) -> Arrays:
    """Copy all arrays [b, ...]."""
    return _rebuilt(arrays, (array.copy() for array in arrays))


def put_rows(arrays: Arrays, which: np.ndarray, part: Arrays) -> None:
    """Overwrite rows of arrays [b, ...] in place by `part`."""
    for array, values in zip(arrays, part):
        array[which] = values


def chosen(which: np.ndarray, first: Arrays, second: Arrays) -> Arrays:
    """Per document, the row of `first` where `which` [b], else of `second`."""
    pairs = zip(first, second)
    return _rebuilt(
        first, (np.where(which.reshape(-1, *[1] * (a.ndim - 1)), a, b) for a, b in pairs)
    )


def _rebuilt(like: Arrays, arrays: Iterable[np.ndarray]) -> Arrays:
    make: Callable[..., Arrays] = type(like)
    return make(*arrays)
