"""The dual of a subproblem, with its gradient, and the bounds on both sides of it.

    D_k = -1/2 log|C| + 1/2 alpha^T K alpha - m_0^T alpha + sum f^k*                                       (V14)
    Q_k = -KL - sum [f(m, s_k) + rho / 2 (s_k - sigma_k)^2 + kappa / 2 (m - h_k)^2],
          s_k = sigma_k / 2 + v / (2 sigma_k)                                                              (V13)

D_k is at least max Q_k, and Q_k at most the bound F for log-concave sites: D_k - Q_k is the duality gap of the subproblem.
"""

from __future__ import annotations

__all__ = ["DualPoint", "DualProblem", "Marginals"]

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from ...compilation import Compiled
from ...likelihoods import Maximiser
from ...linalg.gaussians import apply_per_latent
from ...models import LCLGP
from .site_maximiser import Subproblem, maximise


class Marginals(NamedTuple):
    """What multipliers say without any subproblem: the marginals of q, and the bound."""

    alpha: tf.Tensor
    """[N, L]"""
    lam: tf.Tensor
    """[N, L]"""
    state: Any
    """A `bases.dual.DualState`."""
    mean: tf.Tensor
    """Of q(f) at the observations, with the mean function [N, L]."""
    deviation: tf.Tensor
    """Standard deviations [N, L]."""
    divergence: tf.Tensor
    """KL, [] nats."""
    bound: tf.Tensor
    """F, [] nats: (V10)."""
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
    """The dual of a model's bound as compiled functions of the multipliers.

    :param model: its kernel matrix and mean function are read here, and again by `refresh`.
    :param compile: False runs them eagerly, which pays for a few steps.

    Cost of `marginals`: 2/3 N^3 a latent, or N p^2 in the weight form; of `point`: a few passes over the site losses.
    """

    def __init__(self, model: LCLGP, compile: bool = True) -> None:
        self.model, self.basis, self.compile = model, model.basis, compile
        self.prior = tf.Variable(model.basis.prior(model.kernel), trainable=False)
        self.prior_mean = tf.Variable(model.prior_mean(), trainable=False)
        self.loss = model.site_loss()  # reads the likelihood's Parameters whenever it is called
        self.expand: Any = self.compiled(self.loss.expand)
        self.marginals: Any = self.compiled(self._marginals)
        self.point: Any = self.compiled(self._point)
        self.with_alpha: Any = self.compiled(self._with_alpha)
        self.sweep: Any = self.compiled(self._sweep)

    def compiled(self, function: Callable[..., Any]) -> Any:
        """The function, compiled unless this problem is not."""
        return Compiled(function, reduce_retracing=True) if self.compile else function

    def refresh(self) -> None:
        """Bring it up to date with the kernel and the mean function; nothing is compiled anew."""
        self.prior.assign(self.basis.prior(self.model.kernel))
        self.prior_mean.assign(self.model.prior_mean())

    def _marginals(self, alpha: tf.Tensor, lam: tf.Tensor) -> Marginals:
        """(V7)-(V10) at alpha, lam [N, L]."""
        return self._of_state(self.basis.state_at(self.prior, alpha, lam))

    def _sweep(self, at: Marginals, share: tf.Tensor) -> Marginals:
        """(V22): the sites move by a share [] towards the derivatives of the losses; alpha may leave S."""
        loss = self.loss.expand(at.mean, at.deviation)
        precision, centred = loss.d_s / at.deviation, at.mean - self.prior_mean
        now, goal = at.lam * centred - at.alpha, precision * centred - loss.d_h
        lam = at.lam + share * (precision - at.lam)
        return self._of_state(self.basis.state_of_sites(self.prior, now + share * (goal - now), lam))  # (V22)

    def _with_alpha(self, at: Marginals, alpha: tf.Tensor) -> Marginals:
        """The marginals with another alpha [N, L]."""
        return self._of_state(self.basis.with_alpha(self.prior, at.state, alpha))

    def _of_state(self, state: Any) -> Marginals:
        mean, deviation = self.prior_mean + state.mean, tf.sqrt(state.variance)
        divergence = self.basis.prior_kl(state)
        bound = -tf.reduce_sum(self.loss.value(mean, deviation)) - divergence  # (V10)
        ok = state.ok & tf.math.is_finite(bound) & tf.reduce_all(state.variance > 0.0)
        return Marginals(state.alpha, state.lam, state, mean, deviation, divergence, bound, ok)

    def prior_sums(self, mean: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Each of diag K, sum_j K_nj^2, t_n (K t)_n [N, L]; t_n = +-1 is where observation n pulls at `mean` [N, L]."""
        prior, shape = self.prior, tf.shape(mean)
        weight = self.basis.form == "weight"
        diagonal = tf.reduce_sum(tf.square(prior), axis=-1) if weight else tf.linalg.diag_part(prior)
        k = tf.broadcast_to(tf.transpose(diagonal), shape)
        t = -tf.sign(self.expand(mean, tf.ones_like(mean)).d_h)
        if weight:
            squares = tf.reduce_sum(prior * tf.matmul(prior, tf.matmul(prior, prior, transpose_a=True)), axis=-1)
            Kt = tf.matmul(prior[0], tf.matmul(prior[0], t, transpose_a=True))
        else:
            squares, Kt = tf.reduce_sum(tf.square(prior), axis=-1), apply_per_latent(prior, t)
        return k, tf.broadcast_to(tf.transpose(squares), shape), t * Kt

    def _point(self, sub: Subproblem, at: Marginals, h: tf.Tensor, sigma: tf.Tensor) -> DualPoint:
        """The subproblem at `at`, its sites maximised from a start h, sigma [N, L]."""
        alpha, lam = at.alpha, at.lam
        sites = maximise(self.loss, sub, alpha, lam, h, sigma)
        centred = at.mean - self.prior_mean
        fit = -0.5 * tf.reduce_sum(alpha * centred) - tf.reduce_sum(self.prior_mean * alpha)
        dual = fit - 0.5 * at.state.log_det + tf.reduce_sum(sites.value)  # (V14)
        variance = at.state.variance
        slack = 2.0 * sub.sigma * sites.sigma - tf.square(sub.sigma) - variance
        inside = tf.reduce_all(
            (sites.sigma > 0.0) & (sites.d_h_d_alpha > 0.0)
        )  # a site that is not log-concave may have no maximum
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
        """(V13)."""
        tangent = 0.5 * (sub.sigma + at.state.variance / sub.sigma)
        moved = tangent - sub.sigma
        losses = self.loss.value(at.mean, tangent) + 0.5 * sub.rho * tf.square(moved)
        if sub.kappa is not None:
            losses += 0.5 * sub.kappa * tf.square(at.mean - sub.h)
        if sub.delta is not None:
            losses += 0.5 * sub.delta * moved**4
        return -tf.reduce_sum(losses) - at.divergence  # (V13)
