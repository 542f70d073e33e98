"""Affine-independent inference, Challis & Barber 2012, by quadrature: densities of y = sum_d
alpha_d v_d + beta.

A density is one of the standardised variables v: mean 0, variance 1. Nothing here uses a Fourier
transform."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats
from scipy.integrate import quad

from .grams import Array

__all__ = [
    "DENSITIES",
    "Density",
    "entropy",
    "expectation",
    "lattice",
    "mass",
    "masses",
    "moment",
    "standardised",
    "transform",
]


class Density(NamedTuple):
    """A density on the line."""

    log_pdf: Callable[[Array], Array]
    """Elementwise."""
    breaks: tuple[float, ...] = ()
    """Where it is not smooth."""
    reach: float = 60.0
    """Nothing lies beyond this distance from zero."""


def _integral(f: Callable[[float], float], density: Density) -> float:
    ends = sorted({-density.reach, -8.0, 8.0, density.reach, *density.breaks})
    pieces = (
        quad(f, *pair, epsabs=1e-13, epsrel=1e-12, limit=400)[0] for pair in zip(ends, ends[1:])
    )
    return float(sum(pieces))


def mass(density: Density, low: float, high: float) -> float:
    """Between two points around zero."""
    ends = sorted(
        {low, high, *(point for point in (-4.0, 0.0, 4.0, *density.breaks) if low < point < high)}
    )
    pdf = lambda v: np.exp(density.log_pdf(v))  # noqa: E731
    return float(sum(quad(pdf, *pair, epsabs=1e-13, limit=400)[0] for pair in zip(ends, ends[1:])))


def moment(density: Density, order: int) -> float:
    return _integral(lambda v: v**order * np.exp(density.log_pdf(v)), density)


def entropy(density: Density) -> float:
    def loss(v: float) -> float:
        log_pdf = float(density.log_pdf(v))
        return -np.exp(log_pdf) * log_pdf if np.isfinite(log_pdf) else 0.0

    return _integral(loss, density)


def transform(density: Density, omega: float) -> complex:
    if density.reach > 1e3 and omega:  # symmetric, with polynomial tails
        half = quad(
            lambda v: np.exp(density.log_pdf(v)),
            0.0,
            np.inf,
            weight="cos",
            wvar=omega,
            epsabs=1e-12,
        )
        return complex(2.0 * half[0])
    real = _integral(lambda v: np.cos(omega * v) * np.exp(density.log_pdf(v)), density)
    return complex(
        real, _integral(lambda v: np.sin(omega * v) * np.exp(density.log_pdf(v)), density)
    )


def standardised(raw: Density) -> Density:
    """The density of (r - mean) / sd."""
    mean = moment(raw, 1)
    sd = np.sqrt(moment(raw, 2) - mean**2)
    breaks = tuple((point - mean) / sd for point in raw.breaks)
    return Density(
        lambda v: raw.log_pdf(mean + sd * v) + np.log(sd), breaks, (raw.reach - abs(mean)) / sd
    )


def _mixture(theta: Sequence[float]) -> Density:
    logits, means, log_scales = np.reshape(theta, [3, -1])
    weights = np.exp(logits) / np.sum(np.exp(logits))
    parts = [stats.norm(m, s) for m, s in zip(means, np.exp(log_scales))]
    return Density(
        lambda v: np.log(sum(w * part.pdf(v) for w, part in zip(weights, parts))), (), 20.0
    )


DENSITIES: dict[str, Callable[[Sequence[float]], Density]] = {
    "normal": lambda theta: Density(stats.norm.logpdf, (), 12.0),
    "laplace": lambda theta: Density(stats.laplace.logpdf, (0.0,)),
    "logistic": lambda theta: Density(stats.logistic.logpdf),
    "student_t": lambda theta: Density(stats.t(theta[0]).logpdf, (-100.0, 100.0, -1e3, 1e3), 1e7),
    "skew_normal": lambda theta: Density(stats.skewnorm(theta[0]).logpdf, (), 12.0),
    "generalized_normal": lambda theta: Density(stats.gennorm(theta[0]).logpdf, (0.0,)),
    "normal_mixture": _mixture,
}
"""The raw densities of theta [P], by the names of the bases."""


def _rule(
    density: Density, reach: float, panels: int, extra: Array | float = 0.0
) -> tuple[Array, Array]:
    """Nodes [S, Q], and weights times the density, of Gauss-Legendre panels split at breaks and at
    `extra` [S].
    """
    extra = np.clip(np.atleast_1d(extra), -reach, reach)
    graded = (
        np.sinh(np.linspace(-3, 3, panels + 1)) / np.sinh(3) * reach
    )  # fine near zero, coarse in the tails
    fixed = np.broadcast_to(
        [*graded, *density.breaks], [len(extra), panels + 1 + len(density.breaks)]
    )
    ends = np.sort(np.column_stack([fixed, extra]), axis=1)
    nodes, weights = np.polynomial.legendre.leggauss(10)
    half = 0.5 * np.diff(ends)[:, :, None]
    v = (ends[:, :-1, None] + half * (nodes + 1)).reshape(len(extra), -1)
    return v, (half * weights).reshape(len(extra), -1) * np.exp(density.log_pdf(v))


def expectation(
    g: Callable[[Array], Array],
    densities: Sequence[Density],
    alpha: Array,
    beta: float,
    kink: float = 0.0,
    reach: float = 16.0,
    panels: int = 10,
) -> float:
    """E g(sum_d alpha_d v_d + beta) by a product rule; the integral over the last v is split where
    y = kink.
    """
    *outer, last = densities
    y, weight = np.array([beta]), np.ones(1)
    for density, a in zip(outer, alpha):
        nodes, weights = _rule(density, reach, panels)
        y, weight = (y[:, None] + a * nodes[0]).ravel(), (weight[:, None] * weights[0]).ravel()
        y, weight = y[weight > 1e-17], weight[weight > 1e-17]
    nodes, weights = _rule(last, reach, panels, (kink - y) / alpha[-1])
    return float(weight @ np.sum(g(y[:, None] + alpha[-1] * nodes) * weights, axis=1))


def masses(cdf: Callable[[Array], Array], alpha: float, step: float, K: int) -> Array:
    """Mass of alpha v in each of K cells of width `step`, K/2 of which have centres below zero."""
    edges = (np.arange(K + 1) - K / 2 - 0.5) * step
    inner = cdf(edges[1:-1] / alpha)
    below = np.concatenate([[0.0], inner if alpha > 0 else 1.0 - inner, [1.0]])
    return np.diff(below)


def lattice(cells: Sequence[Array], step: float, beta: float) -> tuple[Array, Array]:
    """Values y and masses of the sum, by linear convolution of the `cells` [K] of each term."""
    rho, K = np.ones(1), len(cells[0])
    for cell in cells:
        rho = np.convolve(rho, cell)
    first = -(K // 2) * len(cells)
    return beta + step * (first + np.arange(len(rho))), rho
