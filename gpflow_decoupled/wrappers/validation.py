"""Rows that an estimator holds out of its training data, to stop when predictions for them no longer improve."""

from __future__ import annotations

__all__ = ["held_out_rows"]

import numpy as np

from ..errors import DataError
from ..inputs import is_number
from ..summaries import short_repr


def held_out_rows(groups: np.ndarray, fraction: object, rng: np.random.RandomState) -> np.ndarray:
    """Which of the rows are held out, [N] of booleans: the same share of each group, rounded down.

    :param groups: [N], the class of each row; for regression the same number everywhere.
    :param fraction: the share, above 0 and below 1.
    :param rng: chooses the rows.
    :raises DataError: for another share, and where no row would be held out.
    """
    if not is_number(fraction) or not 0.0 < fraction < 1.0:
        raise DataError(
            f"validation_fraction={short_repr(fraction)}: pass a share of the rows above 0 and below 1, or None."
        )
    held_out = np.zeros(len(groups), bool)
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        # the small number keeps 0.1 * 30 at 3; a class keeps a row at least, as the share is below 1
        held_out[rng.permutation(rows)[: int(fraction * len(rows) + 1e-9)]] = True
    if not held_out.any():
        raise DataError(
            f"validation_fraction={fraction:g} of {len(groups)} rows holds out none of any class; use a larger share, or None."
        )
    return held_out
