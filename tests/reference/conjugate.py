"""Conjugate-computation variational inference (CVI) of a full GP: one Gaussian site for each datum.

The sites are on f itself, prior mean included, so `mean` is the posterior mean with `prior_mean` in
it. Several latents are one long vector, datum by datum: pass `block_prior(K)` in the place of K
[N, N], and `prior_mean.ravel()`. Below, F is N, or N L with several latents. K may be singular and
site precisions may have any sign."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from scipy.linalg import block_diag
from scipy.optimize import minimize
from scipy.special import gammaln, logsumexp, softmax

from . import collapsed
from .decoupled import brute_force_kl
from .grams import Array
from .likelihoods import Expectation, Likelihood, expectation

__all__ = [
    "Expect",
    "Sites",
    "Target",
    "best_gaussian",
    "block_expectation",
    "block_prior",
    "diagonal_target",
    "global_step",
    "heteroscedastic",
    "kl_bound",
    "local_step",
    "log_evidence",
    "log_partition",
    "marginals",
    "no_sites",
    "posterior",
    "predict",
    "quadrature",
    "run",
    "site_bound",
    "site_change",
    "site_kl",
    "site_step",
    "site_target",
    "softmax_classes",
    "stationarity",
    "student_t",
    "textbook_bound",
    "trapezoid_expectation",
]

Expect = Callable[[Array, Array], Expectation]
"""Of marginal means and variances, as `marginals` returns them: (E [N], g like the means, h like
the variances).
"""
Target = Callable[[Array, Array, Array], "Sites"]
"""Of means, g and h: `site_target` or `diagonal_target`."""


class Sites(NamedTuple):
    """Site n is exp(nu_n^T f_n - f_n^T tau_n f_n / 2)."""

    nu: Array  # [N], or [N, L]
    tau: Array  # [N], or [N, L, L]

    @property
    def precision(self) -> Array:
        """W, the precisions of all sites in one matrix [F, F]."""
        return np.diag(self.tau) if self.tau.ndim == 1 else block_diag(*self.tau)


def no_sites(N: int, L: int | None = None) -> Sites:
    """Sites of one, at which q is the prior; L is None for sites that are scalars."""
    return (
        Sites(np.zeros(N), np.zeros(N))
        if L is None
        else Sites(np.zeros((N, L)), np.zeros((N, L, L)))
    )


def quadrature(
    likelihood: Likelihood,
    y: Array,
    order: int = 100,
    rule: Callable[..., Expectation] = expectation,
) -> Expect:
    """Gauss-Hermite expectations at y [N]; rule = `block_expectation` for several latents, with
    fewer nodes.
    """
    return lambda mean, var: rule(likelihood, y, mean, var, order)


def posterior(K: Array, prior_mean: Array, sites: Sites) -> tuple[Array, Array]:
    """Mean [F] and covariance [F, F] of q(f) from K [F, F] and prior_mean [F]."""
    W = sites.precision
    # (K^-1 + W)^-1 and K^-1 m_0 with K multiplied out of the inverses: K may be singular.
    cov = np.linalg.inv(np.eye(len(K)) + K @ W) @ K  # (C9)
    return prior_mean + cov @ (sites.nu.ravel() - W @ prior_mean), cov  # (C9)


def marginals(K: Array, prior_mean: Array, sites: Sites) -> tuple[Array, Array]:
    """Mean and variance of each f_n: [N] and [N], or [N, L] and [N, L, L]."""
    mean, cov = posterior(K, prior_mean, sites)
    if sites.nu.ndim == 1:
        return mean, np.diag(cov)
    N, L = sites.nu.shape
    return mean.reshape(N, L), np.einsum("nlnk->nlk", cov.reshape(N, L, N, L))


def predict(
    K: Array, K_sx: Array, K_s: Array, prior_mean: Array, prior_mean_s: Array, sites: Sites
) -> tuple[Array, Array]:
    """Mean [T] and covariance [T, T] at other points, from the data that have sites alone.

    K [F, F] and prior_mean [F] are at these data, K_sx [T, F], K_s [T, T] and prior_mean_s [T] at
    the points."""
    mean, _ = posterior(K, prior_mean, sites)
    W = sites.precision
    # W^1/2 B^-1 W^1/2 of (C21), without the roots that negative precisions have not.
    middle = np.linalg.inv(np.eye(len(K)) + W @ K) @ W
    return prior_mean_s + K_sx @ (
        sites.nu.ravel() - W @ mean
    ), K_s - K_sx @ middle @ K_sx.T  # (C21)


def site_target(mean: Array, g: Array, h: Array) -> Sites:
    """Gradient of E in the mean parameters, as sites, from g and h at the means [N] or [N, L]."""
    if mean.ndim == 1:
        return Sites(g - 2.0 * h * mean, -2.0 * h)  # (C13)
    return Sites(g - 2.0 * np.einsum("nlk,nk->nl", h, mean), -2.0 * h)  # (C18)


def diagonal_target(mean: Array, g: Array, h: Array) -> Sites:
    """`site_target` for q that factorises over the latents: mean, g [N, L], h [N, L, L]."""
    return site_target(mean, g, h * np.eye(mean.shape[1]))  # (C18)


def site_step(sites: Sites, target: Sites, rho: float) -> Sites:
    """All sites after a step of size rho."""
    nu = (1 - rho) * sites.nu + rho * target.nu  # (C13)
    return Sites(nu, (1 - rho) * sites.tau + rho * target.tau)  # (C13)


def global_step(sites: Sites, batch: Sequence[int], target: Sites, rho: float) -> Sites:
    """All sites shrink, and those of the batch receive their `target`, [B] or [B, L], scaled to the
    data.
    """
    nu, tau, scale = (1 - rho) * sites.nu, (1 - rho) * sites.tau, len(sites.nu) / len(batch)
    np.add.at(nu, list(batch), rho * scale * target.nu)  # (C19)
    np.add.at(tau, list(batch), rho * scale * target.tau)  # (C19)
    return Sites(nu, tau)


def local_step(sites: Sites, batch: Sequence[int], target: Sites, rho: float) -> Sites:
    """The sites of the batch move to their `target`, [B] or [B, L], the others stay."""
    nu, tau, rows = sites.nu.copy(), sites.tau.copy(), list(batch)
    nu[rows] = (1 - rho) * nu[rows] + rho * target.nu  # (C20)
    tau[rows] = (1 - rho) * tau[rows] + rho * target.tau  # (C20)
    return Sites(nu, tau)


def site_kl(K: Array, prior_mean: Array, sites: Sites) -> float:
    """KL[q || p] without an inverse of K or of q's covariance."""
    W = sites.precision
    mean, cov = posterior(K, prior_mean, sites)
    log_det = np.linalg.slogdet(np.eye(len(K)) + K @ W)[1]
    alpha = sites.nu.ravel() - W @ mean
    return 0.5 * float(log_det - np.trace(W @ cov) + alpha @ (mean - prior_mean))  # (C14)


