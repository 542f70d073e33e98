"""The dual of a subproblem."""

# With site losses f, and h_k, sigma_k the point where the subproblem touches the bound:
#
#   D_k = -1/2 log|C| + 1/2 alpha^T K alpha - m_0^T alpha + sum f^k*                (V14)
#   Q_k = -KL - sum [f(m, s_k) + rho / 2 (s_k - sigma_k)^2 + kappa / 2 (m - h_k)^2],
#         s_k = sigma_k / 2 + v / (2 sigma_k)                                       (V13)
#
# For log-concave sites D_k >= max Q_k and Q_k <= F, the bound.

from __future__ import annotations

__all__ = ["DualPoint", "DualProblem", "Marginals"]

import math
from collections.abc import Callable
from typing import NamedTuple, ParamSpec, TypeVar

import tensorflow as tf

from ...bases.dual import DualState
from ...compilation import Compiled
from ...likelihoods import Maximiser
from ...models import LCLGP
from .field_dual import FieldMultipliers
from .site_maximiser import Subproblem, maximise

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Marginals(NamedTuple):
    """Marginals of q at some multipliers, and the bound."""

    alpha: tf.Tensor
    """[N, L]"""
    lam: tf.Tensor
    """[N, L]"""
    state: DualState
    mean: tf.Tensor
    """Means of q(f) at the observations, with the mean function [N, L]."""
    deviation: tf.Tensor
    """Standard deviations [N, L]."""
    divergence: tf.Tensor
    """KL, [] nats."""
    bound: tf.Tensor
    """F, [] nats (V10)."""
    ok: tf.Tensor
    """[], bool: whether V exists and F is finite."""


class DualPoint(NamedTuple):
    """A subproblem at some multipliers."""

    sites: Maximiser
    dual: tf.Tensor
    """D_k, [] nats; infinite where V does not exist."""
    primal: tf.Tensor
    """Q_k, [] nats."""
    g_alpha: tf.Tensor
    """[N, L]: (V16)"""
    g_lam: tf.Tensor
    """[N, L]: (V16)"""


