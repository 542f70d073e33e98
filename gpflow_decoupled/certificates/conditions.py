"""What a certificate assumes, checked as far as a model and its data can tell, and else asked of the caller.

The bounds hold for every Q, whatever it was learned from, inducing inputs included. They do not hold for a prior P, that is
kernel and mean function, that was learned on the same sample.
"""

from __future__ import annotations

__all__ = ["ORIGINS", "check_level", "prior_origin"]

import warnings
from typing import Any

import numpy as np
from gpflow.base import RegressionData

from ..errors import DataError, check_option

ORIGINS = {
    "fixed": "The prior did not depend on the data.",
    "split": "The prior was learned on other data.",
    "unknown": "Whether the prior depends on the data is not known; if it does, these are no bounds.",
    "same-data": "The prior was learned on the same data: these are no bounds of the risk, only a score of the fit.",
}
"""Where the hyperparameters of the prior come from, and what the certificate then means."""
_FIX = (
    "Learn them on other rows (certificates.split_for_certificate), fix them beforehand, or choose among settings that were "
    "named beforehand (certificates.select_by_certificate)."
)


def check_level(delta: float, settings: int) -> None:
    """Raise `DataError` unless 0 < delta < 1 and the number of settings is at least 1."""
    if not (np.ndim(delta) == 0 and 0.0 < delta < 1.0):
        raise DataError(f"delta={delta!r}; the bound holds with probability 1 - delta: use a number between 0 and 1.")
    if not isinstance(settings, int) or settings < 1:
        raise DataError(f"settings={settings!r}; use the number of settings that were compared, at least 1.")


def prior_origin(model: Any, data: RegressionData, stated: str | None, learned_on: RegressionData | None) -> str:
    """One of `ORIGINS` for data X [N, D], Y [N, 1]: what the caller stated, unless the data speak against it.

    :param stated: "fixed", "split", "same-data", or None. Then a prior without trainable Parameters is taken as fixed, and
        any other is "unknown", with a warning.
    :param learned_on: the data X [N', D], Y [N', 1] of the hyperparameters, whose rows must not be among these.

    Raises `UnknownOptionError` for another statement.
    """
    if stated is not None:
        check_option("hyperparameters", stated, ("fixed", "split", "same-data"))
    if learned_on is not None:
        shared = _shared_rows(data, learned_on)
        stated = stated or "split"
        if shared:
            return _warned(f"{shared} of the {len(data[0])} rows are also in learned_on.")
    if stated == "same-data":
        return _warned("The hyperparameters were learned on these data.")
    if stated is not None:
        return stated
    trainable = _trainable(model)
    if not trainable:
        return "fixed"
    warnings.warn(
        f"{', '.join(trainable)} can be trained, and a model does not tell on what it was: if on these data, then the bounds "
        'hold for no delta. Say hyperparameters="fixed" or "split" if they were not, or "same-data". ' + _FIX,
        stacklevel=3,
    )
    return "unknown"


def _warned(finding: str) -> str:
    warnings.warn(
        f"{finding} The prior then depends on the sample, and the certificate is none: its numbers score the fit, and the "
        "risk may be above them. " + _FIX,
        stacklevel=4,
    )
    return "same-data"


def _trainable(model: Any) -> list[str]:
    """The trainable Parameters of the prior, of kernel and mean function; those of the likelihood are in Q alone."""
    parts = (("kernel", model.kernel), ("mean_function", model.mean_function))
    return [
        f"{name} ({len(part.trainable_parameters)} Parameters)" for name, part in parts if part.trainable_parameters
    ]


def _shared_rows(data: RegressionData, other: RegressionData) -> int:
    """How many rows of (X, Y) are also rows of the other pair."""
    here, there = (np.hstack([np.asarray(part, float) for part in pair]) for pair in (data, other))
    known = {row.tobytes() for row in there}
    return sum(row.tobytes() in known for row in here)
