"""Proportions with a logistic-normal prior and a Dirichlet posterior: correlated topics as inference in LDA, (T8), (T9).

The prior is the non-conjugate factor: its site makes each document's posterior that of latent Dirichlet allocation with the
pseudo-prior alpha_d = 1 + lambda~_d. With (T9) at c and the expected words of topics e, a step of the natural parameters is

    c <- (1 - rho) c + rho (1 + lambda^(c) + e(c)).
"""

from __future__ import annotations

__all__ = ["LogisticDirichlet", "LogisticDirichletEvaluation", "LogisticDirichletState"]

from typing import Any, NamedTuple

import numpy as np

from ...special.polygamma import polygammas
from ..words import Words
from .ascent import ascend
from .dirichlet import expected_log, fisher_solve, log_normalizer, scaled_exp

LEAST = 1e-8
"""Where the digamma function is still a number; a state below is refused."""


class LogisticDirichletState(NamedTuple):
    """q(theta_d) = Dir(c_d)."""

    c: np.ndarray
    """[b, K]"""


class LogisticDirichletEvaluation(NamedTuple):
    """The bound of each document, what other modules need, and where a full step would lead."""

    bound: np.ndarray
    weights: np.ndarray
    ratios: np.ndarray
    expected: np.ndarray
    """e [b, K], sum_w n_dw phi_dwk"""
    pseudo_prior: np.ndarray
    """1 + lambda^(c) [b, K]"""


class LogisticDirichlet(NamedTuple):
    """The log-ratios log(theta_k / theta_K), k < K, are Gaussian.

    :param mu: [K - 1]. :param Sigma: [K - 1, K - 1]. :param learn: whether both are learned.
    """

    mu: np.ndarray
    Sigma: np.ndarray
    learn: bool = True

    @property
    def numbers_a_document(self) -> int:
        """How many numbers the local step holds of a document, besides its words."""
        return 12 * (len(self.mu) + 1)

    def start(self, num_documents: int, dtype: Any) -> LogisticDirichletState:
        """All topics alike, two words each."""
        return LogisticDirichletState(np.full((num_documents, len(self.mu) + 1), 2.0, dtype=dtype))

    def converge(
        self, words: Words, state: LogisticDirichletState, tolerance: float, max_steps: int
    ) -> LogisticDirichletState:
        """Steps in each document, of a size that keeps its bound rising and c above 0."""
        return ascend(self, words, state, tolerance, max_steps)

    def evaluate(self, words: Words, state: LogisticDirichletState) -> LogisticDirichletEvaluation:
        """The documents' terms of the bound at the best phi, -inf where c is not above 0, and the target (T9)."""
        allowed, c = (state.c > LEAST).all(1), np.maximum(state.c, LEAST)
        mean_log = expected_log(c)  # (T1)
        weights, shift = scaled_exp(mean_log)
        assignment = words.assign(weights, shift)
        log_prior, target = self._prior(c.astype(float), mean_log)
        entropy = log_normalizer(c.astype(float)) - ((c - 1.0) * mean_log).sum(1)
        bound = np.where(allowed, assignment.evidence + log_prior + entropy, -np.inf)
        return LogisticDirichletEvaluation(bound, weights, assignment.ratios, assignment.expected, 1.0 + target)

    def propose(
        self, state: LogisticDirichletState, now: LogisticDirichletEvaluation, rho: np.ndarray
    ) -> LogisticDirichletState:
        """The state after a step of size rho [b]; not yet known to be above 0."""
        c = state.c + rho[:, None] * (now.pseudo_prior + now.expected - state.c)
        return LogisticDirichletState(c.astype(state.c.dtype))

    def mean(self, state: LogisticDirichletState) -> np.ndarray:
        """E theta_d [b, K]."""
        return state.c / state.c.sum(1, keepdims=True)

    def learned(self, state: LogisticDirichletState, rate: float = 1.0) -> LogisticDirichlet:
        """With the best mu and Sigma for these documents, (T8); their moments move there by the share `rate`."""
        if not self.learn:
            return self
        c = state.c.astype(float)
        ratios = expected_log(c)
        ratios = ratios[:, :-1] - ratios[:, -1:]
        spread = polygammas(c)[0].mean(0)
        second = np.diag(spread[:-1]) + spread[-1] + ratios.T @ ratios / len(c)
        second = (1.0 - rate) * (self.Sigma + np.outer(self.mu, self.mu)) + rate * second
        mu = (1.0 - rate) * self.mu + rate * ratios.mean(0)
        return self._replace(mu=mu, Sigma=second - np.outer(mu, mu))

    def _prior(self, c: np.ndarray, mean_log: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """E log p(theta) [b], and the natural-gradient target lambda^ [b, K]."""
        Q = np.linalg.inv(self.Sigma)
        e = mean_log[:, :-1] - mean_log[:, -1:] - self.mu
        q = e @ Q
        slopes, bends = polygammas(c)  # psi', psi''
        curvature = np.append(np.diagonal(Q), Q.sum())  # of the trace in each psi'(c_k)
        log_det = np.linalg.slogdet(2.0 * np.pi * self.Sigma)[1]
        value = -0.5 * ((q * e).sum(1) + slopes @ curvature + log_det) - mean_log.sum(1)  # (T8)
        slope = -np.concatenate([q, -q.sum(1, keepdims=True)], axis=1) - 1.0
        return value, slope + fisher_solve(c, -0.5 * curvature * bends, slopes)  # (T9)
