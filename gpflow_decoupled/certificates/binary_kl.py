"""The Bernoulli KL divergence and its inverse, from which PAC-Bayes bounds on error rates are
computed.
"""

from __future__ import annotations

__all__ = ["binary_kl", "inverse_binary_kl"]

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import rel_entr

_HALVINGS = 60
"""Bisection steps: after 60 of them an interval of length 1 is shorter than the round-off of
float64.
"""


def binary_kl(q: ArrayLike, p: ArrayLike) -> np.ndarray:
    """The KL divergence between two Bernoulli distributions in nats.

    It is kl(q || p) = q log(q / p) + (1 - q) log((1 - q) / (1 - p)), which is infinite where p = 0
    and q > 0, and where p = 1 and q < 1.

    :param q: probabilities [...] of the first distribution.
    :param p: probabilities [...] of the second distribution.
    :return: [...], of the shape to which both broadcast.

    Example::

        binary_kl(0.1, 0.3)  # 0.1163
    """
    q, p = np.asarray(q), np.asarray(p)
    return rel_entr(q, p) + rel_entr(1.0 - q, 1.0 - p)


def inverse_binary_kl(q: ArrayLike, c: ArrayLike) -> np.ndarray:
    """The largest p with kl(q || p) <= c, the inverse of the Bernoulli KL divergence in its second
    argument.

    It is found by bisection to round-off, which works because kl(q || p) increases in p for p >= q.
    The upper end of the last interval is returned, so that the result is never below the exact
    value and a bound made of it stays a bound.

    :param q: probabilities [...] in [0, 1].
    :param c: divergences [...] in nats, at least 0.
    :return: probabilities [...], of the shape to which both broadcast; NaN where one of them is.

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
