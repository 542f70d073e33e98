"""Logistic-normal prior, Dirichlet posterior, (T8), (T9)."""

# With the prior's Dirichlet site lambda^(c) at the current c (T9) and expected words per topic
# e(c), a natural-gradient step of size rho is
#
#   c <- (1 - rho) c + rho (1 + lambda^(c) + e(c))

from __future__ import annotations

__all__ = ["LogisticDirichlet", "LogisticDirichletEvaluation", "LogisticDirichletState"]

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...special.polygamma import polygammas
from ..dirichlet_functions import expected_log, fisher_solve, log_normalizer, scaled_exp
from ..words import Words
from .inverse_wishart import CovarianceMoments, CovariancePrior, moved
from .proportions_ascent import ascend

LEAST = 1e-8
"""Least c, at which digamma is still a number; a state with less is refused."""


class LogisticDirichletState(NamedTuple):
    """q(theta_d) = Dir(c_d)."""

    c: np.ndarray
    """c_d [b, K]."""


class LogisticDirichletEvaluation(NamedTuple):
    """The bound at a state, the assignment of words to topics, and the target of a full step."""

    bound: np.ndarray
    """F_d [b], nats; minus infinity where c is not above 0."""
    weights: np.ndarray
    """exp E log theta_d [b, K], up to a factor per document."""
    ratios: np.ndarray
    """Counts over totals [b, W]."""
    expected: np.ndarray
    """Expected words of each topic e [b, K], sum_w n_dw phi_dwk."""
    pseudo_prior: np.ndarray
    """1 + lambda^(c) [b, K]."""


class LogisticDirichlet(NamedTuple):
    """Gaussian log-ratios log(theta_k / theta_K), k < K.

    mu_0 is [K - 1]; Sigma_0 and `scatter`, S of the documents behind it, [K - 1, K - 1].
    """

    mu: np.ndarray
    Sigma: np.ndarray
    learn: bool = True
    prior: CovariancePrior | None = None
    scatter: np.ndarray | None = None

    @property
    def numbers_per_document(self) -> int:
        """Numbers that the local step stores per document, besides its words."""
        return 12 * (len(self.mu) + 1)

    def start(self, num_documents: int, dtype: npt.DTypeLike) -> LogisticDirichletState:
        """c = 2 for each topic."""
        return LogisticDirichletState(np.full((num_documents, len(self.mu) + 1), 2.0, dtype=dtype))

    def converge(
        self, words: Words, state: LogisticDirichletState, tolerance: float, max_steps: int
    ) -> LogisticDirichletState:
        """Take steps of sizes that keep each document's bound rising and c above 0."""
        return ascend(self, words, state, tolerance, max_steps)

    def evaluate(self, words: Words, state: LogisticDirichletState) -> LogisticDirichletEvaluation:
        """The bound at the best phi (minus infinity unless c > 0), and the target (T9)."""
        allowed, c = (state.c > LEAST).all(1), np.maximum(state.c, LEAST)
        mean_log = expected_log(c)  # (T1)
        weights, shift = scaled_exp(mean_log)
        assignment = words.assign(weights, shift)
        log_prior, target = self._prior(c.astype(float), mean_log)
        entropy = log_normalizer(c.astype(float)) - ((c - 1.0) * mean_log).sum(1)
        bound = np.where(allowed, assignment.evidence + log_prior + entropy, -np.inf)
        return LogisticDirichletEvaluation(
            bound, weights, assignment.ratios, assignment.expected, 1.0 + target
        )

    def propose(
        self, state: LogisticDirichletState, now: LogisticDirichletEvaluation, rho: np.ndarray
    ) -> LogisticDirichletState:
        """The state after a step of size rho [b]; `evaluate` refuses c below 0."""
        c = state.c + rho[:, None] * (now.pseudo_prior + now.expected - state.c)
        return LogisticDirichletState(c.astype(state.c.dtype))

    def mean(self, state: LogisticDirichletState) -> np.ndarray:
        """E theta_d [b, K]."""
        return state.c / state.c.sum(1, keepdims=True)

    @property
    def log_prior(self) -> float:
        """Log density of Sigma in nats; 0 without a prior."""
        return 0.0 if self.prior is None else self.prior.log_density(self.Sigma)  # (T17)

    def learned(
        self, state: LogisticDirichletState, rate: float = 1.0, documents: float | None = None
    ) -> LogisticDirichlet:
        """Return the best mu and Sigma, (T8), or a step of size `rate` to them in the moments."""
        if not self.learn:
            return self
        c = state.c.astype(float)
        ratios = expected_log(c)
        ratios = ratios[:, :-1] - ratios[:, -1:]
        spread = polygammas(c)[0].mean(0)
        second = np.diag(spread[:-1]) + spread[-1] + ratios.T @ ratios / len(c)
        now = CovarianceMoments(
            self.mu, self.Sigma, self.Sigma if self.scatter is None else self.scatter
        )
        new = moved(
            now,
            ratios.mean(0),
            second,
            rate,
            self.prior,
            len(c) if documents is None else documents,
        )
        return self._replace(mu=new.mu, Sigma=new.Sigma, scatter=new.scatter)

    def _prior(self, c: np.ndarray, mean_log: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        Q = np.linalg.inv(self.Sigma)
        e = mean_log[:, :-1] - mean_log[:, -1:] - self.mu
        q = e @ Q
        slopes, bends = polygammas(c)  # psi', psi''
        curvature = np.append(np.diagonal(Q), Q.sum())  # derivative of the trace in each psi'(c_k)
        log_det = np.linalg.slogdet(2.0 * np.pi * self.Sigma)[1]
        value = -0.5 * ((q * e).sum(1) + slopes @ curvature + log_det) - mean_log.sum(1)  # (T8)
        slope = -np.concatenate([q, -q.sum(1, keepdims=True)], axis=1) - 1.0
        return value, slope + fisher_solve(c, -0.5 * curvature * bends, slopes)  # (T9)
