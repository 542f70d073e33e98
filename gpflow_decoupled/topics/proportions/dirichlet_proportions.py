"""Dirichlet prior and posterior of the proportions."""

from __future__ import annotations

__all__ = ["DirichletEvaluation", "DirichletProportions", "DirichletState"]

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import psi

from ..dirichlet_functions import expected_log, minus_kl, scaled_exp
from ..dirichlet_priors import best_prior, best_symmetric_prior
from ..words import Words


class DirichletState(NamedTuple):
    """q(theta_d) = Dir(gamma_d)."""

    gamma: np.ndarray
    """gamma_d [b, K]."""


class DirichletEvaluation(NamedTuple):
    """The bound at a state, and the assignment of words to topics."""

    bound: np.ndarray
    """F_d [b], nats."""
    weights: np.ndarray
    """exp E log theta_d [b, K], up to a factor per document."""
    ratios: np.ndarray
    """Counts over totals [b, W]."""


class DirichletProportions(NamedTuple):
    """The prior theta_d ~ Dir(alpha).

    :param alpha: [K].
    :param learn: learn alpha: "none", "symmetric" or "vector".
    """

    alpha: np.ndarray
    learn: str = "none"

    @property
    def numbers_per_document(self) -> int:
        """Numbers that the local step stores per document, besides its words."""
        return 4 * len(self.alpha)

    def start(self, num_documents: int, dtype: npt.DTypeLike) -> DirichletState:
        """Equal weights of all topics."""
        return DirichletState(np.ones((num_documents, len(self.alpha)), dtype=dtype))

    def converge(
        self, words: Words, state: DirichletState, tolerance: float, max_steps: int
    ) -> DirichletState:
        """Alternate phi and gamma until gamma's mean change over topics is below `tolerance`."""
        gamma, active = state.gamma.copy(), np.arange(len(state.gamma))
        moving = np.ones(len(gamma), bool)
        alpha = self.alpha.astype(gamma.dtype)
        for _ in range(max_steps):
            old = gamma[active]
            weights, _ = scaled_exp(psi(old))
            new = alpha + words.expected(weights, words.counts / words.totals(weights))  # (T2)
            # a document stops at its own end, whatever others the call has
            gamma[active[moving]] = new[moving]
            moving &= np.abs(new - old).mean(1) >= tolerance
            if not moving.any():
                break
            # a few large copies cost less than dropping each document when it is done
            if moving.mean() < 0.5:
                words, active, moving = words.take(moving), active[moving], moving[moving]
        return DirichletState(gamma)

    def evaluate(self, words: Words, state: DirichletState) -> DirichletEvaluation:
        """The bound of each document, (T3), at the best phi."""
        mean_log = expected_log(state.gamma)  # (T1)
        weights, shift = scaled_exp(mean_log)
        assignment = words.assign(weights, shift)
        # (T3)
        bound = assignment.evidence + minus_kl(self.alpha, state.gamma.astype(float), mean_log)
        return DirichletEvaluation(bound, weights, assignment.ratios)

    def mean(self, state: DirichletState) -> np.ndarray:
        """E theta_d [b, K]."""
        return state.gamma / state.gamma.sum(1, keepdims=True)

    @property
    def log_prior(self) -> float:
        """0: alpha has no prior."""
        return 0.0

    def learned(
        self, state: DirichletState, rate: float = 1.0, documents: float | None = None
    ) -> DirichletProportions:
        """Return the best alpha for these documents, or a step of size `rate` in log alpha."""
        if self.learn == "none":
            return self
        mean_log = expected_log(state.gamma.astype(float))
        if self.learn == "symmetric":
            best = np.full_like(
                self.alpha, best_symmetric_prior(float(self.alpha.mean()), mean_log)
            )
        else:
            best = best_prior(self.alpha, mean_log)
        return self._replace(alpha=np.exp((1.0 - rate) * np.log(self.alpha) + rate * np.log(best)))
