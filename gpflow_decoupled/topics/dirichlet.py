"""The best Dirichlet prior of many posteriors."""

from __future__ import annotations

__all__ = [
    "best_prior", "best_symmetric_prior", "expected_log", "fisher_solve", "log_normalizer",
    "minus_kl", "scaled_exp",
]  # fmt: skip

import numpy as np
from scipy.special import gammaln, psi

from ..special import polygammas

# ---
# Dirichlet distributions in NumPy.


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


# ---


LEAST, MOST = 1e-4, 1e4
"""Bounds on learned priors: where documents do not determine one, the best may be 0 or infinite."""
_STEPS, _TOLERANCE = 50, 1e-8  # of Newton's method, in the logarithm


def best_symmetric_prior(prior: float, mean_log: np.ndarray) -> float:
    """The scalar a that maximises sum_d E log Dir(theta_d | a), by bracketed Newton in log a.

    :param mean_log: E log theta_d [D, K].
    """
    documents, topics = mean_log.shape
    total = float(mean_log.sum(dtype=float))
    log_a = float(np.log(np.clip(prior, LEAST, MOST)))
    low, high = np.log(LEAST), np.log(MOST)
    for _ in range(_STEPS):
        a = np.exp(log_a)
        slope = documents * topics * (psi(topics * a) - psi(a)) + total
        # concave in a: the sign of the slope says on which side the maximum is
        low, high = (log_a, high) if slope > 0.0 else (low, log_a)
        (own, shared), _ = polygammas(np.array([a, topics * a]))
        curvature = documents * topics * (topics * shared - own)
        bend = a * a * curvature + a * slope  # the second derivative in log a
        step = -a * slope / bend if bend < 0.0 else np.inf
        new = log_a + step if low < log_a + step < high else 0.5 * (low + high)
        if abs(new - log_a) < _TOLERANCE:
            break
        log_a = new
    return float(np.exp(log_a))


def best_prior(prior: np.ndarray, mean_log: np.ndarray) -> np.ndarray:
    """The alpha [K] that maximises sum_d E log Dir(theta_d | alpha), by halved Newton steps.

    O(K) per step, (C35); the start and the result are [K], E log theta_d [D, K].
    """
    target = mean_log.mean(0, dtype=float)
    alpha = np.clip(np.array(prior, dtype=float), LEAST, MOST)

    def value(a: np.ndarray) -> float:
        return float((a * target).sum() - log_normalizer(a))

    for _ in range(_STEPS):
        step = fisher_solve(alpha, psi(alpha.sum()) - psi(alpha) + target)
        now, length = value(alpha), 1.0
        while length > 1e-6:
            new = alpha + length * step
            if (new > 0.0).all() and value(np.clip(new, LEAST, MOST)) >= now:
                break
            length *= 0.5
        else:
            break
        new = np.clip(new, LEAST, MOST)
        if np.max(np.abs(np.log(new / alpha))) < _TOLERANCE:
            return new
        alpha = new
    return alpha
