"""Inputs and the spread of outputs: few rows, duplicates, constant columns, scales of sixteen
orders of magnitude.
"""

from __future__ import annotations

__all__ = ["draw_inputs", "draw_scale"]

import numpy as np

ROWS = (1, 1, 2, 2, 3, 3, 5, 8, 12, 20, 30, 40)
COLUMNS = (1, 1, 1, 2, 3, 5)
WIDEST = {np.float64: 8, np.float32: 4}
"""Decimal orders of magnitude of the scales: the squares of wider ones leave the range of
float32.
"""


def draw_scale(rng: np.random.Generator, dtype: type) -> float:
    """One in half of the cases, otherwise a power of ten."""
    return (
        1.0
        if rng.uniform() < 0.5
        else float(10.0 ** rng.integers(-WIDEST[dtype], WIDEST[dtype] + 1))
    )


def draw_inputs(
    rng: np.random.Generator, rows: int, columns: int, scale: float
) -> tuple[np.ndarray, str]:
    """X [N, D], and what is special about it."""
    X, notes = rng.uniform(-2.0, 2.0, (rows, columns)), []
    if rows > 1 and rng.uniform() < 0.3:  # duplicates, up to all rows the same
        X[rng.uniform(size=rows) < rng.uniform()] = X[0]
        notes.append("duplicates")
    if columns > 1 and rng.uniform() < 0.1:
        X[:, rng.integers(columns)] = 0.7
        notes.append("constant column of X")
    if rng.uniform() < 0.1:
        X += 100.0
        notes.append("X far from 0")
    return scale * X, ", ".join(notes)
