"""Logistic-normal prior, Dirichlet posterior, (T8), (T9)."""

from __future__ import annotations

__all__ = [
    "CovarianceMoments", "CovariancePrior", "DirichletEvaluation", "DirichletProportions",
    "DirichletState", "DocumentBounds", "GaussianEvaluation", "GaussianProportions",
    "GaussianState", "LogisticDirichlet", "LogisticDirichletEvaluation",
    "LogisticDirichletState", "Proportions", "best_tilt", "moved", "normal_points",
    "tilted_bound",
]  # fmt: skip

from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.special import multigammaln, psi

from ..errors import NumericalError
from ..special import polygammas
from .ascent import ascend
from .dirichlet import (
    best_prior,
    best_symmetric_prior,
    expected_log,
    fisher_solve,
    log_normalizer,
    minus_kl,
    scaled_exp,
)
from .documents import PerDocument, Words

# ---
# The contract of posteriors over proportions.


State = TypeVar("State", bound=PerDocument)


class DocumentBounds(PerDocument, Protocol):
    """Quantities of each document at a state."""

    @property
    def bound(self) -> np.ndarray:
        """F_d [b], the document's terms of the bound, nats."""

    @property
    def weights(self) -> np.ndarray:
        """Weights of the topics in each document [b, K], up to a factor per document."""

    @property
    def ratios(self) -> np.ndarray:
        """Counts over the sum of weights over topics [b, W]; see `words.Assignment`."""


class Proportions(Protocol[State]):
    """The prior of the proportions theta_d, and the local step for q(theta_d).

    A state is a NamedTuple of arrays [b, ...], the parameters of q(theta_d) of b documents.
    """

    @property
    def numbers_per_document(self) -> int:
        """Numbers that the local step stores per document, besides its words."""

    def start(self, num_documents: int, dtype: npt.DTypeLike) -> State:
        """The state before the first step."""

    def converge(self, words: Words, state: State, tolerance: float, max_steps: int) -> State:
        """Step at fixed topics until expected words per topic change by less than `tolerance`."""

    def evaluate(self, words: Words, state: State) -> DocumentBounds:
        """The bound of each document, at the best assignment of its words to topics."""

    def mean(self, state: State) -> np.ndarray:
        """E theta_d [b, K]."""

    @property
    def log_prior(self) -> float:
        """Log density of the learned parameters under their prior, in nats; 0 without one."""

    def learned(
        self, state: State, rate: float = 1.0, documents: float | None = None
    ) -> Proportions[State]:
        """Return the best prior for these documents, or a step of size `rate` towards it.

        `documents` is the size of the corpus that they stand for, by default their number.
        """


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
        variance, product = (
            np.diagonal(covariance, axis1=1, axis2=2),
            (covariance @ tilt[..., None])[..., 0],
        )
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


def normal_points(num: int, size: int, seed: int = 0) -> np.ndarray:
    """Points [num, size] with mean 0, covariance I, third moments 0: normal draws and negatives."""
    half = np.random.default_rng(seed).standard_normal((num // 2, size))
    root = np.linalg.cholesky(half.T @ half / len(half))
    half = np.linalg.solve(root, half.T).T
    return np.concatenate([half, -half])


# ---
# An inverse-Wishart prior, which bounds Sigma_0.


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

    def best(self, scatter: np.ndarray, documents: float) -> np.ndarray:
        """The best Sigma_0 [K, K] for D = `documents` of scatter S [K, K]."""
        # (T16)
        return (documents * scatter + self.documents * self.mode) / (documents + self.documents)

    def log_density(self, Sigma: np.ndarray) -> float:
        """log p(Sigma_0) in nats, normalised, for Sigma_0 [K, K]."""
        K, nu = len(Sigma), self.documents - len(Sigma) - 1.0
        log_Psi = np.linalg.slogdet(self.mode)[1] + K * np.log(self.documents)
        constant = 0.5 * nu * (log_Psi - K * np.log(2.0)) - multigammaln(0.5 * nu, K)
        trace = np.trace(np.linalg.solve(Sigma, self.mode))
        # (T17)
        return float(constant - 0.5 * self.documents * (np.linalg.slogdet(Sigma)[1] + trace))


class CovarianceMoments(NamedTuple):
    """mu_0 and Sigma_0, and the scatter behind Sigma_0."""

    mu: np.ndarray
    """[K]"""
    Sigma: np.ndarray
    """[K, K]"""
    scatter: np.ndarray
    """S [K, K]; Sigma_0 without a prior."""


def moved(
    now: CovarianceMoments,
    mu: np.ndarray,
    second: np.ndarray,
    rate: float,
    prior: CovariancePrior | None,
    documents: float,
) -> CovarianceMoments:
    """Step by `rate` in the moments of the documents; return them with their best Sigma_0.

    The documents have mean mu [K] and second moment [K, K] about zero; a rate of 1 forgets `now`.
    """
    second = (1.0 - rate) * (now.scatter + np.outer(now.mu, now.mu)) + rate * second
    mu = (1.0 - rate) * now.mu + rate * mu
    scatter = second - np.outer(mu, mu)
    return CovarianceMoments(
        mu, scatter if prior is None else prior.best(scatter, documents), scatter
    )


# ---
# Dirichlet prior and posterior of the proportions.


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


# ---
# Gaussian q of proportions, (T5)-(T7).


# With gradient g and Hessian H <= 0 of (T6), a step of size rho is (T7)
#
#   V^-1 <- (1 - rho) V^-1 + rho (Sigma_0^-1 - H),   m <- m + rho V (g - Sigma_0^-1 (m - mu_0))


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


# ---


# With the prior's Dirichlet site lambda^(c) at the current c (T9) and expected words per topic
# e(c), a natural-gradient step of size rho is
#
#   c <- (1 - rho) c + rho (1 + lambda^(c) + e(c))


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
