"""How a subproblem is made where it touches the bound: its proximal weights, and the box of its multipliers.

The weights decide how far one outer iteration moves. rho penalises moves of the standard deviations, kappa those of the means,
and delta is the extra term of the paper's augmented Lagrangian.
"""

from __future__ import annotations

__all__ = ["EXCESS", "Policy", "make_subproblem"]

from typing import NamedTuple

import tensorflow as tf

from .dual import DualProblem, Marginals
from .newton import MARGIN, Box, box_of
from .site_maximiser import Subproblem

EXCESS = 1.05
"""By what factor the curvature terms exceed the least that makes sites concave."""


class Policy(NamedTuple):
    """What decides the weights of a subproblem; it changes from one outer iteration to the next."""

    theta: float
    """rho is theta lambda where the likelihood is log-concave."""
    curvature: bool
    """Whether sites that are not log-concave get the terms (V20)."""
    delta: float | None
    """Weight of the augmented term; None for none."""
    radius: float
    """Delta_k: how far a lambda may move, as a multiple of 1 + |lambda|; infinite for no trust region."""


def make_subproblem(problem: DualProblem, at: Marginals, policy: Policy) -> tuple[Subproblem, Box]:
    """The subproblem that touches the bound at the marginals `at`, [N, L], and the box of its multipliers."""
    loss, lam = problem.loss, at.lam
    c = tf.convert_to_tensor(loss.curvature) * tf.ones_like(lam)
    bumpy = c > 0.0  # not log-concave
    # 1) The weights.
    rho = policy.theta * tf.maximum(lam, 0.0)
    if loss.needs_penalty:  # rho of the size of 1 / v where lambda is next to zero
        rho = tf.maximum(rho, policy.theta / tf.square(at.deviation))
    kappa = delta = None
    if policy.curvature and bool(tf.reduce_any(bumpy)):
        rho, kappa = tf.where(bumpy, EXCESS * c, rho), EXCESS * c  # (V20)
    if policy.delta is not None:
        delta = tf.fill(tf.shape(lam), tf.constant(policy.delta, lam.dtype))
    # 2) The box: alpha in S, lambda above -rho where (V20) applies and above 0 elsewhere, and in the trust region.
    low, high = box_of(loss, MARGIN)
    lowest = tf.where(bumpy, -rho * (1.0 - 1e-9), tf.zeros_like(rho)) if kappa is not None else tf.zeros_like(rho)
    highest = tf.fill(tf.shape(lam), tf.constant(float("inf"), lam.dtype))
    if policy.radius < float("inf"):
        reach = policy.radius * (1.0 + tf.abs(lam))
        lowest, highest = tf.maximum(lowest, lam - reach), lam + reach
    return Subproblem(at.mean, at.deviation, rho, kappa, delta), Box(low, high, lowest, highest)