class DualProblem:
    """The dual of a model's bound, as compiled functions of the multipliers.

    Cost per latent of `marginals`: 2/3 N^3, or N p^2 in weight space; of `point`: a few passes over
    the site losses.
    """

    def __init__(self, model: LCLGP | FieldMultipliers, compile: bool = True) -> None:
        self.model, self.basis, self.compile = model, model.basis, compile
        self.geometry = model.basis.geometry
        self.prior = tf.Variable(self.geometry.prior(model.kernel), trainable=False)
        self.prior_mean = tf.Variable(model.prior_mean(), trainable=False)
        self.loss = model.site_loss()  # reads the likelihood's Parameters whenever it is called
        self.expand = self.compiled(self.loss.expand)
        self.point = self.compiled(self._point)
        self.marginals = self._with_geometry(self._marginals)
        self.with_alpha = self._with_geometry(self._with_alpha)
        self.sweep = self._with_geometry(self._sweep)

    def compiled(self, function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        """Compile the function if `compile` is set."""
        return Compiled(function, reduce_retracing=True) if self.compile else function

    def _with_geometry(self, function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        return self.compiled(function) if self.geometry.in_graphs else function

    def refresh(self) -> None:
        """Read the kernel and the mean function again, without recompilation."""
        self.prior.assign(self.geometry.prior(self.model.kernel))
        self.prior_mean.assign(self.model.prior_mean())

    def _marginals(self, alpha: tf.Tensor, lam: tf.Tensor) -> Marginals:
        """(V7)-(V10) at alpha, lam [N, L]."""
        return self._of_state(self.geometry.state_at(self.prior, alpha, lam))

    def _sweep(self, at: Marginals, share: tf.Tensor) -> Marginals:
        # Gaussian sites of precision lambda and natural mean lambda u - alpha move by `share`;
        # alpha may leave S.
        loss = self.loss.expand(at.mean, at.deviation)
        precision, centred = loss.d_s / at.deviation, at.mean - self.prior_mean
        now, goal = at.lam * centred - at.alpha, precision * centred - loss.d_h
        lam = at.lam + share * (precision - at.lam)
        return self._of_state(
            self.geometry.state_of_sites(self.prior, now + share * (goal - now), lam)
        )  # (V22)

    def _with_alpha(self, at: Marginals, alpha: tf.Tensor) -> Marginals:
        return self._of_state(self.geometry.with_alpha(self.prior, at.state, alpha))

    def _of_state(self, state: DualState) -> Marginals:
        mean, deviation = self.prior_mean + state.mean, tf.sqrt(state.variance)
        divergence = self.basis.prior_kl(state)
        bound = -tf.reduce_sum(self.loss.value(mean, deviation)) - divergence  # (V10)
        ok = state.ok & tf.math.is_finite(bound) & tf.reduce_all(state.variance > 0.0)
        return Marginals(state.alpha, state.lam, state, mean, deviation, divergence, bound, ok)

    def write_best(self, candidates: list[tuple[tf.Tensor, tf.Tensor]]) -> float | None:
        """Write the best of the candidates (alpha, lam) [N, L] to the model; return its bound."""
        found = [self.marginals(alpha, lam) for alpha, lam in candidates]
        best = max(found, key=lambda at: float(at.bound) if bool(at.ok) else -math.inf)
        if not bool(best.ok):
            return None
        self.basis.alpha.assign(best.alpha)
        self.basis.lam.assign(best.lam)
        return float(best.bound)

    def prior_sums(self, mean: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """diag K, sum_j K_nj^2 and t_n (K t)_n, each and `mean` [N, L]; t_n = +-1, n's pull."""
        geometry, prior, shape = self.geometry, self.prior, tf.shape(mean)
        diagonal, squares = (
            tf.broadcast_to(tf.transpose(part), shape)
            for part in (geometry.diagonal(prior), geometry.row_squares(prior))
        )
        t = -tf.sign(self.expand(mean, tf.ones_like(mean)).d_h)
        return diagonal, squares, t * geometry.product(prior, t)

    def _point(self, sub: Subproblem, at: Marginals, h: tf.Tensor, sigma: tf.Tensor) -> DualPoint:
        alpha, lam = at.alpha, at.lam
        sites = maximise(self.loss, sub, alpha, lam, h, sigma)
        centred = at.mean - self.prior_mean
        fit = -0.5 * tf.reduce_sum(alpha * centred) - tf.reduce_sum(self.prior_mean * alpha)
        dual = fit - 0.5 * at.state.log_det + tf.reduce_sum(sites.value)  # (V14)
        variance = at.state.variance
        slack = 2.0 * sub.sigma * sites.sigma - tf.square(sub.sigma) - variance
        # A site that is not log-concave may have no maximum.
        inside = tf.reduce_all((sites.sigma > 0.0) & (sites.d_h_d_alpha > 0.0))
        finite = at.state.ok & tf.math.is_finite(dual) & inside
        infinite = tf.fill([], tf.constant(float("inf"), dual.dtype))
        return DualPoint(
            sites=sites,
            dual=tf.where(finite, dual, infinite),
            primal=self._primal(sub, at),
            g_alpha=sites.h - at.mean,  # (V16)
            g_lam=0.5 * slack,  # (V16)
        )

    def _primal(self, sub: Subproblem, at: Marginals) -> tf.Tensor:
        tangent = 0.5 * (sub.sigma + at.state.variance / sub.sigma)
        moved = tangent - sub.sigma
        losses = self.loss.value(at.mean, tangent) + 0.5 * sub.rho * tf.square(moved)
        if sub.kappa is not None:
            losses += 0.5 * sub.kappa * tf.square(at.mean - sub.h)
        if sub.delta is not None:
            losses += 0.5 * sub.delta * moved**4
        if sub.precision is not None:
            losses += 0.5 * sub.precision * (tf.square(moved) + tf.square(at.mean - sub.h))  # (V31)
        return -tf.reduce_sum(losses) - at.divergence  # (V13)
