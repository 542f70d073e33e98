"""The Bernoulli KL divergence and its inverse."""

from __future__ import annotations

__all__ = ["binary_kl", "inverse_binary_kl"]

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import rel_entr

_HALVINGS = 60
"""Bisection steps: after 60, an interval of length 1 is below float64's round-off."""


def binary_kl(q: ArrayLike, p: ArrayLike) -> np.ndarray:
    """kl(q || p) = q log(q / p) + (1 - q) log((1 - q) / (1 - p)) in nats, between Bernoullis.

    Infinite where p = 0 < q, and where p = 1 > q; probabilities [...] broadcast.

    Example::

        binary_kl(0.1, 0.3)  # 0.1163
    """
    q, p = np.asarray(q), np.asarray(p)
    return rel_entr(q, p) + rel_entr(1.0 - q, 1.0 - p)


def inverse_binary_kl(q: ArrayLike, c: ArrayLike) -> np.ndarray:
    """The largest p with kl(q || p) <= c.

    By bisection to round-off, at the upper end, so that a bound stays a bound.

    :param q: probabilities [...] in [0, 1].
    :param c: divergences [...] in nats, non-negative.

    Example::

        inverse_binary_kl(0.1, 0.1163)  # 0.3
    """
    q, c = np.broadcast_arrays(np.asarray(q, float), np.asarray(c, float))
    low, high = q.copy(), np.ones_like(q)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        inside = binary_kl(q, middle) <= c
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return np.where(np.isnan(q) | np.isnan(c), np.nan, high)
