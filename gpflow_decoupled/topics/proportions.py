"""Priors of a document's proportions, and the steps for q of a document.

Dirichlet distributions in NumPy, then three families of q: Dirichlet under a Dirichlet prior
(T1)-(T3), Gaussian (T5)-(T7) and Dirichlet (T8), (T9) under a logistic-normal prior.
"""

from __future__ import annotations

__all__ = [
    "CovariancePrior", "DirichletEvaluation", "DirichletProportions", "DirichletState",
    "GaussianEvaluation", "GaussianProportions", "GaussianState", "LogisticDirichlet",
    "LogisticDirichletState", "Proportions", "ascend", "best_prior", "best_symmetric_prior",
    "best_tilt", "expected_log", "fisher_solve", "minus_kl", "normal_points", "tilted_bound",
]  # fmt: skip

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import gammaln, psi
from scipy.stats import invwishart

from ..errors import NumericalError
from ..special import polygammas
from .documents import Words, put_rows, rows_of, scaled_exp

# ---
# Dirichlet distributions in NumPy.


def expected_log(c: np.ndarray) -> np.ndarray:
    """E log theta [..., K] under Dir(c), for c [..., K]."""
    return psi(c) - psi(c.sum(-1, keepdims=True))  # (T1)


def _log_normalizer(c: np.ndarray) -> np.ndarray:
    return gammaln(c).sum(-1) - gammaln(c.sum(-1))


def minus_kl(
    prior: np.ndarray | float, c: np.ndarray, mean_log: np.ndarray | None = None
) -> np.ndarray:
    """-KL[Dir(c) || Dir(prior)] in nats [...], for c [..., K] and a prior [K] or scalar."""
    mean_log = expected_log(c) if mean_log is None else mean_log
    prior = np.broadcast_to(np.asarray(prior), c.shape[-1:])
    return _log_normalizer(c) - _log_normalizer(prior) + ((prior - c) * mean_log).sum(-1)  # (T3)


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


_LEAST, _MOST = 1e-4, 1e4
"""Bounds on learned priors: where documents do not determine one, the best may be 0 or infinite."""
_STEPS, _TOLERANCE = 50, 1e-8  # of Newton's method, in the logarithm


def best_symmetric_prior(mean_log: np.ndarray) -> float:
    """The scalar a that maximises sum_d E log Dir(theta_d | a), for E log theta_d [D, K]."""
    topics, target = mean_log.shape[1], mean_log.mean(dtype=float)

    def slope(log_a: float) -> float:
        return float(psi(topics * np.exp(log_a)) - psi(np.exp(log_a)) + target)

    low, high = np.log(_LEAST), np.log(_MOST)
    # concave in a: the sign of the slope says on which side the maximum is
    if slope(low) <= 0.0:
        return _LEAST
    return float(np.exp(brentq(slope, low, high, xtol=1e-13))) if slope(high) < 0.0 else _MOST


def best_prior(prior: np.ndarray, mean_log: np.ndarray) -> np.ndarray:
    """The alpha [K] that maximises sum_d E log Dir(theta_d | alpha), by halved Newton steps.

    O(K) per step, (C35); the start and the result are [K], E log theta_d [D, K].
    """
    target = mean_log.mean(0, dtype=float)
    alpha = np.clip(np.array(prior, dtype=float), _LEAST, _MOST)

    def value(a: np.ndarray) -> float:
        return float((a * target).sum() - _log_normalizer(a))

    for _ in range(_STEPS):
        step = fisher_solve(alpha, psi(alpha.sum()) - psi(alpha) + target)
        now, length = value(alpha), 1.0
        while length > 1e-6:
            new = alpha + length * step
            if (new > 0.0).all() and value(np.clip(new, _LEAST, _MOST)) >= now:
                break
            length *= 0.5
        else:
            break
        old, alpha = alpha, np.clip(new, _LEAST, _MOST)
        if np.max(np.abs(np.log(alpha / old))) < _TOLERANCE:
            break
    return alpha


# ---
# The contract of families of q, and steps that keep each document's bound rising.


