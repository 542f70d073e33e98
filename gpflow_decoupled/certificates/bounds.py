"""PAC-Bayes bounds on the risk e_G of the Gibbs classifier."""

from __future__ import annotations

__all__ = [
    "binary_kl", "hoeffding", "inverse_binary_kl", "maurer", "mcallester", "pinsker", "seeger",
]  # fmt: skip

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import rel_entr

from ..errors import DataError
from ..summaries import short_repr


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
    for _ in range(60):  # then an interval of length 1 is below float64's round-off
        middle = 0.5 * (low + high)
        inside = binary_kl(q, middle) <= c
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return np.where(np.isnan(q) | np.isnan(c), np.nan, high)


# ---


# Each holds with probability 1 - delta over samples, for all Q at once.
#
# | bound | source | relation |
# |---|---|---|
# | `seeger` | Seeger, JMLR 2002 | |
# | `maurer` | Maurer, arXiv:cs/0411099, 2004 | never above Seeger's: (n + 1) - 2 sqrt(n) >= 0 |
# | `pinsker` | Pinsker's inequality | a relaxation of Maurer's in closed form |
# | `mcallester` | McAllester, COLT 1999 | the first of these bounds |
#
# `hoeffding` is the union bound over finitely many classifiers.


Numbers = float | np.ndarray
"""A number, or an array [...]; the arguments broadcast."""


def seeger(risk: Numbers, kl: Numbers, n: Numbers, delta: Numbers) -> np.ndarray:
    """Seeger's bound kl^-1(risk, (kl + log((n + 1) / delta)) / n), kl^-1 `inverse_binary_kl`.

    :param risk: Gibbs error rate [...] on the sample.
    :param kl: KL[Q || P] in nats [...].
    :param n: sample size [...].
    :param delta: failure probability [...] over samples.
    :return: the bound on the risk [...].
    :raises DataError: for arguments out of range and NaN.

    Example::

        seeger(0.05, 20.0, 1000, 0.05)  # 0.1214
    """
    risk, kl, n, delta = _checked(risk, kl, n, delta)
    return inverse_binary_kl(risk, (kl + np.log((n + 1.0) / delta)) / n)  # (T10)


def maurer(risk: Numbers, kl: Numbers, n: Numbers, delta: Numbers) -> np.ndarray:
    """Maurer's bound, `seeger` with 2 sqrt(n) for n + 1.

    Arguments [...] as `seeger`.

    Example::

        maurer(0.05, 20.0, 1000, 0.05)  # 0.1173
    """
    risk, kl, n, delta = _checked(risk, kl, n, delta)
    return inverse_binary_kl(risk, (kl + np.log(2.0 * np.sqrt(n) / delta)) / n)  # (T11)


def pinsker(risk: Numbers, kl: Numbers, n: Numbers, delta: Numbers) -> np.ndarray:
    """The relaxation of `maurer` by Pinsker's inequality kl(q || p) >= 2 (q - p)^2.

    Arguments [...] as `seeger`; at most 1.

    Example::

        pinsker(0.05, 20.0, 1000, 0.05)  # 0.1665
    """
    risk, kl, n, delta = _checked(risk, kl, n, delta)
    # (T11)
    return np.minimum(1.0, risk + np.sqrt((kl + np.log(2.0 * np.sqrt(n) / delta)) / (2.0 * n)))


def mcallester(risk: Numbers, kl: Numbers, n: Numbers, delta: Numbers) -> np.ndarray:
    """McAllester's bound risk + sqrt((kl + log(1 / delta) + log n + 2) / (2 n - 1)).

    Arguments [...] as `seeger`; at most 1.

    Example::

        mcallester(0.05, 20.0, 1000, 0.05)  # 0.1763
    """
    risk, kl, n, delta = _checked(risk, kl, n, delta)
    return np.minimum(
        1.0, risk + np.sqrt((kl + np.log(1.0 / delta) + np.log(n) + 2.0) / (2.0 * n - 1.0))
    )  # (T12)


def hoeffding(risk: Numbers, kl: Numbers, n: Numbers, delta: Numbers) -> np.ndarray:
    """The union bound risk + sqrt((kl + log(1 / delta)) / (2 n)) for finitely many classifiers.

    Each of K classifiers gets delta / K, or delta P(h) under a prior P. Not for the KL of a spread
    posterior.

    :param risk: error rate [...] on the sample.
    :param kl: log K, or log(1 / P(h)), in nats [...], fixed before the sample.
    :param n: sample size [...]; `delta` failure probability [...] over samples.
    :return: the bound on the risk [...], at most 1.

    Source: Hoeffding, JASA 1963.

    Example::

        hoeffding(0.05, np.log(100), 1000, 0.05)  # 0.1117, the best of 100 classifiers
    """
    risk, kl, n, delta = _checked(risk, kl, n, delta)
    return np.minimum(1.0, risk + np.sqrt((kl + np.log(1.0 / delta)) / (2.0 * n)))  # (T13)


def _checked(risk: Numbers, kl: Numbers, n: Numbers, delta: Numbers) -> tuple[np.ndarray, ...]:
    values = [np.asarray(value, float) for value in (risk, kl, n, delta)]
    r, c, size, level = values
    for name, given, inside, rule in (
        ("risk", risk, (r >= 0.0) & (r <= 1.0), "an error rate, from 0 to 1"),
        ("kl", kl, (c >= 0.0) & (c < np.inf), "a divergence in nats: finite, and at least 0"),
        (
            "n",
            n,
            (size >= 1.0) & (size < np.inf) & (size == np.round(size)),
            "the size of a sample, a whole number of at least 1",
        ),
        ("delta", delta, (level > 0.0) & (level < 1.0), "a probability above 0 and below 1"),
    ):
        if not np.all(inside):
            raise DataError(f"{name}={short_repr(given)} must be {rule}.")
    return tuple(values)
