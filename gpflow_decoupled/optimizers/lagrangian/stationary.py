"""Newton's method on the optimality conditions alpha = f_h, sigma lambda = f_sigma, (V11): fast near the solution.

It is the Newton step of a subproblem with rho = -lambda, the sign with which the Lagrangian of Robinson 1972 converges
quadratically: the dual need not have a minimum then, but its Newton system is sound. At the marginals,

    (I + H G)(d_alpha; d_lambda) = (f_h - alpha; f_sigma / sigma - lambda),   G = blockdiag(K, 1/2 V * V),
    H = (f_hh, f_hsigma / sigma; f_hsigma / sigma, (f_sigmasigma - lambda) / sigma^2)                       (V27)
"""

from __future__ import annotations

__all__ = ["stationary_direction", "stationary_step"]

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ...linalg.stationary import stationary_solve
from .dual import DualProblem, Marginals
from .newton import MARGIN, box_of, covariance, newton_step
from .subproblem import EXCESS

_TRIALS = 3


def stationary_direction(problem: DualProblem, at: Marginals) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The step of alpha and lam [N, L] by (V27), and whether its system was positive definite; 2/3 N^3 a latent, or N p^2."""
    loss, sigma = problem.loss.expand(at.mean, at.deviation), at.deviation
    H = loss.d_hh, (loss.d_ss - at.lam) / tf.square(sigma), loss.d_hs / sigma
    right = loss.d_h - at.alpha, loss.d_s / sigma - at.lam
    lam, *columns = (tf.transpose(part) for part in (at.lam, *H, *right))
    weight = problem.basis.form == "weight"
    V = problem.basis.root(problem.prior, at.state) if weight else covariance(problem, at)
    x, y, ok = stationary_solve(
        V, lam, (columns[0], columns[1], columns[2]), columns[3], columns[4], root=weight
    )  # (V27)
    return tf.transpose(x), tf.transpose(y), ok


def stationary_step(
    problem: DualProblem, at: Marginals, direction: Callable[..., Any], slack: float
) -> Marginals | None:
    """The marginals after the first of 1, 1/2, 1/4 of a step that does not lower the bound, or None.

    :param direction: `stationary_direction`, compiled. :param slack: a loss, in nats, that is round-off.
    """
    d_alpha, d_lam, ok = direction(at)
    if not ok:
        return None
    low, high = box_of(problem.loss, MARGIN)
    lowest, highest = (
        -EXCESS * tf.convert_to_tensor(problem.loss.curvature),
        tf.fill(tf.shape(at.lam), tf.constant(float("inf"), at.lam.dtype)),
    )
    for halvings in range(_TRIALS):
        length = 0.5**halvings
        alpha = newton_step(at.alpha, length * d_alpha, low, high)
        lam = newton_step(at.lam, length * d_lam, lowest, highest)
        new = problem.marginals(alpha, lam)
        if bool(new.ok) and float(new.bound) >= float(at.bound) - slack:
            return new
    return None
