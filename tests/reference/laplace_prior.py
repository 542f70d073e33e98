"""Linear models whose weights have Laplace priors, slowly: the best Gaussian and the evidence,
without multipliers.

eta = X w with X [N, p], and w_d ~ Laplace(location_d, scale_d), independent. A column of ones is
not treated specially: the weight with a Gaussian prior, if there is one, is the last, and
`variance` is that of its prior N(0, variance). (V30) does not occur here: the Laplace densities are
integrated as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.polynomial.legendre import leggauss
from scipy import stats

from . import lcl_sites as sites
from .conjugate import best_gaussian
from .grams import Array

__all__ = ["Priors", "best", "bound", "expected_loss", "log_evidence"]


class Priors(NamedTuple):
    """The priors of the weights."""

    location: Array
    """[p], of the weights with Laplace priors"""
    scale: Array
    """[p]"""
    variance: float | None = None
    """Of one more weight with a Gaussian prior; None if there is none"""


def expected_loss(h: float, sigma: float, location: float, scale: float, nodes: int = 120) -> float:
    """-E log Laplace(w) under w ~ N(h, sigma^2), by Gauss-Legendre quadrature on both sides of the
    kink.
    """
    kink = np.clip((location - h) / sigma, -12.0, 12.0)
    z, weights = leggauss(nodes)
    total = 0.0
    for low, high in ((-12.0, kink), (kink, 12.0)):
        x = 0.5 * (high - low) * z + 0.5 * (high + low)
        total += (
            0.5
            * (high - low)
            * np.sum(weights * np.abs(h + sigma * x - location) * stats.norm.pdf(x))
        )
    return float(np.log(2.0 * scale) + total / scale)


def bound(X: Array, f: Sequence[sites.SiteFunction], priors: Priors, m: Array, V: Array) -> float:
    """E log p(y, w) + entropy of q(w) = N(m, V), for the site functions f of the observations."""
    deviations = np.sqrt(np.einsum("np,pq,nq->n", X, V, X))
    value = -sum(f_n(*pair) for f_n, pair in zip(f, zip(X @ m, deviations)))
    for d, (location, scale) in enumerate(zip(priors.location, priors.scale)):
        value -= expected_loss(m[d], np.sqrt(V[d, d]), location, scale)
    if priors.variance is not None:
        value += (
            stats.norm.logpdf(m[-1], scale=np.sqrt(priors.variance))
            - 0.5 * V[-1, -1] / priors.variance
        )
    return value + 0.5 * (len(m) * np.log(2.0 * np.pi * np.e) + np.linalg.slogdet(V)[1])


def best(X: Array, f: Sequence[sites.SiteFunction], priors: Priors) -> tuple[Array, Array, float]:
    """Mean and covariance of the best Gaussian and its bound, by a general optimizer without
    derivatives of ours.
    """
    return best_gaussian(lambda m, V: bound(X, f, priors, m, V), X.shape[1])


def log_evidence(
    X: Array, losses: Sequence[sites.Loss], priors: Priors, reach: float = 12.0, nodes: int = 801
) -> float:
    """log p(y) by sums over a grid of one or two weights, with a node at the kinks, which lie at
    the locations.
    """
    axes = [np.linspace(location - reach, location + reach, nodes) for location in priors.location]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
    exponents = np.sum(stats.laplace.logpdf(grid, priors.location, priors.scale), axis=1)
    for x, loss in zip(X, losses):
        exponents -= loss(grid @ x)
    top, cell = np.max(exponents), (2.0 * reach / (nodes - 1)) ** len(axes)
    return float(top + np.log(np.sum(np.exp(exponents - top)) * cell))
