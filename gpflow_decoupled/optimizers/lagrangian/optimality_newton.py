"""Newton's method on the optimality conditions alpha = f_h, sigma lambda = f_sigma (V11)."""

# Quadratic convergence (Robinson 1972) even where the dual has no minimum: (V27)
#
#   (I + H G)(d_alpha; d_lambda) = (f_h - alpha; f_sigma / sigma - lambda),
#   G = blockdiag(K, 1/2 V * V),
#   H = (f_hh, f_hsigma / sigma; f_hsigma / sigma, (f_sigmasigma - lambda) / sigma^2)

from __future__ import annotations

__all__ = ["stationary_direction", "stationary_step"]

import tensorflow as tf

from .dual import DualProblem, Marginals
from .newton import MARGIN, Direction, box_of, newton_step
from .subproblem import EXCESS

_TRIALS = 3  # steps of 1, 1/2 and 1/4


def stationary_direction(
    problem: DualProblem, at: Marginals
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The step of alpha and lam [N, L] by (V27), and whether its system was positive definite.

    Cost per latent: 2/3 N^3, or in weight space N p^2.
    """
    loss, sigma = problem.loss.expand(at.mean, at.deviation), at.deviation
    H = loss.d_hh, (loss.d_ss - at.lam) / tf.square(sigma), loss.d_hs / sigma
    right = loss.d_h - at.alpha, loss.d_s / sigma - at.lam
    a, b, c, r, s = (tf.transpose(part) for part in (*H, *right))
    d_alpha, d_lam, ok = problem.geometry.solve_stationary(
        problem.prior, at.state, (a, b, c), (r, s)
    )  # (V27)
    return tf.transpose(d_alpha), tf.transpose(d_lam), ok


def stationary_step(
    problem: DualProblem, at: Marginals, direction: Direction, slack: float
) -> Marginals | None:
    """Marginals after the first of 1, 1/2, 1/4 of a step that does not lower the bound, or None.

    `slack` nats of decrease are round-off.
    """
    d_alpha, d_lam, ok = direction(at)
    if not ok:
        return None
    low, high = box_of(problem.loss, MARGIN)
    lowest = -EXCESS * tf.convert_to_tensor(problem.loss.curvature)
    highest = tf.fill(tf.shape(at.lam), tf.constant(float("inf"), at.lam.dtype))
    for halvings in range(_TRIALS):
        length = 0.5**halvings
        alpha = newton_step(at.alpha, length * d_alpha, low, high)
        lam = newton_step(at.lam, length * d_lam, lowest, highest)
        new = problem.marginals(alpha, lam)
        if bool(new.ok) and float(new.bound) >= float(at.bound) - slack:
            return new
    return None
