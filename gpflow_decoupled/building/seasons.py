"""The default kernel of dates with seasons."""

from __future__ import annotations

__all__ = ["date_places", "with_seasons"]

from collections.abc import Sequence

import gpflow
import numpy as np
from gpflow.kernels import Kernel, Matern52, SquaredExponential

from ..training.tables import Column, Season

_SLOW = 10.0
"""Standard deviations of a date in which its season changes, at the start."""
_TREND, _SIZE = 3.0, 10.0
"""The same of its trend, and the trend's variance. On CO2 until 1990 a trend beside deviations had
36 nats more evidence than one function for both."""


def date_places(columns: Sequence[Column]) -> list[int]:
    """The column of X of the date of each season, in their order."""
    places, first = dict[object, int](), 0
    for column in columns:
        if column.kind == "date":
            places[column.name] = first
        first += len(column.names)
    return [places[c.name] for c in columns if isinstance(c, Season) and c.kind == "cosine"]


def with_seasons(kernel: Matern52, dates: Sequence[int], spread: np.ndarray) -> Kernel:
    """Add to a kernel of the first columns a smooth trend of each date, and its seasons.

    :param kernel: with a lengthscale for each of the D columns before the seasons' columns.
    :param dates: columns of the dates; the waves of the first are D and D + 1, and so on.
    :param spread: standard deviations [D] of the first columns, in units of X.
    """
    plain = len(spread)
    kernel = Matern52(lengthscales=kernel.lengthscales.numpy(), active_dims=range(plain))
    parts: list[Kernel] = [kernel]
    parts += [
        SquaredExponential(_SIZE, _TREND * spread[place], active_dims=[place])
        for place in sorted(set(dates))
    ]
    for number, place in enumerate(dates):
        first = plain + 2 * number
        slow = Matern52(lengthscales=_SLOW * spread[place], active_dims=[place])
        gpflow.set_trainable(slow.variance, False)
        parts.append(Matern52(active_dims=[first, first + 1]) * slow)
    return gpflow.kernels.Sum(parts)
