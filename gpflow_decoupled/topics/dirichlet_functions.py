"""Dirichlet distributions in NumPy."""

from __future__ import annotations

__all__ = ["expected_log", "fisher_solve", "log_normalizer", "minus_kl", "scaled_exp"]

import numpy as np
from scipy.special import gammaln, psi

from ..special.polygamma import polygammas


def expected_log(c: np.ndarray) -> np.ndarray:
    """E log theta [..., K] under Dir(c), for c [..., K]."""
    return psi(c) - psi(c.sum(-1, keepdims=True))  # (T1)


def log_normalizer(c: np.ndarray) -> np.ndarray:
    """Log normaliser [...] of Dir(c), c [..., K]."""
    return gammaln(c).sum(-1) - gammaln(c.sum(-1))


def minus_kl(
    prior: np.ndarray | float, c: np.ndarray, mean_log: np.ndarray | None = None
) -> np.ndarray:
    """-KL[Dir(c) || Dir(prior)] in nats [...], for c [..., K] and a prior [K] or scalar."""
    mean_log = expected_log(c) if mean_log is None else mean_log
    prior = np.broadcast_to(np.asarray(prior), c.shape[-1:])
    return log_normalizer(c) - log_normalizer(prior) + ((prior - c) * mean_log).sum(-1)  # (T3)


def fisher_solve(c: np.ndarray, g: np.ndarray, slopes: np.ndarray | None = None) -> np.ndarray:
    """I(c)^-1 g [..., K] in O(K), with the Fisher matrix I(c) of Dir(c), c and g [..., K]."""
    inverse = 1.0 / (polygammas(c)[0] if slopes is None else slopes)
    total, _ = polygammas(c.sum(-1, keepdims=True))
    shared = (
        total
        * (g * inverse).sum(-1, keepdims=True)
        / (1.0 - total * inverse.sum(-1, keepdims=True))
    )
    return (g + shared) * inverse  # (C35)


def scaled_exp(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """exp(x - max x) [..., K] and the maximum over the last axis [...]."""
    # Values are kept above e^-318 (e^-39 in single precision), so products of two stay normal
    # numbers.
    top = x.max(-1, keepdims=True)
    floor = 0.45 * np.log(np.finfo(x.dtype).tiny)
    return np.exp(np.maximum(x - top, floor)), top[..., 0]
