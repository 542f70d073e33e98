"""Four bounds of the Gibbs risk e_G from its empirical value, KL[Q || P], the sample size n and delta.

Each holds with probability 1 - delta for all Q at once. Seeger's is that of "PAC-Bayesian Generalisation Error Bounds
for Gaussian Process Classification" (2002), Maurer's its constant of 2004, Pinsker's a relaxation of that, McAllester's the
first one (1999). Maurer's is never above Seeger's: (n + 1) - 2 sqrt(n) = (sqrt(n) - 1)^2. He proves it for n >= 8; the sum
that it bounds is below 2 sqrt(n) for smaller n too.
"""

from __future__ import annotations

__all__ = ["mcallester", "maurer", "pinsker", "seeger"]

import numpy as np

from .binary_kl import inverse_binary_kl

Numbers = float | np.ndarray


def seeger(risk: Numbers, kl: Numbers, n: Numbers, delta: Numbers) -> np.ndarray:
    """The bound with constant (n + 1) / delta; arguments [...] of shapes that broadcast."""
    n = np.asarray(n, float)
    return inverse_binary_kl(risk, (kl + np.log((n + 1.0) / delta)) / n)  # (T10)


def maurer(risk: Numbers, kl: Numbers, n: Numbers, delta: Numbers) -> np.ndarray:
    """The bound with constant 2 sqrt(n) / delta; arguments [...] of shapes that broadcast."""
    n = np.asarray(n, float)
    return inverse_binary_kl(risk, (kl + np.log(2.0 * np.sqrt(n) / delta)) / n)  # (T11)


def pinsker(risk: Numbers, kl: Numbers, n: Numbers, delta: Numbers) -> np.ndarray:
    """What Pinsker's inequality makes of `maurer`, at most 1; arguments [...] of shapes that broadcast."""
    n = np.asarray(n, float)
    return np.minimum(1.0, risk + np.sqrt((kl + np.log(2.0 * np.sqrt(n) / delta)) / (2.0 * n)))  # (T11)


def mcallester(risk: Numbers, kl: Numbers, n: Numbers, delta: Numbers) -> np.ndarray:
    """The first of these bounds, at most 1; arguments [...] of shapes that broadcast."""
    n = np.asarray(n, float)
    return np.minimum(1.0, risk + np.sqrt((kl + np.log(1.0 / delta) + np.log(n) + 2.0) / (2.0 * n - 1.0)))  # (T12)