class Proportions(ABC):
    """The prior of the proportions theta_d, and the local step for q(theta_d).

    A state is a NamedTuple of arrays [b, ...], the parameters of q(theta_d) of b documents.
    """

    log_prior = 0.0
    """Log density of the learned parameters under their prior, in nats; 0 without one."""

    @property
    @abstractmethod
    def numbers_per_document(self) -> int:
        """Numbers that the local step stores per document, besides its words."""

    @abstractmethod
    def start(self, num_documents: int, dtype: npt.DTypeLike) -> Any:
        """The state before the first step."""

    @abstractmethod
    def converge(self, words: Words, state: Any, tolerance: float, max_steps: int) -> Any:
        """Step at fixed topics until expected words per topic change by less than `tolerance`."""

    @abstractmethod
    def evaluate(self, words: Words, state: Any) -> Any:
        """At the best assignment of words to topics, a NamedTuple of arrays.

        `bound` F_d [b], in nats; `weights` of the topics [b, K], up to a factor per document;
        `ratios` [b, W], counts over the sum of weights over topics.
        """

    @abstractmethod
    def mean(self, state: Any) -> np.ndarray:
        """E theta_d [b, K]."""

    @abstractmethod
    def learned(self, state: Any, rate: float = 1.0, documents: float | None = None) -> Proportions:
        """Return the best prior for these documents, or a step of size `rate` towards it.

        `documents` is the size of the corpus that they stand for, by default their number.
        """


_LEAST_STEP = 1e-3  # a document with shorter steps stays where it is


def ascend(family: Any, words: Words, state: Any, tolerance: float, max_steps: int) -> Any:
    """Step until expected words per topic change by less than `tolerance`, averaged over topics.

    A step that would lower a document's bound is refused and its size divided by four; each
    accepted step doubles it, up to 1. `family.propose(state, now, rho)` is a step of sizes rho [b]
    from a state that `evaluate` has seen as `now`.
    """
    state = state._make(map(np.copy, state))
    part, now = state, family.evaluate(words, state)
    rows = np.arange(len(now.bound))
    rho, moving = np.ones(len(rows)), np.ones(len(rows), bool)
    for _ in range(max_steps):
        # 1) a trial step in every document that is not done, kept where the bound has not fallen
        trial_state = family.propose(part, now, rho)
        trial = family.evaluate(words, trial_state)
        better = trial.bound >= now.bound
        change = np.abs(trial.expected - now.expected).mean(1) / rho
        # a document stops at its own end, whatever others the call has
        kept = better & moving
        put_rows(part, kept, rows_of(trial_state, kept))
        put_rows(now, kept, rows_of(trial, kept))
        # 2) the next step sizes, and the documents that go on
        rho = np.where(better, np.minimum(1.0, 2.0 * rho), 0.25 * rho)
        moving &= np.where(better, change >= tolerance, rho > _LEAST_STEP)
        if not moving.any():
            break
        # a few large copies cost less than dropping each document when it is done
        if moving.mean() < 0.5:
            put_rows(state, rows, part)
            rows, rho, words = rows[moving], rho[moving], rows_of(words, moving)
            part, now, moving = rows_of(part, moving), rows_of(now, moving), moving[moving]
    put_rows(state, rows, part)
    return state


# ---
# Dirichlet prior and posterior.


class DirichletState(NamedTuple):
    """q(theta_d) = Dir(gamma_d)."""

    gamma: np.ndarray
    """gamma_d [b, K]."""


class DirichletEvaluation(NamedTuple):
    """The bound at Dir(c), the assignment of words to topics, and the target of a full step."""

    bound: np.ndarray
    """F_d [b], nats; minus infinity where c is not above 0."""
    weights: np.ndarray
    """exp E log theta_d [b, K], up to a factor per document."""
    ratios: np.ndarray
    """Counts over totals [b, W]."""
    expected: np.ndarray
    """Expected words of each topic e [b, K], sum_w n_dw phi_dwk."""
    target: np.ndarray
    """The c that a full step leads to [b, K]: alpha + e, or 1 + lambda^(c) + e."""


