"""The bound with multipliers of M observations alone."""

# For any observation n, with B = I + Lambda^1/2 K_SS Lambda^1/2, (V26)
#
#   KL = 1/2 [log|B| - lambda^T v_S + alpha^T K_SS alpha]
#   m_n = m_0 - K_nS alpha,   v_n = K_nn - K_nS (K_SS + Lambda^-1)^-1 K_Sn
#
# With V_nS = K_nS - K_nS (K_SS + Lambda^-1)^-1 K_SS the gradient is (V21), summed over all n.

from __future__ import annotations

__all__ = ["SubsetBound", "SubsetPoint", "SubsetState"]

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.inducing_variables import InducingPoints, SharedIndependentInducingVariables

from ...compilation import Compiled
from ...covariances.latents import gram_to_data, positive_gram, positive_variances, prior_variance
from ...likelihoods import Expansion, site_loss
from ...linalg.cholesky import add_jitter, cholesky
from ...linalg.gaussians import apply_per_latent
from ...linalg.triangular import solve
from ...models import LCLGP

_BLOCK = 1024
"""Observations in a block of a pass over all data."""


class SubsetState(NamedTuple):
    """The subset at some multipliers: terms for the moments elsewhere, and the divergence."""

    alpha: tf.Tensor
    """[M, L]"""
    chol: tf.Tensor
    """L_B [L, M, M]"""
    scale: tf.Tensor
    """Lambda^1/2 [L, M, 1]"""
    half: tf.Tensor
    """L_B^-1 Lambda^1/2 K_SS [L, M, M]"""
    divergence: tf.Tensor
    """KL, [] nats"""
    g_alpha: tf.Tensor
    """Gradient of -KL in alpha [M, L]"""
    g_lam: tf.Tensor
    """Gradient of -KL in lambda [M, L]"""
    ok: tf.Tensor
    """[], bool"""


class SubsetPoint(NamedTuple):
    """The bound and its gradient."""

    bound: tf.Tensor
    """[] nats; NaN where undefined."""
    g_alpha: tf.Tensor
    """[M, L]"""
    g_lam: tf.Tensor
    """[M, L]"""


