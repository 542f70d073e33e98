"""Sets of labels that likelihoods accept."""

from __future__ import annotations

__all__ = ["BINARY", "COUNTS", "NOT_NEGATIVE", "POSITIVE", "UNIT_INTERVAL", "Support", "classes"]

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class Support(NamedTuple):
    """The labels that a likelihood accepts.

    Example::

        angles = Support("angles from 0 to 2 pi", lambda Y: (Y >= 0) & (Y <= 2 * np.pi))
        declare_site(VonMises, support=angles)
    """

    words: str
    """The set in words, as it follows "which takes" in an error message."""
    accepts: Callable[[np.ndarray], np.ndarray]
    """labels of any shape -> booleans of the same shape."""
    fix: str = "recode Y"
    """The last words of an error message: what to do about it."""


def classes(number: int) -> Support:
    """The whole numbers 0 to `number` - 1."""
    return Support(
        f"whole numbers 0 to {number - 1}", lambda Y: _whole(Y) & (Y >= 0) & (Y <= number - 1)
    )


def _whole(Y: np.ndarray) -> np.ndarray:
    return Y == np.round(Y)


BINARY = Support("0 or 1", lambda Y: (Y == 0) | (Y == 1))
COUNTS = Support("counts 0, 1, 2, ...", lambda Y: _whole(Y) & (Y >= 0))
NOT_NEGATIVE = Support("numbers of at least 0", lambda Y: Y >= 0)
POSITIVE = Support("numbers above 0", lambda Y: Y > 0)
UNIT_INTERVAL = Support("numbers strictly between 0 and 1", lambda Y: (Y > 0) & (Y < 1))
