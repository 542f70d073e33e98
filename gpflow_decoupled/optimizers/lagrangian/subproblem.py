"""How a subproblem is made of the point it is linearised at: its proximal weights, and the box of its multipliers."""

from __future__ import annotations

__all__ = ["EXCESS", "Policy", "make_subproblem"]

from typing import NamedTuple

import tensorflow as tf

from .dual import DualProblem, Marginals
from .newton import MARGIN, Box, box_of
from .site_maximiser import Subproblem

EXCESS = 1.05
"""The curvature terms over the least that makes sites concave."""


class Policy(NamedTuple):
    """What of a subproblem changes from one outer iteration to the next."""

    theta: float
    curvature: bool
    """Whether sites that are not log-concave get the terms (V20)."""
    delta: float | None
    """Weight of the augmented term; None for none."""
    radius: float
    """Delta_k: how far a lambda may move, as a multiple of 1 + |lambda|; infinite for no trust region."""


def make_subproblem(problem: DualProblem, at: Marginals, policy: Policy) -> tuple[Subproblem, Box]:
    """The subproblem linearised at the marginals `at`, [N, L], and the box of its multipliers."""
    loss, lam = problem.loss, at.lam
    c = tf.convert_to_tensor(loss.curvature) * tf.ones_like(lam)
    bumpy = c > 0.0
    rho = policy.theta * tf.maximum(lam, 0.0)
    if loss.needs_penalty:
        rho = tf.maximum(
            rho, policy.theta / tf.square(at.deviation)
        )  # of the size of 1 / v where lambda is next to zero
    kappa = delta = None
    if policy.curvature and bool(tf.reduce_any(bumpy)):
        rho, kappa = tf.where(bumpy, EXCESS * c, rho), EXCESS * c  # (V20)
    if policy.delta is not None:
        delta = tf.fill(tf.shape(lam), tf.constant(policy.delta, lam.dtype))
    low, high = box_of(loss, MARGIN)
    lowest = tf.where(bumpy, -rho * (1.0 - 1e-9), tf.zeros_like(rho)) if kappa is not None else tf.zeros_like(rho)
    highest = tf.fill(tf.shape(lam), tf.constant(float("inf"), lam.dtype))
    if policy.radius < float("inf"):
        reach = policy.radius * (1.0 + tf.abs(lam))
        lowest, highest = tf.maximum(lowest, lam - reach), lam + reach
    return Subproblem(at.mean, at.deviation, rho, kappa, delta), Box(low, high, lowest, highest)
