"""Known noise of new rows."""

from __future__ import annotations

__all__ = ["check_adds_noise", "known_noise"]

from typing import Any

import numpy as np
from gpflow.likelihoods import Gaussian
from gpflow.models import GPModel

from ...errors import DataError, ModelError
from ...inputs import as_values
from ...likelihoods import RowLikelihood
from ...models import AffineIndependentGP
from ..tables.table import check_order, is_frame


def check_adds_noise(model: GPModel) -> None:
    """Refuse models to whose observations the noise of a row cannot be added.

    :raises ModelError: unless y is f plus Gaussian noise, and q(f) is Gaussian.
    """
    likelihood = model.likelihood
    base = likelihood.likelihood if isinstance(likelihood, RowLikelihood) else likelihood
    if type(base) is not Gaussian or isinstance(model, AffineIndependentGP):
        what = type(model if type(base) is Gaussian else base).__name__
        raise ModelError(
            f"noise_variance is added to Gaussian noise, and this is a {what}: leave it out."
        )


def known_noise(value: Any, X: Any, shape: tuple[int | None, ...], outputs: int) -> np.ndarray:
    """Noise variances [..., N, P] of new rows, in units of Y.

    :param value: [..., N], [..., N, 1] or [..., N, P]; or the name of a column of X.
    :param X: as the caller passed it.
    :param shape: [..., N] of the rows.
    :param outputs: P.
    :raises DataError: for unknown columns, other shapes, and numbers below 0 or not finite.
    """
    if isinstance(value, str):
        if not is_frame(X) or value not in X.columns:
            raise DataError(f"noise_variance={value!r} is no column of X; pass numbers, [N].")
        value = np.asarray(X[value])
    check_order(X=X, noise_variance=value)
    values = as_values(value, "noise_variance").astype(np.float64)
    full = values[..., None] if values.ndim == len(shape) else values
    same = full.ndim == len(shape) + 1 and all(
        rows in (None, found) for rows, found in zip(shape, full.shape)
    )
    if not same or full.shape[-1] not in (1, outputs):
        wanted = ["N" if rows is None else rows for rows in shape]
        raise DataError(
            f"noise_variance has shape {values.shape}; pass a number per row,"
            f" [{', '.join(map(str, wanted))}]."
        )
    bad = ~(np.isfinite(full) & (full >= 0.0))
    if np.any(bad):
        place = tuple(int(index) for index in np.argwhere(bad)[0])
        row = place[0] if len(place) == 2 else list(place[:-1])
        raise DataError(
            f"noise_variance of row {row} is {full[place]:g}; pass a finite variance, not below 0."
        )
    return np.broadcast_to(full, (*full.shape[:-1], outputs))
