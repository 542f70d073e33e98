"""Site functions of decoupled variational inference (Khan 2014), slowly: densities of SciPy,
integrals one at a time.

A loss is l(eta) = -log p(y | eta) for one y; f(h, sigma) is its expectation under N(h, sigma^2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.special import gammaln, log_expit

from .grams import Array
from .likelihoods import tilted_bound

__all__ = [
    "Loss",
    "SiteFunction",
    "bernoulli_logit",
    "bernoulli_probit",
    "class_bound",
    "class_loss",
    "dual_objective",
    "exponential",
    "gamma",
    "gaussian",
    "hermite",
    "hinge",
    "integral",
    "laplace",
    "log_predictive",
    "maximise",
    "negative_binomial",
    "ordinal",
    "poisson",
    "student_t",
]

Loss = Callable[[Array], Array]
SiteFunction = Callable[[float, float], float]
"""f(h, sigma)."""


def gaussian(y: float, variance: float) -> Loss:
    """Normal noise."""
    return lambda eta: -stats.norm.logpdf(y, eta, np.sqrt(variance))


def poisson(y: float, binsize: float = 1.0) -> Loss:
    """Counts with rate exp(eta) times the size of the bin."""
    return lambda eta: -stats.poisson.logpmf(y, binsize * np.exp(eta))


def ordinal(y: float, edges: Sequence[float], sigma: float) -> Loss:
    """Grades: the probability of a bin, from the tail in which it is accurate."""
    low, high = [-np.inf, *edges][int(y)], [*edges, np.inf][int(y)]

    def loss(eta: Array) -> Array:
        a, b = (low - eta) / sigma, (high - eta) / sigma
        mirrored = a + b > 0.0
        above, below = (
            stats.norm.logcdf(np.where(mirrored, -a, b)),
            stats.norm.logcdf(np.where(mirrored, -b, a)),
        )
        return -above - np.log(-np.expm1(below - above))

    return loss


def gamma(y: float, shape: float) -> Loss:
    """Scale exp(eta)."""
    return lambda eta: -stats.gamma.logpdf(y, shape, scale=np.exp(eta))


def exponential(y: float) -> Loss:
    """Mean exp(eta)."""
    return lambda eta: -stats.expon.logpdf(y, scale=np.exp(eta))


def laplace(y: float, scale: float) -> Loss:
    """Double exponential noise."""
    return lambda eta: -stats.laplace.logpdf(y, eta, scale)


def hinge(y: float) -> Loss:
    """The loss of support vector machines, for labels of 0 and 1; not the logarithm of a
    density.
    """
    return lambda eta: np.maximum(0.0, 1.0 - (2.0 * y - 1.0) * eta)


def bernoulli_logit(y: float) -> Loss:
    """Logistic link."""
    return lambda eta: -log_expit((2.0 * y - 1.0) * eta)


def bernoulli_probit(y: float, jitter: float = 0.0) -> Loss:
    """Probit link; with jitter, of p = Phi (1 - 2 jitter) + jitter."""
    if jitter:
        return lambda eta: (
            -np.log(stats.norm.cdf((2.0 * y - 1.0) * eta) * (1.0 - 2.0 * jitter) + jitter)
        )
    return lambda eta: -stats.norm.logcdf((2.0 * y - 1.0) * eta)


def negative_binomial(y: float, size: float) -> Loss:
    """Mean exp(eta), variance mean + mean^2 / size."""
    constant = gammaln(y + size) - gammaln(size) - gammaln(y + 1.0)

    def loss(eta: Array) -> Array:
        total = np.logaddexp(
            np.log(size), eta
        )  # SciPy's own log density is infinite far to the left
        return -constant - size * (np.log(size) - total) - y * (eta - total)

    return loss


def student_t(y: float, df: float, scale: float) -> Loss:
    """Student-t noise."""
    return lambda eta: -stats.t.logpdf(y, df, eta, scale)


def integral(loss: Loss, h: float, sigma: float, kinks: Sequence[float] = ()) -> float:
    """f(h, sigma) by adaptive quadrature, cut at the kinks of the loss and where it bends, which is
    around 0.
    """
    if sigma == 0.0:
        return float(loss(np.array(h)))
    cuts = {-10.0, -3.0, 0.0, 3.0, 10.0} | {
        (edge - h) / sigma for edge in [-30, -4, 0, 4, 30, *kinks]
    }
    edges = [-14.0, *sorted(cut for cut in cuts if -14.0 < cut < 14.0), 14.0]

    def integrand(z: float) -> float:
        return float(loss(np.array(h + sigma * z))) * np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)

    parts = [
        quad(integrand, *pair, epsabs=1e-14, epsrel=1e-13, limit=200)[0]
        for pair in zip(edges, edges[1:])
    ]
    return float(np.sum(parts))


def hermite(loss: Loss, h: float, sigma: float, order: int) -> float:
    """f(h, sigma) by Gauss-Hermite quadrature."""
    z, weights = hermegauss(order)
    return float(loss(h + sigma * z) @ weights / np.sqrt(2.0 * np.pi))  # (V2)


def log_predictive(loss: Loss, h: float, sigma: float) -> float:
    """log E exp(-l(eta)), by a sum over a fine grid in the log domain."""
    far = 14.0 * sigma + 40.0
    grid = np.linspace(min(h, 0.0) - far, max(h, 0.0) + far, 400_001)
    exponents = -loss(grid) - 0.5 * ((grid - h) / sigma) ** 2
    top = np.max(exponents)
    mass = np.sum(np.exp(exponents - top)) * (grid[-1] - grid[0]) / (len(grid) - 1)
    return float(top + np.log(mass) - np.log(np.sqrt(2.0 * np.pi) * sigma))


def dual_objective(
    f: SiteFunction,
    point: Sequence[float],
    alpha: float,
    lam: float,
    sigma_k: float,
    rho: float,
    kappa: float = 0.0,
    h_k: float = 0.0,
) -> float:
    """What the conjugate f^k* maximises over the point (h, sigma)."""
    h, sigma = point
    linear = alpha * h + lam * sigma_k * (sigma - 0.5 * sigma_k)
    return (
        linear - f(h, sigma) - 0.5 * rho * (sigma - sigma_k) ** 2 - 0.5 * kappa * (h - h_k) ** 2
    )  # (V15)


def maximise(
    f: SiteFunction,
    start: Sequence[float],
    alpha: float,
    lam: float,
    sigma_k: float,
    rho: float,
    lowest: float = 1e-9,
) -> tuple[float, float, float]:
    """h*, sigma* and f^k* by a simplex search that knows no derivatives, over sigma >= `lowest`."""

    def cost(point: Array) -> float:
        return -dual_objective(f, point, alpha, lam, sigma_k, rho)

    best, value = np.asarray(start, float), np.inf
    for _ in range(4):  # restarts of the simplex, until they change nothing
        found = minimize(
            cost, best, method="Nelder-Mead", bounds=[(-np.inf, np.inf), (lowest, np.inf)],
            options={"xatol": 1e-7, "fatol": 1e-13, "maxiter": 400},
        )  # fmt: skip
        best, previous, value = found.x, value, found.fun
        if previous - value <= 1e-10:
            break
    return float(best[0]), float(best[1]), -float(value)


def class_loss(label: int, mean: Array, variance: Array) -> float:
    """The upper bound (V33) of -E log softmax(f)_label, f_c ~ N(mean_c, variance_c), [C] each."""
    return tilted_bound(mean, variance) - mean[label]


def class_bound(grams: Array, labels: Array, alpha: Array, lam: Array) -> float:
    """(V10) of C latents with priors N(0, grams [C, N, N]), of labels [N], alpha and lam [N, C]."""
    means, variances, divergence = np.zeros(alpha.shape), np.zeros(alpha.shape), 0.0
    for c, K in enumerate(grams):
        V = np.linalg.inv(np.linalg.inv(K) + np.diag(lam[:, c]))
        means[:, c], variances[:, c] = -K @ alpha[:, c], np.diag(V)
        ratio = np.linalg.solve(K, V)
        fit = alpha[:, c] @ K @ alpha[:, c]
        divergence += 0.5 * (np.trace(ratio) + fit - len(K) - np.linalg.slogdet(ratio)[1])
    losses = [class_loss(int(y), m, v) for y, m, v in zip(labels, means, variances)]
    return -float(np.sum(losses)) - divergence
