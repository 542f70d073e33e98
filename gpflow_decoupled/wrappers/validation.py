"""Held-out rows, numbers of rows, and gaps."""

from __future__ import annotations

__all__ = ["counted_rows", "held_out_rows", "how_to_go_on", "without_gaps"]

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import _check_sample_weight

from ..errors import DataError
from ..inputs import is_number
from ..summaries import short_repr
from ..training import FitResult
from ..training.tables import is_frame
from ..training.tables.table import rows_of

_LIMITS = ("steps done", "time is up")
"""Reasons of a run that could have continued."""
_RISE = 1e-3
"""Nats per row: a late gain of held-out rows that promises more from a longer run."""


def held_out_rows(groups: np.ndarray, fraction: object, rng: np.random.RandomState) -> np.ndarray:
    """Choose held-out rows, [N] booleans: the same share of each group, rounded down.

    :param groups: [N], the class of each row; constant for regression.
    :param fraction: the share, in (0, 1).
    :param rng: chooses the rows.
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
    """Advise on a longer run if a limit ended one that still improved; else "".

    :param result: of a run with an `Evaluation`.
    """
    # It improved if the held-out mean log density at the end exceeds the best of the first three
    # quarters of the steps by at least 1e-3 nats per row.
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


def counted_rows(X: Any, Y: np.ndarray, numbers: dict[str, Any]) -> tuple[Any, np.ndarray, dict]:
    """X, Y and numbers of rows, checked as scikit-learn does, of the rows whose weight is not 0.

    :param X: a frame, or [N, D].
    :param Y: targets, [N] or [N, P].
    :param numbers: of `build`: arrays, names of columns, or None.
    """
    numbers = {name: _numbers_of_rows(name, value, len(Y)) for name, value in numbers.items()}
    weights = numbers["sample_weight"]
    if isinstance(weights, str) and is_frame(X) and weights in X.columns:
        weights = np.asarray(X[weights])
    if weights is None or isinstance(weights, str) or len(weights) != len(Y):
        return X, Y, numbers
    counts = weights != 0.0
    kept = {
        name: value if value is None or isinstance(value, str) else value[counts]
        for name, value in numbers.items()
    }
    return rows_of(X, counts), Y[counts], kept


def _numbers_of_rows(name: str, value: npt.ArrayLike | str | None, rows: int) -> Any:
    if value is None or isinstance(value, str):
        return value
    if name == "sample_weight":
        return _check_sample_weight(value, np.zeros((rows, 1)), dtype=np.float64)
    return np.asarray(value, np.float64)


def without_gaps(y: Any) -> tuple[Any, np.ndarray | None]:
    """Several targets with means where entries are missing, and which are, [N, P].

    Others unchanged, with None.

    :param y: targets [N] or [N, P].
    """
    values = np.asarray(y) if hasattr(y, "dtype") or hasattr(y, "dtypes") else np.zeros(0)
    if values.ndim != 2 or values.shape[1] < 2 or values.dtype.kind != "f":
        return y, None
    missing = np.isnan(values)
    if not missing.any() or missing.all(axis=1).any() or missing.all(axis=0).any():
        return y, None
    return np.where(missing, np.nanmean(values, axis=0), values), missing
