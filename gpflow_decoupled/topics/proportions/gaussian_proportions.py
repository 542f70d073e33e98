"""Gaussian q of proportions, (T5)-(T7)."""

# With gradient g and Hessian H <= 0 of (T6), a step of size rho is (T7)
#
#   V^-1 <- (1 - rho) V^-1 + rho (Sigma_0^-1 - H),   m <- m + rho V (g - Sigma_0^-1 (m - mu_0))

from __future__ import annotations

__all__ = ["GaussianEvaluation", "GaussianProportions", "GaussianState"]

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import NumericalError
from ..dirichlet_functions import scaled_exp
from ..words import Words
from .inverse_wishart import CovarianceMoments, CovariancePrior, moved
from .lse import best_tilt, normal_points, tilted_bound
from .proportions_ascent import ascend

_POINTS, _DOCUMENTS = 128, 64  # of E softmax; documents at a time


class GaussianState(NamedTuple):
    """q(eta_d) = N(m, V)."""

    mean: np.ndarray
    """m [b, K]."""
    precision: np.ndarray
    """V^-1 [b, K, K], or its diagonal [b, K], in double precision."""
    tilt: np.ndarray
    """a [b, K] of the bound on E log sum_k exp eta_k."""


class GaussianEvaluation(NamedTuple):
    """The bound at a state, the assignment of words to topics, and the derivatives (T6)."""

    bound: np.ndarray
    """F_d [b], nats."""
    weights: np.ndarray
    """exp m [b, K], up to a factor per document."""
    ratios: np.ndarray
    """Counts over totals [b, W]."""
    expected: np.ndarray
    """Expected words of each topic [b, K]: N_d times the slope in m of the log-sum-exp bound."""
    gradient: np.ndarray
    """g [b, K]."""
    curvature: np.ndarray
    """-H [b, K, K], or its diagonal [b, K]."""


