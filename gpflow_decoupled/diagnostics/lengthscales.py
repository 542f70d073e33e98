"""Lengthscales against spacing and range of X."""

from __future__ import annotations

__all__ = ["complaints_of_inputs"]

from collections.abc import Iterator

import numpy as np
from gpflow.kernels import (
    IsotropicStationary,
    Kernel,
    LinearCoregionalization,
    Product,
    SeparateIndependent,
    SharedIndependent,
    Static,
    Sum,
)

from ..covariances.centring import reads_scaled_inputs

_FAR = 6.0
"""Lengthscales between neighbours at which they tell nothing about each other: their correlation is
below 1e-3.
"""
_LONG = 100.0
"""Lengthscale over range of a column at which the kernel does not see the column."""
_QUERIES, _ROWS = 50, 50_000  # rows whose neighbours are sought; most rows to seek among
_COMPOSITES = (Sum, Product, SeparateIndependent, LinearCoregionalization)


def complaints_of_inputs(kernel: Kernel, X: np.ndarray, num_data: int) -> Iterator[str]:
    """Yield a sentence per lengthscale far too short or long for rows X [N, D].

    :param num_data: rows of the whole data set, of which X may be a sample.
    """
    # Only isotropic stationary and constant kernels are judged; of several parts all must be at
    # fault. Cost: distances of at most 50 rows to at most 50,000, and the range of X.
    leaves = [leaf for leaf in _leaves(kernel) if not isinstance(leaf, Static)]
    isotropic = [isinstance(leaf, IsotropicStationary) for leaf in leaves]
    if not leaves or not all(isotropic) or not all(map(reads_scaled_inputs, leaves)):
        return
    parts = [_scaled(leaf, X) for leaf in leaves]
    gaps = [_spacing(inputs / lengthscales, num_data) for _, inputs, lengthscales in parts]
    if min(gaps) > _FAR:
        columns, inputs, lengthscales = parts[int(np.argmin(gaps))]
        yield (
            f"a row of X is typically {min(gaps):.3g} lengthscales from the nearest other row"
            f" (lengthscales {_shown(lengthscales)}, standard deviation of X"
            f" {_shown(inputs.std(axis=0))}): to this kernel the observations have nothing to do"
            " with each other"
        )
    ranges = np.ptp(X.astype(np.float64), axis=0)
    for column in np.flatnonzero(ranges > 0):
        seen = [lengths[columns == column][0] for columns, _, lengths in parts if column in columns]
        if seen and min(seen) > _LONG * ranges[column]:
            yield (
                f"X[:, {column}] has a range of {ranges[column]:.3g}, but the lengthscale is"
                f" {min(seen):.3g}: the kernel takes this column as constant"
            )


def _leaves(kernel: Kernel) -> Iterator[Kernel]:
    if isinstance(kernel, SharedIndependent):
        yield from _leaves(kernel.kernel)
    elif isinstance(kernel, _COMPOSITES):
        for part in kernel.kernels:
            yield from _leaves(part)
    else:
        yield kernel


def _scaled(kernel: Kernel, X: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    columns = np.arange(X.shape[1])[kernel.active_dims]
    lengthscales = np.broadcast_to(
        np.asarray(kernel.lengthscales).astype(np.float64), columns.shape
    )
    return columns, X[:, columns].astype(np.float64), lengthscales


def _spacing(scaled: np.ndarray, num_data: int) -> float:
    rng = np.random.default_rng(0)
    if len(scaled) > _ROWS:
        scaled = scaled[rng.choice(len(scaled), _ROWS, replace=False)]
    nearest = []
    for row in rng.choice(len(scaled), min(_QUERIES, len(scaled)), replace=False):
        squares = np.sum(np.square(scaled - scaled[row]), axis=1)
        squares[row] = np.inf
        nearest.append(np.sqrt(squares.min()))
    return float(np.median(nearest)) * (len(scaled) / max(num_data, len(scaled))) ** (
        1.0 / scaled.shape[1]
    )


def _shown(values: np.ndarray) -> str:
    if np.all(values == values[0]):
        return f"{values[0]:.3g}"
    return ", ".join(f"{value:.3g}" for value in values[:3]) + (", ..." if len(values) > 3 else "")
