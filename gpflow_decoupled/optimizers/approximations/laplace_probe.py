"""Laplace's approximation at one point; for classes."""

# With p = softmax(m_0 + u) and e the label's unit vector, each observation has slope e - p and
# curvature W = diag(p) - p p^T, which couples its classes, (C73).

from __future__ import annotations

__all__ = ["LaplaceProbe", "class_probe"]

from typing import NamedTuple

import tensorflow as tf

from ...linalg.class_systems import class_mode_step
from ...linalg.gaussians import apply_per_latent
from ...models import CVIGP
from .densities import Densities


class LaplaceProbe(NamedTuple):
    """The sites and psi at one a = K^-1 u, and Newton's next point."""

    log_joint: tf.Tensor
    """[], nats: psi of (C55)."""
    evidence: tf.Tensor
    """[], nats: (C56), the estimate if u is the mode."""
    elbo: tf.Tensor
    """[], nats: of the sites."""
    ok: tf.Tensor
    """[], bool: all of these are finite."""
    nu: tf.Tensor
    """[N, L]: of the sites at u."""
    tau: tf.Tensor
    """[N, L]: of the sites at u."""
    goal: tf.Tensor
    """[N, L]: a after a Newton step."""
    change: tf.Tensor
    """[]: the largest change of u in that step, in standard deviations of q."""
    clipped: tf.Tensor
    """[], int: negative tau replaced by zero."""


def class_probe(model: CVIGP, densities: Densities, K: tf.Tensor, a: tf.Tensor) -> LaplaceProbe:
    """The findings for classes at u = K a, for a [N, C]."""
    u = apply_per_latent(K, a)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(u)
        value = densities.log_prob(u)
    slope, p = tape.gradient(value, u), tf.nn.softmax(densities.offset + u)
    step, log_det, ok = class_mode_step(K, tf.transpose(p), tf.transpose(slope - a))  # (C73)
    goal = a + tf.transpose(step)
    # q has independent latents: the diagonal of W
    tau = p * (1.0 - p)
    state = model.basis.state_at(K, slope + tau * u, tau)
    log_joint = tf.reduce_sum(value) - 0.5 * tf.reduce_sum(a * u)  # (C55)
    moved = apply_per_latent(K, goal) - u
    change = tf.reduce_max(tf.abs(moved) / tf.sqrt(state.variance))
    expected = tf.reduce_sum(model.variational_expectations(state.mean, state.variance, model.data))
    ok &= state.ok & tf.math.is_finite(log_joint) & tf.math.is_finite(change)
    elbo = expected - model.basis.prior_kl(state)
    evidence = log_joint - 0.5 * log_det  # (C73)
    clipped = tf.constant(0)
    return LaplaceProbe(log_joint, evidence, elbo, ok, state.nu, state.tau, goal, change, clipped)
