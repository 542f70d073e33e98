"""Step sizes of conjugate computation: a number, or a function of the step."""

from __future__ import annotations

__all__ = ["Rho", "step_size"]

from collections.abc import Callable

from ..errors import DataError

Rho = float | Callable[[int], float]


def step_size(rho: Rho, step: int) -> float:
    """Rho of step 0, 1, ..., a scalar; raises `DataError` outside (0, 1]."""
    value = rho(step) if callable(rho) else rho
    if not 0.0 < float(value) <= 1.0:
        raise DataError(f"rho={value!r} at step {step} must be in (0, 1].")
    return float(value)
