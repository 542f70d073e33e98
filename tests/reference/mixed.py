"""Columns of 0 and 1 for codes, and kernels of distances, in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

RADIAL: Mapping[str, Callable[[Array], Array]] = {
    "Matern12": lambda r: np.exp(-r),
    "Exponential": lambda r: np.exp(-0.5 * r),
    "Matern32": lambda r: (1.0 + np.sqrt(3.0) * r) * np.exp(-np.sqrt(3.0) * r),
    "Matern52": lambda r: (1.0 + np.sqrt(5.0) * r + 5.0 / 3.0 * r**2) * np.exp(-np.sqrt(5.0) * r),
    "SquaredExponential": lambda r: np.exp(-0.5 * r**2),
}


def one_hot(X: Array, lengths: Array, categories: Sequence[int]) -> Array:
    """X [N, D] over its lengthscales; for each code all columns of 0 and 1, of one lengthscale."""
    parts = []
    for column in range(X.shape[1]):
        x = X[:, column][:, None]
        if column in categories:
            x = 1.0 * (x == np.arange(np.max(x) + 1))
        parts.append(x / lengths[column])
    return np.hstack(parts)


def distances(scaled: Array) -> Array:
    """All distances [N, N] of rows, by differences."""
    return np.linalg.norm(scaled[:, None] - scaled, axis=-1)
