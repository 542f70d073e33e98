"""psi' and psi'' of NumPy arrays."""

from __future__ import annotations

__all__ = ["polygammas"]

import numpy as np

_SHIFT = 8  # the recurrence leads to x + 8, where the series has all digits
# Bernoulli numbers: of z^-3, z^-5, ...
_TRIGAMMA = (
    1 / 6,
    -1 / 30,
    1 / 42,
    -1 / 30,
    5 / 66,
    -691 / 2730,
)
_TETRAGAMMA = (-1 / 2, 1 / 6, -1 / 6, 3 / 10, -5 / 6, 691 / 210)  # of z^-4, z^-6, ...


def polygammas(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return psi'(x) and psi''(x), of the shape of x > 0; relative error 1e-14.

    `scipy.special.zeta(2, x)` and `zeta(3, x)` take ten times as long.
    """
    x = np.asarray(x, dtype=float)
    first, second = np.zeros_like(x), np.zeros_like(x)
    for shift in range(_SHIFT):
        inverse = 1.0 / (x + shift)
        square = inverse * inverse
        first += square
        second -= 2.0 * square * inverse
    inverse = 1.0 / (x + _SHIFT)
    square = inverse * inverse
    tail_1, tail_2 = np.zeros_like(x), np.zeros_like(x)
    for one, two in zip(_TRIGAMMA[::-1], _TETRAGAMMA[::-1]):  # Horner's rule
        tail_1, tail_2 = one + square * tail_1, two + square * tail_2
    first += inverse * (1.0 + 0.5 * inverse + square * tail_1)
    second += square * (-1.0 - inverse + square * tail_2)
    return first, second
