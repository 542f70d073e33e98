"""The best Dirichlet prior of many posteriors."""

from __future__ import annotations

__all__ = ["best_symmetric_prior", "best_prior"]

import numpy as np
from scipy.special import psi

from ..special.polygamma import polygammas
from .dirichlet_functions import fisher_solve, log_normalizer

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
