"""The divergence of two coins and its inverse, on which PAC-Bayes bounds of error rates rest."""

from __future__ import annotations

__all__ = ["binary_kl", "inverse_binary_kl"]

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import rel_entr

_HALVINGS = 60


def binary_kl(q: ArrayLike, p: ArrayLike) -> np.ndarray:
    """kl(q || p) in nats of coins with probabilities q [...] and p [...]: infinite where p excludes what q does not."""
    q, p = np.asarray(q), np.asarray(p)
    return rel_entr(q, p) + rel_entr(1.0 - q, 1.0 - p)


def inverse_binary_kl(q: ArrayLike, c: ArrayLike) -> np.ndarray:
    """The largest p with kl(q || p) <= c, for q [...] in [0, 1] and c [...] >= 0; never below it, by bisection to round-off.

    kl(q || p) grows with p from q on. It is infinite at p = 1 unless q = 1.
    """
    q, c = np.broadcast_arrays(np.asarray(q, float), np.asarray(c, float))
    low, high = q.copy(), np.ones_like(q)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        inside = binary_kl(q, middle) <= c
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return high