class GaussianProportions(NamedTuple):
    """Gaussian proportions theta_d = softmax(eta_d), eta_d ~ N(mu_0, Sigma_0).

    mu_0 is [K], Sigma_0 [K, K]; `scatter` is S [K, K] of the documents behind Sigma_0.
    """

    mu: np.ndarray
    Sigma: np.ndarray
    diagonal: bool = False
    learn: bool = True
    prior: CovariancePrior | None = None
    scatter: np.ndarray | None = None

    @property
    def numbers_per_document(self) -> int:
        """Numbers that the local step stores per document, besides its words."""
        return 6 * len(self.mu) * (1 + len(self.mu))

    def start(self, num_documents: int, dtype: npt.DTypeLike) -> GaussianState:
        """The prior, with variances at most 1: larger ones lead to poor optima."""
        precision = np.linalg.inv(self.Sigma) + np.eye(len(self.mu))
        precision = np.diagonal(precision) if self.diagonal else precision
        mean, tilt = self.mu.astype(dtype), np.full(len(self.mu), 1.0 / len(self.mu), dtype)
        return GaussianState(
            *(np.tile(a, (num_documents, *[1] * a.ndim)) for a in (mean, precision, tilt))
        )

    def converge(
        self, words: Words, state: GaussianState, tolerance: float, max_steps: int
    ) -> GaussianState:
        """Take steps (T7) of sizes that keep each document's bound rising."""
        return ascend(self, words, state, tolerance, max_steps)

    def evaluate(self, words: Words, state: GaussianState) -> GaussianEvaluation:
        """The bound of each document, (T5), at the best phi, and the derivatives (T6)."""
        covariance, log_det = self._covariance(state)
        lse, softmax = tilted_bound(state.mean, covariance, state.tilt)
        weights, shift = scaled_exp(state.mean)
        assignment = words.assign(weights, shift)
        size = words.lengths[:, None]
        bound = (
            assignment.evidence - words.lengths * lse - self._kl(state.mean, covariance, log_det)
        )  # (T5)
        gradient = assignment.expected - size * softmax  # (T6)
        # -H = N_d [diag(s) - s s^T + (s - a) (s - a)^T] keeps its sign in round-off
        excess = softmax - state.tilt
        if self.diagonal:
            curvature = size * (softmax * (1.0 - softmax) + excess**2)  # (T6)
        else:
            spread = _diagonal(softmax) - softmax[:, :, None] * softmax[:, None, :]
            curvature = size[..., None] * (spread + excess[:, :, None] * excess[:, None, :])  # (T6)
        return GaussianEvaluation(
            bound, weights, assignment.ratios, size * softmax, gradient, curvature
        )

    def propose(
        self, state: GaussianState, now: GaussianEvaluation, rho: np.ndarray
    ) -> GaussianState:
        """The state after a step of size rho [b]."""
        prior, step, dtype = np.linalg.inv(self.Sigma), rho[:, None], state.mean.dtype
        slope = now.gradient - (state.mean - self.mu) @ prior
        if self.diagonal:
            # (T7)
            precision = (1.0 - step) * state.precision + step * (np.diagonal(prior) + now.curvature)
            # the Newton matrix of the mean, which is not diagonal
            solver = prior + _diagonal(now.curvature)
        else:
            by = step[..., None]
            precision = solver = (1.0 - by) * state.precision + by * (prior + now.curvature)  # (T7)
        covariance, _ = self._covariance(state._replace(precision=precision))
        # (T7)
        mean = (state.mean + step * np.linalg.solve(solver, slope[..., None])[..., 0]).astype(dtype)
        return GaussianState(mean, precision, best_tilt(mean, covariance, state.tilt).astype(dtype))

    def mean(self, state: GaussianState) -> np.ndarray:
        """E softmax(eta_d) [b, K], averaged over fixed points."""
        points = normal_points(max(_POINTS, 2 * len(self.mu)), len(self.mu))
        means = np.empty_like(state.mean)
        for first in range(0, len(means), _DOCUMENTS):
            part = GaussianState(*(array[first : first + _DOCUMENTS] for array in state))
            covariance, _ = self._covariance(part)
            roots = _diagonal(np.sqrt(covariance)) if self.diagonal else _cholesky(covariance)
            s, _ = scaled_exp(part.mean[:, None] + points @ roots.transpose(0, 2, 1))
            means[first : first + _DOCUMENTS] = (s / s.sum(2, keepdims=True)).mean(1)
        return means

    @property
    def log_prior(self) -> float:
        """Log density of Sigma_0 in nats; 0 without a prior."""
        return 0.0 if self.prior is None else self.prior.log_density(self.Sigma)  # (T17)

    def learned(
        self, state: GaussianState, rate: float = 1.0, documents: float | None = None
    ) -> GaussianProportions:
        """Return the best mu_0 and Sigma_0, or a step of size `rate` to them in the moments."""
        if not self.learn:
            return self
        covariance = self._covariance(state)[0].mean(0, dtype=float)
        covariance = np.diag(covariance) if self.diagonal else covariance
        mu, mean = state.mean.mean(0, dtype=float), state.mean.astype(float)
        second = covariance + mean.T @ mean / len(mean)
        now = CovarianceMoments(
            self.mu, self.Sigma, self.Sigma if self.scatter is None else self.scatter
        )
        new = moved(
            now, mu, second, rate, self.prior, len(mean) if documents is None else documents
        )
        return self._replace(mu=new.mu, Sigma=new.Sigma, scatter=new.scatter)

    def _covariance(self, state: GaussianState) -> tuple[np.ndarray, np.ndarray]:
        if self.diagonal:
            return 1.0 / state.precision, -np.log(state.precision).sum(1)
        chol = _cholesky(state.precision)
        log_det = -2.0 * np.log(np.diagonal(chol, axis1=1, axis2=2)).sum(1)
        return np.linalg.inv(state.precision), log_det

    def _kl(self, mean: np.ndarray, covariance: np.ndarray, log_det: np.ndarray) -> np.ndarray:
        prior, residual = np.linalg.inv(self.Sigma), mean - self.mu
        trace = (
            covariance @ np.diagonal(prior) if self.diagonal else (covariance * prior).sum((1, 2))
        )
        distance = ((residual @ prior) * residual).sum(1)
        return 0.5 * (trace + distance - len(self.mu) + np.linalg.slogdet(self.Sigma)[1] - log_det)


def _cholesky(matrices: np.ndarray) -> np.ndarray:
    try:
        return np.linalg.cholesky(matrices)
    except np.linalg.LinAlgError as error:
        raise NumericalError(
            "The precision of q(eta_d) is not positive definite: Sigma_0 is so large beside the"
            " counts of a document that its inverse is lost in round-off. Lower prior_variance; if"
            " it is the learned Sigma_0 that has grown, set prior_documents, so that its prior"
            " holds it.",
            matrix="precision of q(eta_d)",
        ) from error


def _diagonal(values: np.ndarray) -> np.ndarray:
    return values[..., None] * np.eye(values.shape[1], dtype=values.dtype)
