"""Expectation propagation of a full GP, one site after the other: Rasmussen & Williams 2006,
section 3.6.

`probit_ep` is their Algorithm 3.5 with their evidence (3.65), in their own formulas. `power_ep`
serves any density and any power, with integrals on a fine grid (Minka 2004). Sites are as in
`conjugate`, on f itself; after each update all marginals are computed again, which costs N^4 per
pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.integrate import quad
from scipy.stats import norm

from .conjugate import Sites, log_partition, marginals, no_sites
from .grams import Array

__all__ = [
    "Approximation",
    "LogDensity",
    "Tilted",
    "cavities",
    "integrate",
    "integrate_with_kink",
    "power_ep",
    "probit_ep",
    "tilted_moments",
]

LogDensity = Callable[[Array, Array], Array]
"""Of y and f, which broadcast: log p(y | f)"""


class Approximation(NamedTuple):
    """Sites, and the estimate of the log evidence that belongs to them."""

    sites: Sites
    evidence: float


class Tilted(NamedTuple):
    """log of the mass, mean and variance of a cavity times a density."""

    log_mass: float
    mean: float
    variance: float


def tilted_moments(
    log_density: Callable[[Array], Array], m: float, v: float, points: int = 4001
) -> Tilted:
    """The moments of N(f; m, v) exp(log_density(f)) by the trapezoidal rule over 14 standard
    deviations.
    """
    f = m + np.sqrt(v) * np.linspace(-14.0, 14.0, points)
    log_weight = norm.logpdf(f, m, np.sqrt(v)) + log_density(f)
    top = np.max(log_weight)
    weight = np.exp(log_weight - top)
    mass = np.sum(weight)
    mean = np.sum(weight * f) / mass
    return Tilted(top + np.log(mass * (f[1] - f[0])), mean, np.sum(weight * (f - mean) ** 2) / mass)


def cavities(K: Array, prior_mean: Array, sites: Sites, power: float = 1.0) -> tuple[Array, Array]:
    """Means and variances [N] of the marginals without the share `power` of their own sites."""
    mean, variance = marginals(K, prior_mean, sites)
    precision = 1.0 / variance - power * sites.tau  # (C50)
    return (mean / variance - power * sites.nu) / precision, 1.0 / precision  # (C50)


def power_ep(
    K: Array,
    prior_mean: Array,
    y: Array,
    log_density: LogDensity,
    power: float = 1.0,
    passes: int = 500,
    damping: float = 0.0,
) -> Approximation:
    """The fixed point, one site after the other.

    Raises:
        ValueError: no fixed point, or a cavity without a variance.
    """
    N, sites = len(y), no_sites(len(y))
    for _ in range(passes):
        largest = 0.0
        for n in range(N):
            mean, variance = marginals(K, prior_mean, sites)
            m, v = (part[n] for part in cavities(K, prior_mean, sites, power))
            if v <= 0.0:
                raise ValueError(
                    f"the cavity of observation {n} has no variance: start nearer, or damp"
                )
            found = tilted_moments(lambda f, n=n: power * log_density(y[n], f), m, v)
            change = (
                abs(found.mean - mean[n]) / np.sqrt(variance[n]),
                abs(found.variance / variance[n] - 1.0),
            )
            largest = max(largest, *change)
            # the Gaussian that the tilted moments divided by the cavity leave is the share `power`
            # of the new site
            nu = (found.mean / found.variance - m / v) / power  # (C52)
            tau = (1.0 / found.variance - 1.0 / v) / power  # (C52)
            sites.nu[n] += (1.0 - damping) * (nu - sites.nu[n])
            sites.tau[n] += (1.0 - damping) * (tau - sites.tau[n])
        if largest < 1e-11:
            return Approximation(sites, integrate(K, prior_mean, y, log_density, sites, power))
    raise ValueError(f"no fixed point after {passes} passes: the last change was {largest:.2g}")


def integrate(
    K: Array, prior_mean: Array, y: Array, log_density: LogDensity, sites: Sites, power: float
) -> float:
    """log Z_EP in nats: each site is scaled so that it has the tilted mass, both integrals on the
    same grid.
    """
    total = log_partition(K, prior_mean, sites)
    for n, (m, v) in enumerate(zip(*cavities(K, prior_mean, sites, power))):
        density = tilted_moments(lambda f, n=n: power * log_density(y[n], f), m, v).log_mass
        site = tilted_moments(
            lambda f, n=n: power * (sites.nu[n] * f - 0.5 * sites.tau[n] * f**2), m, v
        ).log_mass
        total += (density - site) / power  # (C53)
    return total


def probit_ep(K: Array, labels: Array, passes: int = 500) -> Approximation:
    """Algorithm 3.5 for labels -1 and 1, a zero prior mean and the probit link, and the log
    evidence by (3.65).
    """
    N = len(labels)
    nu, tau, cov, mean = np.zeros(N), np.zeros(N), K.copy(), np.zeros(N)
    for _ in range(passes):
        before = np.concatenate([mean, np.diag(cov)])
        for i in range(N):
            tau_out = 1.0 / cov[i, i] - tau[i]
            nu_out = mean[i] / cov[i, i] - nu[i]
            m, v = nu_out / tau_out, 1.0 / tau_out
            z = labels[i] * m / np.sqrt(1.0 + v)
            ratio = np.exp(norm.logpdf(z) - norm.logcdf(z))
            mean_hat = m + labels[i] * v * ratio / np.sqrt(1.0 + v)  # (3.58)
            var_hat = v - v**2 * ratio / (1.0 + v) * (z + ratio)  # (3.58)
            step = 1.0 / var_hat - tau_out - tau[i]
            tau[i] += step
            nu[i] = mean_hat / var_hat - nu_out
            column = cov[:, i].copy()
            cov = cov - step / (1.0 + step * column[i]) * np.outer(column, column)
            mean = cov @ nu
        root = np.sqrt(tau)
        chol = np.linalg.cholesky(np.eye(N) + root[:, None] * K * root)
        half = np.linalg.solve(chol, root[:, None] * K)
        cov = K - half.T @ half
        mean = cov @ nu
        if np.max(np.abs(np.concatenate([mean, np.diag(cov)]) - before)) < 1e-13:
            return Approximation(
                Sites(nu, tau), _probit_evidence(K, labels, Sites(nu, tau), mean, np.diag(cov))
            )
    raise ValueError(f"no fixed point after {passes} passes")


def _probit_evidence(K: Array, labels: Array, sites: Sites, mean: Array, variance: Array) -> float:
    """(3.65) with the sites as Gaussians of means mu~ and variances s~."""
    precision = 1.0 / variance - sites.tau
    m, v = (mean / variance - sites.nu) / precision, 1.0 / precision
    mu, s = sites.nu / sites.tau, 1.0 / sites.tau
    total = K + np.diag(s)
    evidence = -0.5 * np.linalg.slogdet(total)[1] - 0.5 * mu @ np.linalg.solve(total, mu)
    evidence += np.sum(norm.logcdf(labels * m / np.sqrt(1.0 + v)))
    return float(evidence + 0.5 * np.sum(np.log(v + s)) + np.sum((m - mu) ** 2 / (2.0 * (v + s))))


def integrate_with_kink(
    log_density: Callable[[float], float], kink: float, mean: float, variance: float, width: float
) -> tuple[float, float, float]:
    """Log mass, mean and variance of a density with a kink times N(mean, variance), by `quad` on
    both sides of the kink and of the mode.
    """

    def log_product(u: float) -> float:
        normal = -0.5 * (u - mean) ** 2 / variance - 0.5 * np.log(2.0 * np.pi * variance)
        return log_density(u) + normal

    shift = variance / width
    modes = [kink, *(u for u in (mean - shift, mean + shift) if (u - kink) * (u - mean) < 0.0)]
    mode = max(modes, key=log_product)
    top, reach = log_product(mode), min(np.sqrt(variance), width)
    steps = np.array([-2000.0, -200.0, -40.0, -10.0, -3.0, 0.0, 3.0, 10.0, 40.0, 200.0, 2000.0])
    ends = np.unique([*(mode + reach * steps), kink])

    def weight(u: float, power: int) -> float:
        return float((u - mode) ** power * np.exp(log_product(u) - top))

    pieces = list(zip(ends[:-1], ends[1:]))
    moments = [
        sum(quad(weight, *piece, args=(power,), epsrel=1e-12)[0] for piece in pieces)
        for power in range(3)
    ]
    centre = moments[1] / moments[0]
    return (
        top + float(np.log(moments[0])),
        mode + centre,
        moments[2] / moments[0] - centre**2,
    )
