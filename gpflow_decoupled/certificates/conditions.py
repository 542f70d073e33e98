"""The condition: the prior is independent of the sample."""

from __future__ import annotations

__all__ = ["ORIGINS", "check_level", "prior_origin", "stated_origin"]


import numpy as np
from gpflow.base import RegressionData
from gpflow.models import GPModel

from ..errors import DataError, check_option
from ..inducing.point_checks import rows_in
from ..inputs import as_array, as_pair, is_number, is_whole
from ..summaries import short_repr
from ..user_warnings import warn_user

ORIGINS = {
    "fixed": "The prior did not depend on the data.",
    "split": "The prior was learned on other data.",
    "unknown": (
        "Whether the prior depends on the data is not known; if it does, these numbers are not"
        " bounds."
    ),
    "same-data": (
        "The prior was learned on the same data: these numbers are not bounds on the risk, only a"
        " score of the fit."
    ),
}
"""The origins of the prior's hyperparameters, and the meaning of the certificate."""
_FIX = (
    "Learn them on other rows (certificates.split_for_certificate), fix them before the data are"
    " seen, or choose from settings that were named beforehand"
    " (certificates.select_by_certificate)."
)


def check_level(delta: float, settings: int) -> None:
    """Raise `DataError` unless 0 < delta < 1 and the number of settings is at least 1."""
    if not is_number(delta) or not 0.0 < delta < 1.0:
        raise DataError(
            f"delta={short_repr(delta)}; the bound holds with probability 1 - delta: use a number"
            " between 0 and 1."
        )
    if not is_whole(settings, 1):
        raise DataError(
            f"settings={short_repr(settings)}; use the number of settings that were compared, at"
            " least 1."
        )


def prior_origin(
    model: GPModel, data: RegressionData, stated: str | None, learned_on: RegressionData | None
) -> str:
    """Return the origin of the prior: as stated, unless the data contradict it.

    X is [N, D], Y [N, 1]; other arguments as `pac_bayes_certificate`. Returns a key of `ORIGINS`.
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
    warn_user(
        f"{', '.join(trainable)} can be trained, and it is not known on which data they were: if on"
        ' these, the bounds do not hold. Pass hyperparameters="fixed" or "split" if they were'
        ' not, and otherwise "same-data". ' + _FIX,
    )
    return "unknown"


def stated_origin(stated: str) -> str:
    """Return the statement of `certify_gaussian`'s caller, with a warning for "same-data"."""
    check_option("hyperparameters", stated, ("fixed", "split", "same-data"))
    return _warned("The prior was chosen on these data.") if stated == "same-data" else stated


def _warned(finding: str) -> str:
    warn_user(
        f"{finding} The prior then depends on the sample, and the numbers are not bounds: the risk"
        " may be above them. " + _FIX,
    )
    return "same-data"


def _trainable(model: GPModel) -> list[str]:
    parts = (("kernel", model.kernel), ("mean_function", model.mean_function))
    return [
        f"{name} ({len(part.trainable_parameters)} Parameters)"
        for name, part in parts
        if part.trainable_parameters
    ]


def _shared_rows(data: RegressionData, other: RegressionData) -> int:
    try:
        others = [
            np.asarray(as_array(part, name), float) for part, name in zip(as_pair(other), "XY")
        ]
    except DataError as error:
        raise DataError(f"learned_on: {error}") from error
    here, there = np.hstack([np.asarray(part, float) for part in data]), np.hstack(others)
    if here.shape[1] != there.shape[1]:
        raise DataError(
            f"learned_on has {there.shape[1]} columns in X and Y together, and data has"
            f" {here.shape[1]}: pass the (X, Y) on which the hyperparameters of this model were"
            " learned."
        )
    return int(np.sum(rows_in(here, there)))
