"""Proportions of topics with a Dirichlet prior and a Dirichlet posterior: the local step of latent Dirichlet allocation."""

from __future__ import annotations

__all__ = ["DirichletProportions", "DirichletState", "Evaluation"]

from typing import Any, NamedTuple

import numpy as np
from scipy.special import psi

from ..words import Words
from .dirichlet import expected_log, minus_kl, scaled_exp
from .priors import best_prior, best_symmetric_prior


class DirichletState(NamedTuple):
    """q(theta_d) = Dir(gamma_d)."""

    gamma: np.ndarray
    """[b, K]"""


class Evaluation(NamedTuple):
    """What the rest of the model needs of each document."""

    bound: np.ndarray
    """[b] F_d, nats"""
    weights: np.ndarray
    """[b, K] exp E log theta, up to a factor"""
    ratios: np.ndarray
    """[b, W]"""


class DirichletProportions(NamedTuple):
    """theta_d ~ Dir(alpha). :param alpha: [K]. :param learn: "none", "symmetric" or "vector"."""

    alpha: np.ndarray
    learn: str = "none"

    @property
    def numbers_a_document(self) -> int:
        """How many numbers the local step holds of a document, besides its words."""
        return 4 * len(self.alpha)

    def start(self, num_documents: int, dtype: Any) -> DirichletState:
        """The state before the first step: all topics alike."""
        return DirichletState(np.ones((num_documents, len(self.alpha)), dtype=dtype))

    def converge(self, words: Words, state: DirichletState, tolerance: float, max_steps: int) -> DirichletState:
        """Iterate phi and gamma until gamma changes by less than `tolerance` in the mean over topics, in each document."""
        gamma, active = state.gamma.copy(), np.arange(len(state.gamma))
        alpha = self.alpha.astype(gamma.dtype)
        for _ in range(max_steps):
            old = gamma[active]
            weights, _ = scaled_exp(psi(old))
            new = alpha + words.expected(weights, words.counts / words.totals(weights))  # (T2)
            gamma[active] = new
            moving = np.abs(new - old).mean(1) >= tolerance
            if not moving.any():
                break
            if moving.mean() < 0.5:  # fewer, larger copies than dropping each document when it is done
                words, active = words.take(moving), active[moving]
        return DirichletState(gamma)

    def evaluate(self, words: Words, state: DirichletState) -> Evaluation:
        """The documents' terms of the bound, (T3), at the best phi."""
        mean_log = expected_log(state.gamma)  # (T1)
        weights, shift = scaled_exp(mean_log)
        assignment = words.assign(weights, shift)
        bound = assignment.evidence + minus_kl(self.alpha, state.gamma.astype(float), mean_log)  # (T3)
        return Evaluation(bound, weights, assignment.ratios)

    def mean(self, state: DirichletState) -> np.ndarray:
        """E theta_d [b, K]."""
        return state.gamma / state.gamma.sum(1, keepdims=True)

    def learned(self, state: DirichletState, rate: float = 1.0) -> DirichletProportions:
        """With the best alpha for these documents; log alpha moves there by the share `rate`."""
        if self.learn == "none":
            return self
        mean_log = expected_log(state.gamma.astype(float))
        if self.learn == "symmetric":
            best = np.full_like(self.alpha, best_symmetric_prior(float(self.alpha.mean()), mean_log))
        else:
            best = best_prior(self.alpha, mean_log)
        return self._replace(alpha=np.exp((1.0 - rate) * np.log(self.alpha) + rate * np.log(best)))
