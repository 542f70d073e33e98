"""Proportions softmax(eta_d) with Gaussian q(eta_d): conjugate computation for correlated topics, (T5)-(T7).

The state is (m, V^-1), and a of the bound on E lse (`lse`), in closed form: F stays a bound on log p. With H <= 0 of (T6), and
the sites of (T7) written as what V^-1 has besides Sigma_0^-1,

    V^-1 <- (1 - rho) V^-1 + rho (Sigma_0^-1 - H),   m <- m + rho V (g - Sigma_0^-1 (m - mu_0))               (T7)

so that V^-1 stays positive definite also where Sigma_0 was learned in between.
"""

from __future__ import annotations

__all__ = ["GaussianEvaluation", "GaussianProportions", "GaussianState"]

from typing import Any, NamedTuple

import numpy as np

from ..words import Words
from .ascent import ascend
from .dirichlet import scaled_exp
from .lse import best_tilt, normal_points, tilted_bound

_POINTS, _DOCUMENTS = 128, 64


class GaussianState(NamedTuple):
    """q(eta_d) = N(m, V)."""

    mean: np.ndarray
    """m [b, K]"""
    precision: np.ndarray
    """V^-1 [b, K, K], or its diagonal [b, K]"""
    tilt: np.ndarray
    """a [b, K] of the bound on E lse"""


class GaussianEvaluation(NamedTuple):
    """The bound of each document, what other modules need, and the derivatives (T6)."""

    bound: np.ndarray
    weights: np.ndarray
    ratios: np.ndarray
    expected: np.ndarray
    """N_d times the derivative of the bound on E lse [b, K], in the mean the proportions"""
    gradient: np.ndarray
    """g [b, K]"""
    curvature: np.ndarray
    """-H [b, K, K], or its diagonal [b, K]"""


