"""How a subproblem is made of the point it is linearised at: its proximal weights, and the box of its multipliers."""

from __future__ import annotations

__all__ = ["EXCESS", "Policy", "make_subproblem"]

from typing import Any, NamedTuple

import tensorflow as tf

from .dual_newton import MARGIN, Box, box_of
from .dual_objective import DualProblem, Marginals
from .site_maximiser import Subproblem

EXCESS = 1.05
"""The curvature terms over the least that makes sites concave."""
_FASTEST, _REDUCED = -0.5, -0.9


class Policy(NamedTuple):
    """What of a subproblem changes from one outer iteration to the next."""

    theta: float
    accelerate: bool
    """Whether rho is negative in this iteration: section 8."""
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
    expansion: Any = problem.expand(at.mean, at.deviation) if policy.accelerate else None
    if loss.needs_penalty:
        rho = tf.maximum(
            rho, policy.theta / tf.square(at.deviation)
        )  # of the size of 1 / v where lambda is next to zero
    if policy.accelerate:
        reduced = expansion.d_ss - tf.square(expansion.d_hs) / expansion.d_hh
        rho = tf.minimum(0.0, tf.maximum(_FASTEST * lam, _REDUCED * reduced))
    kappa = delta = None
    if policy.curvature and bool(tf.reduce_any(bumpy)):
        rho, kappa = tf.where(bumpy, EXCESS * c, rho), EXCESS * c  # (V20)
    if policy.delta is not None:
        delta = tf.fill(tf.shape(lam), tf.constant(policy.delta, lam.dtype))
    low, high = box_of(loss, MARGIN)
    lowest = tf.where(rho < 0.0, -(1.0 - 1e-3) * rho, tf.zeros_like(rho))
    lowest = tf.where(bumpy, -rho * (1.0 - 1e-9), lowest) if kappa is not None else lowest
    highest = tf.fill(tf.shape(lam), tf.constant(float("inf"), lam.dtype))
    if policy.radius < float("inf"):
        reach = policy.radius * (1.0 + tf.abs(lam))
        lowest, highest = tf.maximum(lowest, lam - reach), lam + reach
    return Subproblem(at.mean, at.deviation, rho, kappa, delta), Box(low, high, lowest, highest)
