"""A subproblem, its weights and its box."""

from __future__ import annotations

__all__ = ["EXCESS", "Policy", "make_subproblem", "more_cautious", "moved_into"]

import math
from typing import NamedTuple

import tensorflow as tf

from ...linalg.coupled import RIDGE
from .dual import DualProblem, Marginals
from .newton import MARGIN, Box, box_of
from .site_maximiser import Subproblem

EXCESS = 1.05
"""Factor of the curvature terms over the least that make sites concave."""
_LARGEST_RIDGE, _GROWTH = 1e11, 100.0
"""Growth of the ridge after Newton steps without progress, to 1e-4 in float64."""
_INSIDE = 1.0 - 1e-6
"""Where multipliers from outside the box are put, as a share of the way to its end."""


class Policy(NamedTuple):
    """Weights: rho penalises moves of the deviations, kappa of the means; delta augments."""

    theta: float
    """rho is theta lambda for a log-concave likelihood."""
    curvature: bool
    """Add the terms (V20) to sites that are not log-concave."""
    delta: float | None
    """Weight of the augmented term, or None."""
    radius: float
    """Delta_k: limit of the move of a lambda, in units of 1 + |lambda|; infinite for none."""
    ridge: float = RIDGE
    """Of Newton steps, in machine epsilons; infinite where L-BFGS replaces them."""


def more_cautious(policy: Policy) -> Policy | None:
    """Return the policy after a refused subproblem; None if no setting is left."""
    if policy.delta is not None:
        return policy._replace(delta=max(1.0, 4.0 * policy.delta))  # the paper's (20)
    if policy.radius < math.inf:
        return policy._replace(radius=0.1 * policy.radius)
    if policy.theta < 1.0:
        return policy._replace(theta=1.0)  # the paper's
    if policy.ridge < _LARGEST_RIDGE:
        return policy._replace(ridge=_GROWTH * policy.ridge)
    return None


def make_subproblem(problem: DualProblem, at: Marginals, policy: Policy) -> tuple[Subproblem, Box]:
    """The subproblem that touches the bound at marginals `at` [N, L], and its box."""
    # For a loss that subtracts Gaussians, rho, kappa and the box of (V31) refer to the loss without
    # them.
    loss, lam, c_0, mu = problem.loss, at.lam, None, None
    if (
        loss.reference is not None
    ):  # the weights below belong to the loss without its Gaussians, (V31)
        loss, c_0, mu = loss.reference
        lam = lam + c_0
    c = tf.convert_to_tensor(loss.curvature) * tf.ones_like(lam)
    bumpy = c > 0.0  # not log-concave
    # 1) The weights.
    rho = policy.theta * tf.maximum(lam, 0.0)
    # rho of the size of 1 / v where lambda is next to zero
    rho = tf.where(loss.penalised, tf.maximum(rho, policy.theta / tf.square(at.deviation)), rho)
    kappa = delta = None
    if policy.curvature and bool(tf.reduce_any(bumpy)):
        rho, kappa = tf.where(bumpy, EXCESS * c, rho), EXCESS * c  # (V20)
    if policy.delta is not None:
        delta = tf.fill(tf.shape(lam), tf.constant(policy.delta, lam.dtype))
    # 2) The box: alpha in S, lambda above -rho where (V20) applies and above 0 elsewhere, and in
    # the trust region.
    low, high = box_of(loss, MARGIN)
    lowest = (
        tf.where(bumpy, -rho * (1.0 - 1e-9), tf.zeros_like(rho))
        if kappa is not None
        else tf.zeros_like(rho)
    )
    if c_0 is not None and mu is not None:
        shift = c_0 * (at.mean - mu)
        low, high, lowest, lam = low - shift, high - shift, lowest - c_0, at.lam  # (V31)
    highest = tf.fill(tf.shape(lam), tf.constant(float("inf"), lam.dtype))
    if policy.radius < math.inf:
        reach = policy.radius * (1.0 + tf.abs(lam))
        lowest, highest = tf.maximum(lowest, lam - reach), lam + reach
    return Subproblem(at.mean, at.deviation, rho, kappa, delta, c_0, mu), Box(
        low, high, lowest, highest
    )


def moved_into(box: Box, sub: Subproblem, problem: DualProblem, at: Marginals) -> Marginals:
    """Marginals at multipliers inside the box, with the weights' means kept as in `at`."""
    # For losses that subtract Gaussians, else unchanged: beta = alpha + c (h_k - mu) of (V31) is
    # scaled by one number, which keeps the weights' means.
    if sub.precision is None or sub.centre is None:
        return at
    shift = sub.precision * (sub.h - sub.centre)
    beta = at.alpha + shift
    end = tf.where(beta > 0.0, box.alpha_high + shift, -(box.alpha_low + shift))
    unlimited = tf.fill(tf.shape(beta), tf.constant(float("inf"), beta.dtype))
    room = tf.where(sub.precision > 0.0, end / tf.maximum(tf.abs(beta), 1e-300), unlimited)
    share = tf.reduce_min(room, axis=0)
    if bool(tf.reduce_all(share >= 1.0)) and bool(tf.reduce_all(at.lam >= box.lam_low)):
        return at
    alpha = tf.where(share >= 1.0, at.alpha, _INSIDE * share * beta - shift)
    return problem.marginals(alpha, tf.maximum(at.lam, box.lam_low))
