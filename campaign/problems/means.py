"""Mean functions."""

from __future__ import annotations

__all__ = ["draw_mean"]

import numpy as np
from gpflow import functions


def draw_mean(
    rng: np.random.Generator, X: np.ndarray, outputs: int, size: float
) -> tuple[functions.MeanFunction | None, str]:
    """A mean function [N, D] -> [N, P] whose values have about the given size, and its name; None
    is zero.
    """
    columns, reach = X.shape[1], max(float(np.max(np.abs(X))), 1e-30)
    kind = str(rng.choice(["none", "none", "Zero", "Constant", "Linear", "Additive"]))
    if kind == "none":
        return None, kind
    if kind == "Zero":
        return functions.Zero(outputs), kind
    constant = functions.Constant(size * rng.normal(size=outputs))
    if kind == "Constant":
        return constant, kind
    linear = functions.Linear(
        size / reach * rng.normal(size=(columns, outputs)), size * rng.normal(size=outputs)
    )
    return (linear if kind == "Linear" else functions.Additive(linear, constant)), kind
