"""A warning where training ends while the bound still rises."""

from __future__ import annotations

__all__ = ["warn_of_rise"]

from collections.abc import Sequence

import numpy as np

from ..user_warnings import warn_user

_MUCH = 0.01
"""Nats per observation in a hundred steps; less is hardly seen in predictions."""
_STEPS = 100
"""The last steps, whose halves are compared; fewer say nothing of where the bound goes."""


def warn_of_rise(elbos: Sequence[float], num_data: int, remedy: str) -> None:
    """Warn if a bound rose by more than 0.01 nats per observation in the last hundred steps.

    The rise is twice the difference of the means of both halves; estimates from minibatches must
    rise by three standard errors more.

    :param elbos: of the steps in nats.
    :param remedy: how to go on, as it ends the sentence.
    """
    last = np.asarray(elbos, np.float64)[-_STEPS:]
    if len(last) < _STEPS or not np.all(np.isfinite(last)):
        return
    half = _STEPS // 2
    rise = 2.0 * float(np.mean(last[half:]) - np.mean(last[:half]))
    scatter = float(np.median(np.abs(np.diff(last)))) / (0.6745 * np.sqrt(2.0))
    error = 2.0 * scatter * np.sqrt(2.0 / half)
    if rise > _MUCH * num_data + 3.0 * error:
        warn_user(
            f"The bound still rises: by {rise:.3g} nats, {rise / num_data:.2g} per row, in the last"
            f" {_STEPS} steps. {remedy}"
        )