class SubsetBound:
    """The bound F as a function of a subset's multipliers, on all data or estimated from a batch.

    Multipliers are [M, L]; estimates are unbiased. Cost per latent for a batch of B:
    M^3 + 3 B M^2, memory M^2 + B M.
    """

    def __init__(self, model: LCLGP, rows: np.ndarray, compile: bool = True) -> None:
        self.model, self.rows = model, rows
        self.X, self.Y = model.data
        self.num_data, self.num_latents = int(self.X.shape[0]), model.num_latent_gps
        inducing = InducingPoints(tf.gather(self.X, rows))
        self.points = SharedIndependentInducingVariables(inducing)
        self.K = positive_gram(model.kernel, self.points)
        self.variances = positive_variances(prior_variance(model.kernel, self.X, False))
        self._head = Compiled(self.state) if compile else self.state
        self._part = Compiled(self.part, reduce_retracing=True) if compile else self.part

    def evaluate(self, alpha: tf.Tensor, lam: tf.Tensor) -> SubsetPoint:
        """F on all data, in blocks, at alpha and lam [M, L], lam >= 0."""
        state = self._head(alpha, lam)
        losses, g_alpha, g_lam = (
            sum(terms) for terms in zip(*(self._part(state, b) for b in self._blocks()))
        )
        return _point(state, losses, g_alpha, g_lam)

    def estimate(self, alpha: tf.Tensor, lam: tf.Tensor, batch: tf.Tensor) -> SubsetPoint:
        """Unbiased estimate of F and its gradient from rows [B], with losses times N / B."""
        state = self.state(alpha, lam)
        weight = tf.cast(self.num_data, alpha.dtype) / tf.cast(tf.shape(batch)[0], alpha.dtype)
        return _point(state, *(weight * term for term in self.part(state, batch)))

    def state(self, alpha: tf.Tensor, lam: tf.Tensor) -> SubsetState:
        """(V26) for the subset at alpha and lam [M, L]; M^3 per latent."""
        columns = tf.transpose(lam)
        scale = tf.sqrt(columns)[:, :, None]
        B = scale * self.K * tf.linalg.matrix_transpose(scale)
        chol, ok = cholesky(tf.linalg.set_diag(B, tf.linalg.diag_part(B) + 1.0))
        half = solve(chol, scale * self.K)
        V = self.K - tf.matmul(half, half, transpose_a=True)
        K_alpha = apply_per_latent(self.K, alpha)
        log_det = 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(chol)))
        divergence = 0.5 * (
            log_det
            - tf.reduce_sum(columns * tf.linalg.diag_part(V))
            + tf.reduce_sum(alpha * K_alpha)
        )  # (V26)
        g_lam = -0.5 * tf.transpose(tf.linalg.matvec(tf.square(V), columns))  # (V21)
        return SubsetState(alpha, chol, scale, half, divergence, -K_alpha, g_lam, ok)

    def part(self, state: SubsetState, batch: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Sum of losses of rows [B], and its negative gradients in alpha and lam [M, L]."""
        K, T, mean, variance = self._moments(state, batch)
        sigma = tf.sqrt(variance)
        loss = self._expand(batch, mean, sigma)
        V = K - tf.matmul(state.half, T, transpose_a=True)
        gamma = tf.transpose(loss.d_s / sigma)
        g_lam = 0.5 * tf.transpose(tf.linalg.matvec(tf.square(V), gamma))  # (V21)
        return tf.reduce_sum(loss.value), apply_per_latent(K, loss.d_h), g_lam

    def precision(self, alpha: tf.Tensor, lam: tf.Tensor) -> tf.Tensor:
        """Cholesky factor [L, M, M] of F's negative Hessian in alpha; N M^2 + M^3."""
        state = self._head(alpha, lam)
        total = self.K + sum(self.spread(state, b) for b in self._blocks())
        return cholesky(add_jitter(total)).chol

    def spread(self, state: SubsetState, batch: tf.Tensor) -> tf.Tensor:
        """K_SB diag(f_hh) K_BS of rows [B], [L, M, M]."""
        K, _, mean, variance = self._moments(state, batch)
        weights = tf.transpose(self._expand(batch, mean, tf.sqrt(variance)).d_hh)
        return tf.matmul(tf.maximum(weights, 0.0)[:, None] * K, K, transpose_b=True)

    def precisions(self) -> tf.Tensor:
        """gamma = f_sigma / sigma of the subset [M, L] under the prior: a first lambda."""
        sigma = tf.transpose(tf.sqrt(tf.linalg.diag_part(self.K))) * tf.ones(
            [1, self.num_latents], self.K.dtype
        )
        return self._expand(self.rows, self._prior_mean(self.rows), sigma).d_s / sigma

    def _moments(
        self, state: SubsetState, batch: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """K_SB [G, M, B], L_B^-1 Lambda^1/2 K_SB [L, M, B], mean and variance [B, L]; (V26)."""
        X = tf.gather(self.X, batch)
        own = tf.constant(self.rows)[:, None] == tf.cast(batch, self.rows.dtype)
        # between two arrays of inputs a kernel such as White does not know which rows are one
        # observation
        K = tf.where(
            own,
            tf.linalg.diag_part(self.K)[..., None],
            gram_to_data(self.model.kernel, self.points, X),
        )
        T = solve(state.chol, state.scale * K)
        mean = self._prior_mean(batch) - apply_per_latent(K, state.alpha, adjoint=True)
        variance = tf.gather(self.variances, batch, axis=-1) - tf.reduce_sum(
            tf.square(T), axis=-2
        )  # (V26)
        return K, T, mean, tf.transpose(variance)

    def _prior_mean(self, batch: tf.Tensor) -> tf.Tensor:
        X = tf.gather(self.X, batch)
        return tf.broadcast_to(
            tf.cast(self.model.mean_function(X), X.dtype), [tf.shape(X)[0], self.num_latents]
        )

    def _expand(self, batch: tf.Tensor, mean: tf.Tensor, sigma: tf.Tensor) -> Expansion:
        return site_loss(self.model.likelihood, tf.gather(self.Y, batch)).expand(mean, sigma)

    def _blocks(self) -> Iterator[tf.Tensor]:
        for first in range(0, self.num_data, _BLOCK):
            yield tf.range(first, min(first + _BLOCK, self.num_data))


def _point(
    state: SubsetState, losses: tf.Tensor, g_alpha: tf.Tensor, g_lam: tf.Tensor
) -> SubsetPoint:
    bound = -losses - state.divergence
    bound = tf.where(state.ok, bound, tf.constant(float("nan"), bound.dtype))
    return SubsetPoint(bound, state.g_alpha + g_alpha, state.g_lam + g_lam)
