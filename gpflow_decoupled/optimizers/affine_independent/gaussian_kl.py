"""Gaussian KL inference in whitened coordinates: what affine-independent inference starts from and is compared with.

q(w) = N(b, L L^T), the bound (A2) with a normal base. Steps of conjugate computation, (C9) with any site, with a line search
come near to the optimum, and L-BFGS on (b, L), in which the bound is concave for log-concave sites, finishes.
"""

from __future__ import annotations

__all__ = ["GaussianProblem", "GaussianSolution", "moments_of"]

import math
import time
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ...compilation import Compiled
from ...distributions import NormalBase
from ...expectations.projections import Projections, tiny
from ...expectations.site_integrals import Integration, SiteGroup, integrate
from .climb import climb
from .result import AffineTrace

_STEPS = 40
_HALVINGS = 8
_LEAST = 1e-10
"""Least diagonal of L."""


class GaussianSolution(NamedTuple):
    """The best Gaussian q found."""

    b: np.ndarray
    """[D]"""
    root: np.ndarray
    """[D, D], lower"""
    bound: float
    """Nats"""
    coordinates: np.ndarray | None = None
    """[n]: of A, where its structure does not hold every root"""


class GaussianProblem:
    """The bound as a function of b and L, and what the sites say at marginals.

    :param groups: sites with features [N, D]. :param gaussian: [D], see `AffineIndependentBasis`.
    :param constant: nats to add to the bound.
    """

    def __init__(
        self, groups: list[SiteGroup], gaussian: Any, constant: float, how: Integration, trace: AffineTrace
    ) -> None:
        self.gaussian, self.constant, self.trace = np.asarray(gaussian), constant, trace
        self.dtype = groups[0].features.dtype
        self.features = np.concatenate([group.features.numpy() for group in groups]).astype(float)
        self.offset = np.concatenate([group.offset.numpy() for group in groups])
        noise = [np.zeros(len(group.offset)) if group.noise is None else group.noise.numpy() for group in groups]
        self.noise = np.concatenate(noise)
        how = how._replace(route="auto")
        sizes = [len(group.offset) for group in groups]

        def sites(m: tf.Tensor, v: tf.Tensor) -> tuple:
            with tf.GradientTape() as tape:
                tape.watch([m, v])
                parts = zip(tf.split(m, sizes), tf.split(v, sizes), groups)
                value = tf.add_n([tf.reduce_sum(_expectation(*part, how)) for part in parts])
            return value, *tape.gradient(value, [m, v])

        self._sites: Any = Compiled(sites)
        began = time.perf_counter()
        self.at(np.zeros(self.features.shape[1]), np.eye(self.features.shape[1]))
        trace.tracing += time.perf_counter() - began

    def at(self, b: np.ndarray, root: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """The bound in nats, and the derivatives [N] of the sites in their means and variances."""
        projected = self.features @ root
        v = np.sum(projected**2, axis=1) + self.noise
        value, g, h = self._sites(*(tf.constant(part, self.dtype) for part in (self.offset + self.features @ b, v)))
        moment = b**2 + np.sum(root**2, axis=1)
        divergence = 0.5 * (np.sum(self.gaussian * moment) - len(b))
        free = np.sum(1.0 - self.gaussian)
        volume = np.sum(np.log(np.abs(np.diag(root)))) + 0.5 * free * np.log(2.0 * np.pi)
        return (
            float(value) + self.constant + volume - divergence,
            g.numpy().astype(float),
            h.numpy().astype(float),
        )  # (A2)

    def value_and_gradient(self, b: np.ndarray, root: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """The bound and its gradient in b [D] and the lower triangle of L [D, D]: (A3)."""
        value, g, h = self.at(b, root)
        d_b = self.features.T @ g - self.gaussian * b
        d_root = 2.0 * self.features.T @ (h[:, None] * (self.features @ root)) - self.gaussian[:, None] * root
        return value, d_b, np.tril(d_root) + np.diag(1.0 / np.diag(root))  # (A3)

    def solve(self, tolerance: float, max_evaluations: int) -> GaussianSolution:
        """The optimum, from a narrow q at the prior mean. Points where something overflows are refused."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self._climb(*self._approach(tolerance), tolerance, max_evaluations)

    def _climb(self, b: np.ndarray, root: np.ndarray, tolerance: float, max_evaluations: int) -> GaussianSolution:
        """L-BFGS on b and the lower triangle of L."""
        D = len(b)
        places = np.tril_indices(D)

        def unpacked(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            lower = np.zeros([D, D])
            lower[places] = x[D:]
            return x[:D], lower

        def value_and_gradient(x: np.ndarray) -> tuple[float, np.ndarray]:
            value, d_b, d_root = self.value_and_gradient(*unpacked(x))
            return value, np.concatenate([d_b, d_root[places]])

        low = np.concatenate([np.full(D, -np.inf), np.where(places[0] == places[1], _LEAST, -np.inf)])
        start = np.concatenate([b, root[places]])
        best, bound, _ = climb(value_and_gradient, start, self.trace, tolerance, max_evaluations, low)
        return GaussianSolution(*unpacked(best), bound)

    def _approach(self, tolerance: float) -> tuple[np.ndarray, np.ndarray]:
        """Damped steps of the natural parameters, as long as they raise the bound."""
        D = self.features.shape[1]
        precision = np.diag(self.gaussian + D * np.mean(self.features**2, axis=0) + 1e-3)
        first = np.zeros(D)
        b, root = moments_of(first, precision)
        value, g, h = self.at(b, root)
        self.trace.append(value, 1)
        for _ in range(_STEPS):
            sites = np.maximum(-2.0 * h, 0.0)
            new_precision = np.diag(self.gaussian) + self.features.T @ (sites[:, None] * self.features)
            new_first = self.features.T @ (g + sites * (self.features @ b))
            found, rho = None, 1.0
            for _ in range(_HALVINGS):
                pair = (1.0 - rho) * first + rho * new_first, (1.0 - rho) * precision + rho * new_precision
                found = self._try(*pair, value)
                if found is not None:
                    break
                rho *= 0.5
            if found is None:
                break
            (first, precision), (b, root, new_value, g, h) = pair, found
            self.trace.append(new_value, round(1.0 - math.log2(rho)))
            gain, value = new_value - value, new_value
            if gain < tolerance:
                break
        return b, root

    def _try(self, first: np.ndarray, precision: np.ndarray, floor: float) -> tuple | None:
        """The moments, bound and derivatives where the bound is above `floor`."""
        try:
            b, root = moments_of(first, precision)
        except np.linalg.LinAlgError:
            return None
        value, g, h = self.at(b, root)
        good = np.isfinite(value) and value > floor and np.all(np.isfinite(g)) and np.all(np.isfinite(h))
        return (b, root, value, g, h) if good else None


def moments_of(first: np.ndarray, precision: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean [D] and the lower root [D, D] of the covariance, from the natural parameters [D] and [D, D]."""
    covariance = np.linalg.inv(precision)
    return covariance @ first, np.linalg.cholesky(0.5 * (covariance + covariance.T))


def _expectation(m: tf.Tensor, v: tf.Tensor, group: SiteGroup, how: Integration) -> tf.Tensor:
    """E g(y) under N(m, v), [N] each."""
    root = tf.sqrt(tf.maximum(v, tiny(v)))
    y = Projections(root[:, None], m, tf.zeros([1, 0], m.dtype))
    return integrate(NormalBase(), y, group.site, how)