def log_partition(K: Array, prior_mean: Array, sites: Sites) -> float:
    """log Z~, the log integral of the prior times all sites."""
    W, nu = sites.precision, sites.nu.ravel()
    mean, _ = posterior(K, prior_mean, sites)
    log_det = np.linalg.slogdet(np.eye(len(K)) + K @ W)[1]
    at_prior_mean = nu @ prior_mean - 0.5 * prior_mean @ W @ prior_mean
    r = nu - W @ prior_mean
    return float(-0.5 * log_det + at_prior_mean + 0.5 * r @ (mean - prior_mean))  # (C16)


def textbook_bound(K: Array, prior_mean: Array, mean: Array, cov: Array, expected: Array) -> float:
    """ELBO of any q = N(mean [F], cov [F, F]) whose expected log likelihoods are `expected` [N]."""
    return float(np.sum(expected)) - brute_force_kl(mean, cov, prior_mean, K)


def kl_bound(K: Array, prior_mean: Array, sites: Sites, expect: Expect) -> float:
    """ELBO of the sites' q; with other K and prior_mean, the fixed-site bound."""
    value = expect(*marginals(K, prior_mean, sites)).value
    return float(np.sum(value)) - site_kl(K, prior_mean, sites)  # (C15)


def site_bound(K: Array, prior_mean: Array, sites: Sites, expect: Expect) -> float:
    """`kl_bound` from the evidence of the conjugate model, corrected at each site."""
    W, nu = sites.precision, sites.nu.ravel()
    mean, cov = posterior(K, prior_mean, sites)
    expected_log_sites = nu @ mean - 0.5 * (mean @ W @ mean + np.trace(W @ cov))
    value = expect(*marginals(K, prior_mean, sites)).value
    return log_partition(K, prior_mean, sites) + float(np.sum(value) - expected_log_sites)  # (C15)


