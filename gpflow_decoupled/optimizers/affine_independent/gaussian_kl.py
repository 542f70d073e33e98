"""The best Gaussian q, by steps (C9) and L-BFGS."""

from __future__ import annotations

__all__ = ["GaussianProblem", "GaussianSolution", "expected_sites", "moments_of"]

import math
import time
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ...compilation import Compiled
from ...distributions import NormalBase
from ...expectations.projections import Projections, tiny
from ...expectations.site_integrals import Integration, SiteGroup, integrate
from .affine_climb import climb
from .affine_result import StageRecord

_STEPS = 40  # (C9), at most; L-BFGS goes on from there
_HALVINGS = 8  # of one step
_LEAST_DIAGONAL = 1e-10
"""Lower limit of L's diagonal."""


class GaussianSolution(NamedTuple):
    """A Gaussian q and its bound."""

    b: np.ndarray
    """The mean [D]."""
    root: np.ndarray
    """A root [D, D] of the covariance; lower triangular if `coordinates` is None."""
    bound: float
    """In nats."""
    coordinates: np.ndarray | None = None
    """Values [n] of A's variables, for a structure that cannot represent every covariance."""


class GaussianProblem:
    """The bound of a Gaussian q in its mean b and root L: (A2) with A = L and normal v.

    Features of the sites are [N, D]; `gaussian` [D] is 1 for a Gaussian prior, 0 where the prior is
    a site.

    :param compile: False is faster for one evaluation.
    """

    def __init__(
        self,
        groups: list[SiteGroup],
        gaussian: npt.ArrayLike,
        constant: float,
        integration: Integration,
        compile: bool = True,
    ) -> None:
        self.gaussian, self.constant = np.asarray(gaussian), constant
        self.dtype = groups[0].features.dtype
        self.features = np.concatenate([group.features.numpy() for group in groups]).astype(float)
        self.offset = np.concatenate([group.offset.numpy() for group in groups])
        noise = [
            np.zeros(len(group.offset)) if group.noise is None else group.noise.numpy()
            for group in groups
        ]
        self.noise = np.concatenate(noise)
        integration = integration._replace(route="auto")
        sizes = [len(group.offset) for group in groups]

        def sites(m: tf.Tensor, v: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            with tf.GradientTape() as tape:
                tape.watch([m, v])
                parts = zip(tf.split(m, sizes), tf.split(v, sizes), groups)
                value = tf.add_n(
                    [tf.reduce_sum(expected_sites(*part, integration)) for part in parts]
                )
            return value, *tape.gradient(value, [m, v])

        self._sites = Compiled(sites) if compile else sites
        began = time.perf_counter()
        self.at(np.zeros(self.features.shape[1]), np.eye(self.features.shape[1]))
        self.tracing_seconds = time.perf_counter() - began
        """Seconds until the compiled expectations had run once."""

    def at(self, b: np.ndarray, root: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """The bound in nats, and the sites' derivatives [N] in means and variances of f."""
        projected = self.features @ root
        v = np.sum(projected**2, axis=1) + self.noise
        value, g, h = self._sites(
            *(tf.constant(part, self.dtype) for part in (self.offset + self.features @ b, v))
        )
        moment = b**2 + np.sum(root**2, axis=1)
        divergence = 0.5 * (np.sum(self.gaussian * moment) - len(b))
        free = np.sum(1.0 - self.gaussian)
        volume = np.sum(np.log(np.abs(np.diag(root)))) + 0.5 * free * np.log(2.0 * np.pi)
        bound = float(value) + self.constant + volume - divergence  # (A2)
        return bound, g.numpy().astype(float), h.numpy().astype(float)

    def value_and_gradient(
        self, b: np.ndarray, root: np.ndarray
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """The bound and its gradient in b [D] and the lower triangle of L [D, D]: (A3)."""
        value, g, h = self.at(b, root)
        d_b = self.features.T @ g - self.gaussian * b
        d_root = (
            2.0 * self.features.T @ (h[:, None] * (self.features @ root))
            - self.gaussian[:, None] * root
        )
        return value, d_b, np.tril(d_root) + np.diag(1.0 / np.diag(root))  # (A3)

    def solve(
        self, tolerance: float, max_evaluations: int, record: StageRecord
    ) -> GaussianSolution:
        """Find the optimum, from a narrow q at the prior mean."""
        # points where something overflows are refused
        with np.errstate(over="ignore", invalid="ignore"):
            b, root = self._approach(tolerance, record)
            return self._climb(b, root, tolerance, max_evaluations, record)

    def at_sites(self, nu: np.ndarray, tau: np.ndarray) -> GaussianSolution:
        """The prior times sites exp(nu f - tau f^2 / 2), f without offset, both [N]."""
        precision = np.diag(self.gaussian) + self.features.T @ (tau[:, None] * self.features)
        b, root = moments_of(self.features.T @ nu, precision)
        return GaussianSolution(b, root, self.at(b, root)[0])

    def start_moments(self, rows: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance of f at `solve`'s start, first `rows` sites, [rows, 1] each."""
        b, root = moments_of(*self._start())
        mean, variance = (
            self.offset + self.features @ b,
            np.sum((self.features @ root) ** 2, axis=1) + self.noise,
        )
        return tuple(tf.constant(part[:rows, None], self.dtype) for part in (mean, variance))

    def _start(self) -> tuple[np.ndarray, np.ndarray]:
        D = self.features.shape[1]  # no expectation overflows where q is so narrow
        return np.zeros(D), np.diag(self.gaussian + D * np.mean(self.features**2, axis=0) + 1e-3)

    def _climb(
        self,
        b: np.ndarray,
        root: np.ndarray,
        tolerance: float,
        max_evaluations: int,
        record: StageRecord,
    ) -> GaussianSolution:
        D = len(b)
        places = np.tril_indices(D)

        def unpacked(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            lower = np.zeros([D, D])
            lower[places] = x[D:]
            return x[:D], lower

        def value_and_gradient(x: np.ndarray) -> tuple[float, np.ndarray]:
            value, d_b, d_root = self.value_and_gradient(*unpacked(x))
            return value, np.concatenate([d_b, d_root[places]])

        on_diagonal = places[0] == places[1]
        low = np.concatenate([np.full(D, -np.inf), np.where(on_diagonal, _LEAST_DIAGONAL, -np.inf)])
        start = np.concatenate([b, root[places]])
        best, bound, _ = climb(value_and_gradient, start, record, tolerance, max_evaluations, low)
        return GaussianSolution(*unpacked(best), bound)

    def _approach(self, tolerance: float, record: StageRecord) -> tuple[np.ndarray, np.ndarray]:
        """Take steps (C9) while they raise the bound; return mean [D] and root [D, D]."""
        first, precision = self._start()
        b, root = moments_of(first, precision)
        value, g, h = self.at(b, root)
        record(value, 1)
        for _ in range(_STEPS):
            # 1) each site as a Gaussian, of which negative precisions are clipped
            sites = np.maximum(-2.0 * h, 0.0)
            # 2) the natural parameters of the prior times these sites
            new_precision = np.diag(self.gaussian) + self.features.T @ (
                sites[:, None] * self.features
            )
            new_first = self.features.T @ (g + sites * (self.features @ b))
            # 3) a step towards them, which is halved until the bound rises
            found, rho = None, 1.0
            for _ in range(_HALVINGS):
                pair = (
                    (1.0 - rho) * first + rho * new_first,
                    (1.0 - rho) * precision + rho * new_precision,
                )  # (C9)
                found = self._try(*pair, value)
                if found is not None:
                    break
                rho *= 0.5
            if found is None:
                break
            (first, precision), (b, root, new_value, g, h) = pair, found
            record(new_value, round(1.0 - math.log2(rho)))
            gain, value = new_value - value, new_value
            if gain < tolerance:
                break
        return b, root

    def _try(
        self, first: np.ndarray, precision: np.ndarray, floor: float
    ) -> tuple[np.ndarray, np.ndarray, float, np.ndarray, np.ndarray] | None:
        """Mean, root, bound, derivatives at natural parameters; None unless above `floor`."""
        try:
            b, root = moments_of(first, precision)
        except np.linalg.LinAlgError:  # no covariance: the caller halves the step
            return None
        value, g, h = self.at(b, root)
        good = (
            np.isfinite(value)
            and value > floor
            and np.all(np.isfinite(g))
            and np.all(np.isfinite(h))
        )
        return (b, root, value, g, h) if good else None


def moments_of(first: np.ndarray, precision: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean [D] and lower root [D, D] of the covariance, from V^-1 m [D] and V^-1 [D, D]."""
    covariance = np.linalg.inv(precision)
    return covariance @ first, np.linalg.cholesky(0.5 * (covariance + covariance.T))


def expected_sites(
    m: tf.Tensor, v: tf.Tensor, group: SiteGroup, integration: Integration
) -> tf.Tensor:
    """E g_n(y_n) [N] in nats for y_n ~ N(m_n, v_n), m and v [N]."""
    root = tf.sqrt(tf.maximum(v, tiny(v)))
    y = Projections(root[:, None], m, tf.zeros([1, 0], m.dtype))
    return integrate(NormalBase(), y, group.site, integration)