class GaussianProportions(NamedTuple):
    """eta_d ~ N(mu_0, Sigma_0), theta_d = softmax(eta_d).

    :param mu: [K]. :param Sigma: [K, K]. :param diagonal: whether V is diagonal. :param learn: whether mu_0 and Sigma_0 are
        learned.
    """

    mu: np.ndarray
    Sigma: np.ndarray
    diagonal: bool = False
    learn: bool = True

    @property
    def numbers_a_document(self) -> int:
        """How many numbers the local step holds of a document, besides its words."""
        return 6 * len(self.mu) * (1 + len(self.mu))

    def start(self, num_documents: int, dtype: Any) -> GaussianState:
        """The prior in each document, with variances of at most 1: from wide ones the first steps go astray."""
        precision = np.linalg.inv(self.Sigma) + np.eye(len(self.mu))
        precision = np.diagonal(precision) if self.diagonal else precision
        arrays = self.mu, precision, np.full(len(self.mu), 1.0 / len(self.mu))
        return GaussianState(*(np.broadcast_to(a, (num_documents, *a.shape)).astype(dtype) for a in arrays))

    def converge(self, words: Words, state: GaussianState, tolerance: float, max_steps: int) -> GaussianState:
        """Steps (T7) in each document, of a size that keeps its bound rising."""
        return ascend(self, words, state, tolerance, max_steps)

    def evaluate(self, words: Words, state: GaussianState) -> GaussianEvaluation:
        """The documents' terms of the bound, (T5), at the best phi, and the derivatives (T6)."""
        covariance, log_det = self._covariance(state)
        lse, softmax = tilted_bound(state.mean, covariance, state.tilt)
        weights, shift = scaled_exp(state.mean)
        assignment = words.assign(weights, shift)
        size = words.lengths[:, None]
        bound = assignment.evidence - words.lengths * lse - self._kl(state.mean, covariance, log_det)  # (T5)
        gradient = assignment.expected - size * softmax  # (T6)
        if self.diagonal:
            curvature = size * (softmax * (1.0 - 2.0 * state.tilt) + state.tilt**2)  # (T6)
        else:
            cross = softmax[:, :, None] * state.tilt[:, None, :]
            own = state.tilt[:, :, None] * state.tilt[:, None, :]
            curvature = size[..., None] * (_diagonal(softmax) - cross - cross.transpose(0, 2, 1) + own)  # (T6)
        return GaussianEvaluation(bound, weights, assignment.ratios, size * softmax, gradient, curvature)

    def propose(self, state: GaussianState, now: GaussianEvaluation, rho: np.ndarray) -> GaussianState:
        """The state after a step of size rho [b]."""
        prior, step = np.linalg.inv(self.Sigma), rho[:, None]
        slope = now.gradient - (state.mean - self.mu) @ prior
        if self.diagonal:
            precision = (1.0 - step) * state.precision + step * (np.diagonal(prior) + now.curvature)  # (T7)
            solver = prior + _diagonal(now.curvature)  # the mean is not diagonal: its Newton matrix
        else:
            by = step[..., None]
            precision = solver = (1.0 - by) * state.precision + by * (prior + now.curvature)  # (T7)
        mean = state.mean + step * np.linalg.solve(solver, slope[..., None])[..., 0]  # (T7)
        mean, precision = mean.astype(state.mean.dtype), precision.astype(state.mean.dtype)
        covariance, _ = self._covariance(GaussianState(mean, precision, state.tilt))
        return GaussianState(mean, precision, best_tilt(mean, covariance, state.tilt))

    def mean(self, state: GaussianState) -> np.ndarray:
        """E softmax(eta_d) [b, K], over fixed points."""
        points = normal_points(max(_POINTS, 2 * len(self.mu)), len(self.mu))
        means = np.empty_like(state.mean)
        for first in range(0, len(means), _DOCUMENTS):
            part = GaussianState(*(array[first : first + _DOCUMENTS] for array in state))
            covariance, _ = self._covariance(part)
            roots = _diagonal(np.sqrt(covariance)) if self.diagonal else np.linalg.cholesky(covariance)
            s, _ = scaled_exp(part.mean[:, None] + points @ roots.transpose(0, 2, 1))
            means[first : first + _DOCUMENTS] = (s / s.sum(2, keepdims=True)).mean(1)
        return means

    def learned(self, state: GaussianState, rate: float = 1.0) -> GaussianProportions:
        """With the best mu_0 and Sigma_0 for these documents; their moments move there by the share `rate`."""
        if not self.learn:
            return self
        covariance = self._covariance(state)[0].mean(0, dtype=float)
        covariance = np.diag(covariance) if self.diagonal else covariance
        mu, mean = state.mean.mean(0, dtype=float), state.mean.astype(float)
        second = covariance + mean.T @ mean / len(mean)
        second = (1.0 - rate) * (self.Sigma + np.outer(self.mu, self.mu)) + rate * second
        mu = (1.0 - rate) * self.mu + rate * mu
        return self._replace(mu=mu, Sigma=second - np.outer(mu, mu))

    def _covariance(self, state: GaussianState) -> tuple[np.ndarray, np.ndarray]:
        """V [b, K, K] and log det V [b]; of a diagonal V its diagonal [b, K]."""
        if self.diagonal:
            return 1.0 / state.precision, -np.log(state.precision).sum(1)
        chol = np.linalg.cholesky(state.precision)
        log_det = -2.0 * np.log(np.diagonal(chol, axis1=1, axis2=2)).sum(1)
        return np.linalg.inv(state.precision), log_det

    def _kl(self, mean: np.ndarray, covariance: np.ndarray, log_det: np.ndarray) -> np.ndarray:
        """KL[N(m, V) || N(mu_0, Sigma_0)] [b]."""
        prior, residual = np.linalg.inv(self.Sigma), mean - self.mu
        trace = covariance @ np.diagonal(prior) if self.diagonal else (covariance * prior).sum((1, 2))
        distance = ((residual @ prior) * residual).sum(1)
        return 0.5 * (trace + distance - len(self.mu) + np.linalg.slogdet(self.Sigma)[1] - log_det)


def _diagonal(values: np.ndarray) -> np.ndarray:
    """Diagonal matrices [b, K, K] of values [b, K]."""
    return values[..., None] * np.eye(values.shape[1], dtype=values.dtype)
