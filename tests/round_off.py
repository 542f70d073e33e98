"""A pytest plugin that moves every random input by one unit in the last place:
`pytest -p tests.round_off`.

A test whose reference is worse conditioned than its tolerance passes on the processor on which it
was written and fails on another. Inputs that differ by round-off show such a test on one machine.
The move depends on the number alone, so that two generators of the same seed still agree;
GPFLOW_DECOUPLED_ROUND_OFF chooses among the possible moves."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

_DRAWS = (
    "normal",
    "standard_normal",
    "uniform",
    "random",
    "gamma",
    "exponential",
    "beta",
    "standard_t",
    "laplace",
)
_default_rng = np.random.default_rng
VARIABLE = "GPFLOW_DECOUPLED_ROUND_OFF"


def moved(values: Any, variant: int) -> Any:
    """`values` with each number moved to one of its neighbours, up or down by a hash of its bits
    and of `variant`.
    """
    array = np.asarray(values)
    if array.dtype != np.float64:
        return values
    bits = np.atleast_1d(array).view(np.uint64) ^ np.uint64(variant)
    up = (bits * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(63)).astype(bool).reshape(array.shape)
    neighbours = np.nextafter(array, np.where(up, np.inf, -np.inf))
    return neighbours if isinstance(values, np.ndarray) else float(neighbours)


class _Moved(np.random.Generator):
    """A generator whose real numbers are moved by round-off."""


def _override(name: str, variant: int) -> Callable:
    def draw(self: _Moved, *args: Any, **options: Any) -> Any:
        return moved(getattr(np.random.Generator, name)(self, *args, **options), variant)

    return draw


def pytest_configure() -> None:
    """Put the moved generator in the place of NumPy's before any test module draws its data."""
    variant = int(os.environ.setdefault(VARIABLE, "1"))  # processes that a test starts read it too
    for name in _DRAWS:
        setattr(_Moved, name, _override(name, variant))
    np.random.default_rng = _moved_rng


def _moved_rng(seed: Any = None) -> np.random.Generator:
    """NumPy's `default_rng`, moved; a generator that a test brings is passed through, as NumPy
    does.
    """
    return (
        seed if isinstance(seed, np.random.Generator) else _Moved(_default_rng(seed).bit_generator)
    )