def site_change(old: Sites, new: Sites, rho: float) -> float:
    """Squared change of the natural parameters (nu, -tau / 2) over the step size."""
    return float(np.sum((new.nu - old.nu) ** 2) + 0.25 * np.sum((new.tau - old.tau) ** 2)) / rho**2


def run(
    K: Array,
    prior_mean: Array,
    sites: Sites,
    expect: Expect,
    rho: float = 0.5,
    target: Target = site_target,
) -> Sites:
    """Sites at the fixed point: full steps until they change by rounding alone.

    Raises:
        ValueError: no fixed point within 2000 steps.
    """
    for _ in range(2000):
        mean, var = marginals(K, prior_mean, sites)
        _, g, h = expect(mean, var)
        previous, sites = sites, site_step(sites, target(mean, g, h), rho)
        size = 1.0 + float(np.sum(sites.nu**2) + np.sum(sites.tau**2))
        if site_change(previous, sites, rho) <= 1e-26 * size:
            return sites
    raise ValueError(f"no fixed point by steps of size {rho}: take smaller or larger ones")


def stationarity(K: Array, prior_mean: Array, sites: Sites, expect: Expect) -> tuple[Array, Array]:
    """Residuals alpha - g [F] and tau + 2 h, like tau, that vanish at the fixed point."""
    mean, var = marginals(K, prior_mean, sites)
    _, g, h = expect(mean, var)
    return sites.nu.ravel() - sites.precision @ mean.ravel() - g.ravel(), sites.tau + 2.0 * h


def best_gaussian(value: Callable[[Array, Array], float], F: int) -> tuple[Array, Array, float]:
    """Mean [F] and covariance [F, F] that maximise `value`, and its maximum, by a general optimizer
    from N(0, I).
    """
    lower, root = np.tril_indices(F), np.zeros((F, F))

    def moments(x: Array) -> tuple[Array, Array]:
        root[lower] = x[F:]
        return x[:F], root @ root.T

    start = np.concatenate([np.zeros(F), np.eye(F)[lower]])
    result = minimize(lambda x: -value(*moments(x)), start, method="BFGS", options={"gtol": 1e-6})
    return *moments(result.x), -result.fun


def log_evidence(K: Array, prior_mean: Array, y: Array, noise: float) -> float:
    """Exact log p(y) of regression with Gaussian noise, for K [N, N], y and prior_mean [N]."""
    return collapsed.log_evidence(K, y - prior_mean, noise)


def block_prior(K: Array) -> Array:
    """Covariance [N L, N2 L] of independent latents, datum by datum, from K [L, N, N2]."""
    L, N, N2 = K.shape
    return np.einsum("lnm,lk->nlmk", K, np.eye(L)).reshape(N * L, N2 * L)


