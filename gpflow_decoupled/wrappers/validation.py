"""Rows that an estimator holds out of its training data: training stops when predictions for them
no longer improve.
"""

from __future__ import annotations

__all__ = ["held_out_rows", "how_to_go_on"]

import numpy as np

from ..errors import DataError
from ..inputs import is_number
from ..summaries import short_repr
from ..training import FitResult

_LIMITS = ("steps done", "time is up")
"""Why a run ended that could have gone on."""
_RISE = 1e-3
"""Nats per row: predictions for held-out rows that gained so much of late would gain more in a
longer run.
"""


def held_out_rows(groups: np.ndarray, fraction: object, rng: np.random.RandomState) -> np.ndarray:
    """Which of the rows are held out, [N] of booleans: the same share of each group, rounded down.

    :param groups: [N], the class of each row; for regression the same number everywhere.
    :param fraction: the share, above 0 and below 1.
    :param rng: chooses the rows.
    :raises DataError: for another share, and where no row would be held out.
    """
    if not is_number(fraction) or not 0.0 < fraction < 1.0:
        raise DataError(
            f"validation_fraction={short_repr(fraction)}: pass a share of the rows above 0 and"
            " below 1, or None."
        )
    held_out = np.zeros(len(groups), bool)
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        # the small number keeps 0.1 * 30 at 3; a class keeps a row at least, as the share is below
        # 1
        held_out[rng.permutation(rows)[: int(fraction * len(rows) + 1e-9)]] = True
    if not held_out.any():
        raise DataError(
            f"validation_fraction={fraction:g} of {len(groups)} rows holds out none of any class;"
            " use a larger share, or None."
        )
    return held_out


def how_to_go_on(result: FitResult) -> str:
    """What a longer run would take, as sentences, where a limit ended one that still improved; else
    an empty text.

    It still improved where the mean log density of the held-out rows at the end is above the best
    of the first three quarters of the steps, by 1e-3 nats per row or more.

    :param result: of a run with an `Evaluation`.
    """
    steps, density = result.history["evaluation_step"], result.history["log_density"]
    early = density[steps <= 0.75 * result.steps]
    if result.reason not in _LIMITS or not len(early) or not density[-1] - early.max() >= _RISE:
        return ""
    limit, size = (
        ("steps", result.steps) if result.reason == _LIMITS[0] else ("seconds", result.seconds)
    )
    return (
        f"A limit ended training ({result.reason}) while predictions for held-out rows still"
        f" improved: their mean log density rose by {density[-1] - early.max():.2g} nats in the"
        f" last quarter of {result.steps} steps. For a run twice as long pass"
        f" {limit}={2 * size:.6g}; to go on from here, for some {result.seconds:.0f} s, call"
        f" standardized_.fit({limit}={size:.6g})."
    )