@dataclass(frozen=True, eq=False)
class DirichletProportions(Proportions):
    """The prior theta_d ~ Dir(alpha).

    :param alpha: [K].
    :param learn: learn alpha: "none", "symmetric" or "vector".
    """

    alpha: np.ndarray
    learn: str = "none"

    @property
    def numbers_per_document(self) -> int:
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
            gamma[active[moving]] = new[moving]
            moving &= np.abs(new - old).mean(1) >= tolerance
            if not moving.any():
                break
            if moving.mean() < 0.5:
                words, active, moving = rows_of(words, moving), active[moving], moving[moving]
        return DirichletState(gamma)

    def evaluate(self, words: Words, state: DirichletState) -> DirichletEvaluation:
        """The bound of each document, (T3), at the best phi."""
        mean_log = expected_log(state.gamma)  # (T1)
        weights, shift = scaled_exp(mean_log)
        ratios, expected, evidence = words.assign(weights, shift)
        bound = evidence + minus_kl(self.alpha, state.gamma.astype(float), mean_log)  # (T3)
        return DirichletEvaluation(bound, weights, ratios, expected, self.alpha + expected)

    def mean(self, state: DirichletState) -> np.ndarray:
        return state.gamma / state.gamma.sum(1, keepdims=True)

    def learned(
        self, state: DirichletState, rate: float = 1.0, documents: float | None = None
    ) -> DirichletProportions:
        """Return the best alpha for these documents, or a step of size `rate` in log alpha."""
        if self.learn == "none":
            return self
        mean_log = expected_log(state.gamma.astype(float))
        symmetric = self.learn == "symmetric"
        best = best_symmetric_prior(mean_log) if symmetric else best_prior(self.alpha, mean_log)
        return replace(self, alpha=np.exp((1.0 - rate) * np.log(self.alpha) + rate * np.log(best)))


# ---
# A logistic-normal prior, N(mu_0, Sigma_0), and an inverse-Wishart prior that bounds Sigma_0.


# Sigma_0 ~ IW(nu, Psi), nu = n_0 - K - 1 and Psi = n_0 M, has mode M and counts as n_0 documents.
# Bound and log prior depend on Sigma_0 by (T16)
#
#   -D/2 [log|Sigma_0| + tr(Sigma_0^-1 S)] - n_0/2 [log|Sigma_0| + tr(Sigma_0^-1 M)],
#   S = 1/D sum_d [V_d + (m_d - mu_0)(m_d - mu_0)^T]
#
# so the best Sigma_0 is (D S + n_0 M) / (D + n_0).


class CovariancePrior(NamedTuple):
    """The prior of Sigma_0, proper for n_0 > 2 K."""

    documents: float
    """n_0"""
    mode: np.ndarray
    """M [K, K]"""


@dataclass(frozen=True, eq=False)
class _LogisticNormal(Proportions):
    """mu_0 [K] and Sigma_0 [K, K]; `scatter` is S [K, K] of the documents behind Sigma_0."""

    mu: np.ndarray
    Sigma: np.ndarray
    learn: bool = True
    prior: CovariancePrior | None = None
    scatter: np.ndarray | None = None

    def converge(self, words: Words, state: Any, tolerance: float, max_steps: int) -> Any:
        """Take steps of sizes that keep each document's bound rising."""
        return ascend(self, words, state, tolerance, max_steps)

    @property
    def log_prior(self) -> float:  # type: ignore[override]
        """Log density of Sigma_0 in nats; 0 without a prior."""
        if self.prior is None:
            return 0.0
        n, mode = self.prior
        return float(invwishart.logpdf(self.Sigma, n - len(mode) - 1.0, n * mode))  # (T17)

    def learned(self, state: Any, rate: float = 1.0, documents: float | None = None) -> Any:
        """Return the best mu_0 and Sigma_0, or a step of size `rate` to them in the moments."""
        if not self.learn:
            return self
        mean, second = self._moments(state)
        scatter = self.Sigma if self.scatter is None else self.scatter
        second = (1.0 - rate) * (scatter + np.outer(self.mu, self.mu)) + rate * second
        mu = (1.0 - rate) * self.mu + rate * mean
        Sigma = scatter = second - np.outer(mu, mu)
        if self.prior is not None:
            n, size = self.prior.documents, len(state[0]) if documents is None else documents
            Sigma = (size * scatter + n * self.prior.mode) / (size + n)  # (T16)
        return replace(self, mu=mu, Sigma=Sigma, scatter=scatter)

    @abstractmethod
    def _moments(self, state: Any) -> tuple[np.ndarray, np.ndarray]:
        """Mean [K] and second moment about zero [K, K] of the documents."""


# ---
# E log-sum-exp under a Gaussian, bounded from above.


# For any a, by Jensen's inequality (Knowles & Minka, NIPS 2011)
#
#   E lse <= log sum_k exp(t_k) + 1/2 a^T V a,   t = m + 1/2 diag V - V a
#
# The best a solves a = softmax(t); the curvature in m is (T6) with a for softmax(eta).


_TILT_STEPS = 4  # any tilt gives a bound, so few suffice