def block_expectation(
    likelihood: Likelihood, y: Array, mean: Array, cov: Array, order: int = 30
) -> Expectation:
    """(E [N], g [N, L], H = dE/dcov [N, L, L]) under N(mean [N, L], cov [N, L, L]) on a grid of
    order^L nodes.

    The likelihood has several latents: of y [N, 1] and f [N, S, L], its functions return [N, S],
    [N, S, L] and [N, S, L, L]."""
    L = mean.shape[1]
    nodes, weights = hermegauss(order)
    z = np.stack(np.meshgrid(*[nodes] * L), -1).reshape(-1, L)
    w = np.prod(np.stack(np.meshgrid(*[weights / np.sqrt(2 * np.pi)] * L), -1).reshape(-1, L), -1)
    f = mean[:, None] + np.einsum("nlk,sk->nsl", np.linalg.cholesky(cov), z)
    g = np.einsum("nsl,s->nl", likelihood.score(y[:, None], f), w)
    h = 0.5 * np.einsum("nslk,s->nlk", likelihood.curvature(y[:, None], f), w)  # (C18)
    return Expectation(likelihood.log_prob(y[:, None], f) @ w, g, h)


def trapezoid_expectation(
    likelihood: Likelihood, y: Array, mean: Array, var: Array, order: int = 4000
) -> Expectation:
    """`expectation` for likelihoods with a bend that Gauss-Hermite nodes miss: `order` equal steps
    over 9 standard deviations to both sides.
    """
    z = np.linspace(-9.0, 9.0, order + 1)
    w = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi) * (z[1] - z[0])
    f, labels = mean[:, None] + np.sqrt(var)[:, None] * z, y[:, None]
    return Expectation(
        likelihood.log_prob(labels, f) @ w,
        likelihood.score(labels, f) @ w,
        0.5 * likelihood.curvature(labels, f) @ w,
    )


def student_t(df: float, scale: float) -> Likelihood:
    """Student-t noise, not log concave, for one latent."""
    variance = df * scale**2
    log_constant = gammaln(0.5 * (df + 1)) - gammaln(0.5 * df) - 0.5 * np.log(np.pi * variance)
    return Likelihood(
        lambda y, f: log_constant - 0.5 * (df + 1) * np.log1p((y - f) ** 2 / variance),
        lambda y, f: (df + 1) * (y - f) / (variance + (y - f) ** 2),
        lambda y, f: (df + 1) * ((y - f) ** 2 - variance) / (variance + (y - f) ** 2) ** 2,
    )


def softmax_classes(L: int) -> Likelihood:
    """Integer y in 0 .. L - 1 with probabilities softmax(f), for L latents."""

    def curvature(y: Array, f: Array) -> Array:
        p = softmax(f, axis=-1)
        return p[..., :, None] * (p[..., None, :] - np.eye(L))

    return Likelihood(
        lambda y, f: np.sum(np.eye(L)[y] * f, -1) - logsumexp(f, axis=-1),
        lambda y, f: np.eye(L)[y] - softmax(f, axis=-1),
        curvature,
    )


def heteroscedastic() -> Likelihood:
    """y = f_0 + exp(f_1) times standard noise, for two latents; not log concave in both
    together.
    """

    def scaled(y: Array, f: Array) -> tuple[Array, Array]:
        return (y - f[..., 0]) * np.exp(-f[..., 1]), np.exp(-f[..., 1])

    def curvature(y: Array, f: Array) -> Array:
        r, root = scaled(y, f)
        rows = [np.stack([root**2, 2.0 * r * root], -1), np.stack([2.0 * r * root, 2.0 * r**2], -1)]
        return -np.stack(rows, -1)

    return Likelihood(
        lambda y, f: -0.5 * (np.log(2 * np.pi) + scaled(y, f)[0] ** 2) - f[..., 1],
        lambda y, f: np.stack([np.prod(scaled(y, f), 0), scaled(y, f)[0] ** 2 - 1.0], -1),
        curvature,
    )