def tilted_bound(
    mean: np.ndarray, covariance: np.ndarray, tilt: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The bound on E log sum_k exp eta_k [b], and its slope in m, softmax(t) [b, K].

    m and the tilt a, whose rows sum to 1, are [b, K]; V [b, K, K], or its diagonal [b, K].
    """
    if covariance.ndim == 2:
        variance, product = covariance, covariance * tilt
    else:
        variance = np.diagonal(covariance, axis1=1, axis2=2)
        product = (covariance @ tilt[..., None])[..., 0]
    s, top = scaled_exp(mean + 0.5 * variance - product)
    total = s.sum(1)
    return top + np.log(total) + 0.5 * (tilt * product).sum(1), s / total[:, None]


def best_tilt(mean: np.ndarray, covariance: np.ndarray, tilt: np.ndarray) -> np.ndarray:
    """The a [b, K] after four scaled fixed-point steps from `tilt`; any a gives a bound."""
    variance = covariance if covariance.ndim == 2 else np.diagonal(covariance, axis1=1, axis2=2)
    for _ in range(_TILT_STEPS):
        _, s = tilted_bound(mean, covariance, tilt)
        # the Newton step of each component alone
        tilt = tilt + (s - tilt) / (1.0 + s * (1.0 - s) * variance)
        tilt = tilt / tilt.sum(1, keepdims=True)
    return tilt


# ---
# Gaussian q of log-proportions, (T5)-(T7).


# With gradient g and Hessian H <= 0 of (T6), a step of size rho is (T7)
#
#   V^-1 <- (1 - rho) V^-1 + rho (Sigma_0^-1 - H),   m <- m + rho V (g - Sigma_0^-1 (m - mu_0))


_POINTS, _DOCUMENTS = 128, 64  # of E softmax; documents at a time


def normal_points(num: int, size: int, seed: int = 0) -> np.ndarray:
    """Points [num, size] with mean 0, covariance I, third moments 0: normal draws and negatives."""
    half = np.random.default_rng(seed).standard_normal((num // 2, size))
    root = np.linalg.cholesky(half.T @ half / len(half))
    half = np.linalg.solve(root, half.T).T
    return np.concatenate([half, -half])


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


@dataclass(frozen=True, eq=False)
class GaussianProportions(_LogisticNormal):
    """theta_d = softmax(eta_d), eta_d ~ N(mu_0, Sigma_0) with mu_0 [K], Sigma_0 [K, K]."""

    diagonal: bool = False

    @property
    def numbers_per_document(self) -> int:
        return 6 * len(self.mu) * (1 + len(self.mu))

    def start(self, num_documents: int, dtype: npt.DTypeLike) -> GaussianState:
        """The prior, with variances at most 1: larger ones lead to poor optima."""
        precision = np.linalg.inv(self.Sigma) + np.eye(len(self.mu))
        precision = np.diagonal(precision) if self.diagonal else precision
        mean, tilt = self.mu.astype(dtype), np.full(len(self.mu), 1.0 / len(self.mu), dtype)
        return GaussianState(
            *(np.tile(a, (num_documents, *[1] * a.ndim)) for a in (mean, precision, tilt))
        )

    def evaluate(self, words: Words, state: GaussianState) -> GaussianEvaluation:
        """The bound of each document, (T5), at the best phi, and the derivatives (T6)."""
        covariance, log_det = self._covariance(state)
        lse, softmax = tilted_bound(state.mean, covariance, state.tilt)
        weights, shift = scaled_exp(state.mean)
        ratios, expected, evidence = words.assign(weights, shift)
        size = words.lengths[:, None]
        kl = self._kl(state.mean, covariance, log_det)
        bound = evidence - words.lengths * lse - kl  # (T5)
        gradient = expected - size * softmax  # (T6)
        # -H = N_d [diag(s) - s s^T + (s - a) (s - a)^T] keeps its sign in round-off
        excess = softmax - state.tilt
        if self.diagonal:
            curvature = size * (softmax * (1.0 - softmax) + excess**2)  # (T6)
        else:
            spread = _diagonal(softmax) - softmax[:, :, None] * softmax[:, None, :]
            curvature = size[..., None] * (spread + excess[:, :, None] * excess[:, None, :])  # (T6)
        return GaussianEvaluation(bound, weights, ratios, size * softmax, gradient, curvature)

    def propose(
        self, state: GaussianState, now: GaussianEvaluation, rho: np.ndarray
    ) -> GaussianState:
        """The state after a step (T7) of size rho [b]."""
        prior, step, dtype = np.linalg.inv(self.Sigma), rho[:, None], state.mean.dtype
        slope = now.gradient - (state.mean - self.mu) @ prior
        if self.diagonal:
            precision = (1.0 - step) * state.precision + step * (np.diagonal(prior) + now.curvature)
            # the Newton matrix of the mean, which is not diagonal
            solver = prior + _diagonal(now.curvature)
        else:
            by = step[..., None]
            precision = solver = (1.0 - by) * state.precision + by * (prior + now.curvature)
        covariance, _ = self._covariance(state._replace(precision=precision))
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

    def _moments(self, state: GaussianState) -> tuple[np.ndarray, np.ndarray]:
        covariance = self._covariance(state)[0].mean(0, dtype=float)
        covariance = np.diag(covariance) if self.diagonal else covariance
        mean = state.mean.astype(float)
        return mean.mean(0), covariance + mean.T @ mean / len(mean)

    def _covariance(self, state: GaussianState) -> tuple[np.ndarray, np.ndarray]:
        """V and log|V|."""
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


# ---
# Dirichlet q under Gaussian log-ratios log(theta_k / theta_K), k < K, (T8), (T9).


# With the prior's Dirichlet site lambda^(c) at the current c (T9) and expected words per topic
# e(c), a natural-gradient step of size rho is
#
#   c <- (1 - rho) c + rho (1 + lambda^(c) + e(c))


_LEAST_C = 1e-8
"""At which digamma is still a number; a state with less is refused."""


class LogisticDirichletState(NamedTuple):
    """q(theta_d) = Dir(c_d)."""

    c: np.ndarray
    """c_d [b, K]."""


@dataclass(frozen=True, eq=False)
class LogisticDirichlet(_LogisticNormal):
    """Gaussian log-ratios to the last topic: mu_0 is [K - 1], Sigma_0 [K - 1, K - 1]."""

    @property
    def numbers_per_document(self) -> int:
        return 12 * (len(self.mu) + 1)

    def start(self, num_documents: int, dtype: npt.DTypeLike) -> LogisticDirichletState:
        """c = 2 for each topic."""
        return LogisticDirichletState(np.full((num_documents, len(self.mu) + 1), 2.0, dtype=dtype))

    def evaluate(self, words: Words, state: LogisticDirichletState) -> DirichletEvaluation:
        """The bound at the best phi (minus infinity unless c > 0), and the target (T9)."""
        allowed, c = (state.c > _LEAST_C).all(1), np.maximum(state.c, _LEAST_C)
        mean_log = expected_log(c)  # (T1)
        weights, shift = scaled_exp(mean_log)
        ratios, expected, evidence = words.assign(weights, shift)
        log_prior, site = self._site(c.astype(float), mean_log)
        entropy = _log_normalizer(c.astype(float)) - ((c - 1.0) * mean_log).sum(1)
        bound = np.where(allowed, evidence + log_prior + entropy, -np.inf)
        return DirichletEvaluation(bound, weights, ratios, expected, 1.0 + site + expected)

    def propose(
        self, state: LogisticDirichletState, now: DirichletEvaluation, rho: np.ndarray
    ) -> LogisticDirichletState:
        """The state after a step of size rho [b]; `evaluate` refuses c below 0."""
        c = state.c + rho[:, None] * (now.target - state.c)
        return LogisticDirichletState(c.astype(state.c.dtype))

    def mean(self, state: LogisticDirichletState) -> np.ndarray:
        return state.c / state.c.sum(1, keepdims=True)

    def _moments(self, state: LogisticDirichletState) -> tuple[np.ndarray, np.ndarray]:
        c = state.c.astype(float)
        ratios = expected_log(c)
        ratios = ratios[:, :-1] - ratios[:, -1:]
        spread = polygammas(c)[0].mean(0)
        return ratios.mean(0), np.diag(spread[:-1]) + spread[-1] + ratios.T @ ratios / len(c)

    def _site(self, c: np.ndarray, mean_log: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The expected log prior [b] in nats, and lambda^(c) [b, K]."""
        Q = np.linalg.inv(self.Sigma)
        e = mean_log[:, :-1] - mean_log[:, -1:] - self.mu
        q = e @ Q
        slopes, bends = polygammas(c)  # psi', psi''
        curvature = np.append(np.diagonal(Q), Q.sum())  # derivative of the trace in each psi'(c_k)
        log_det = np.linalg.slogdet(2.0 * np.pi * self.Sigma)[1]
        value = -0.5 * ((q * e).sum(1) + slopes @ curvature + log_det) - mean_log.sum(1)  # (T8)
        slope = -np.concatenate([q, -q.sum(1, keepdims=True)], axis=1) - 1.0
        return value, slope + fisher_solve(c, -0.5 * curvature * bends, slopes)  # (T9)
