"""Projected Newton steps within a box (V18)."""

from __future__ import annotations

__all__ = [
    "MARGIN",
    "Box",
    "box_of",
    "newton_direction",
    "newton_solve",
    "newton_step",
    "round_off",
]

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ...likelihoods import SiteLoss
from ...linalg.coupled import RIDGE
from .dual import DualPoint, DualProblem, Marginals
from .site_maximiser import Subproblem

MARGIN = 1e-10
"""Distance of alpha from the ends of S, as a share of its width, or of 1 if wider."""
_ROUND_OFF = 4.0
"""Smallest such distance, in machine epsilons of the end of S."""
_NEAREST = 0.99
"""Largest share of the distance to a bound in one step."""
_SUFFICIENT = 1e-4
"""Armijo's rule: share of the predicted decrease that a step must achieve."""
_MAX_HALVINGS = 40  # in the line search

Direction = Callable[..., tuple[tf.Tensor, tf.Tensor, tf.Tensor]]
"""Returns steps of alpha and lam [N, L], and whether the Hessian was positive definite []."""


class Box(NamedTuple):
    """Bounds of the multipliers, [N, L] each."""

    alpha_low: tf.Tensor
    alpha_high: tf.Tensor
    lam_low: tf.Tensor
    lam_high: tf.Tensor

    def clip(self, alpha: tf.Tensor, lam: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The nearest multipliers [N, L] in the box."""
        return (
            tf.clip_by_value(alpha, self.alpha_low, self.alpha_high),
            tf.clip_by_value(lam, self.lam_low, self.lam_high),
        )


def box_of(loss: SiteLoss, share: float = MARGIN) -> tuple[tf.Tensor, tf.Tensor]:
    """Ends [N, L] of S, the range of f_h, moved inwards by a share of its width (at most 1)."""
    # By at least 4 machine epsilons, or alpha could be rounded to an end.
    lower, upper = tf.convert_to_tensor(loss.lower), tf.convert_to_tensor(loss.upper)
    distance, epsilon = (
        share * tf.minimum(upper - lower, 1.0),
        np.finfo(lower.dtype.as_numpy_dtype).eps,
    )

    def inwards(end: tf.Tensor) -> tf.Tensor:
        return tf.where(
            tf.math.is_finite(end),
            tf.maximum(distance, _ROUND_OFF * epsilon * tf.abs(end)),
            distance,
        )

    return lower + inwards(lower), upper - inwards(upper)


def newton_direction(
    problem: DualProblem,
    sub: Subproblem,
    at: Marginals,
    point: DualPoint,
    box: Box,
    ridge: tf.Tensor | float = RIDGE,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Newton step of alpha and lam [N, L], and whether the Hessian (V18) was positive definite.

    Multipliers stay at a bound that the descent would cross. Cost per latent: 2 N^3, or in weight
    space 3 N p^2 in each of some ten iterations.

    :param ridge: added to the Hessian's diagonal, in machine epsilons of it []. The Hessian is
        singular where no site is curved, as for Laplace noise.
    """
    free = (
        _free(at.alpha, point.g_alpha, box.alpha_low, box.alpha_high),
        _free(at.lam, point.g_lam, box.lam_low, box.lam_high),
    )
    sites = point.sites
    diagonals = sites.d_h_d_alpha, sub.sigma * sites.d_s_d_lam, sites.d_h_d_lam
    a, b, c, r, s, *masks = (
        tf.transpose(part) for part in (*diagonals, -point.g_alpha, -point.g_lam, *free)
    )
    d_alpha, d_lam, ok = problem.geometry.solve_newton(
        problem.prior, at.state, (a, b, c), (r, s), (masks[0], masks[1]), ridge
    )  # (V18)
    return tf.transpose(d_alpha), tf.transpose(d_lam), ok


def _free(value: tf.Tensor, gradient: tf.Tensor, low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
    near = 1e-9 * tf.minimum(high - low, 1.0)
    stuck = ((value - low <= near) & (gradient > 0.0)) | ((high - value <= near) & (gradient < 0.0))
    return tf.logical_not(stuck)


def newton_step(value: tf.Tensor, step: tf.Tensor, low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
    """The value [N, L] after a step [N, L], at most 99 % of the way to each bound."""
    new = value + step
    return tf.clip_by_value(
        new, value - _NEAREST * (value - low), value + _NEAREST * (high - value)
    )


def newton_solve(
    problem: DualProblem,
    sub: Subproblem,
    at: Marginals,
    point: DualPoint,
    box: Box,
    finished: Callable[[Marginals, DualPoint], bool],
    direction: Direction,
    max_steps: int = 50,
) -> tuple[Marginals, DualPoint, int]:
    """Take Newton steps on D_k until `finished`; return the last point and the number of steps.

    The start `at` has alpha and lam [N, L] in the box; `direction` is `newton_direction`, compiled.
    """
    for step in range(max_steps):
        if finished(at, point):
            return at, point, step
        d_alpha, d_lam, ok = direction(sub, at, point, box)
        if not ok:
            return at, point, step
        found = _line_search(problem, sub, at, point, box, (d_alpha, d_lam))
        if found is None:
            return at, point, step
        fell = float(point.dual) - float(found[1].dual)
        at, point = found
        if fell <= round_off(point):
            return at, point, step + 1
    return at, point, max_steps


def round_off(point: DualPoint) -> float:
    """Change of D_k, in nats, that is round-off."""
    return 1e-14 * (1.0 + abs(float(point.dual)))


def _line_search(
    problem: DualProblem,
    sub: Subproblem,
    at: Marginals,
    point: DualPoint,
    box: Box,
    steps: tuple[tf.Tensor, tf.Tensor],
) -> tuple[Marginals, DualPoint] | None:
    length, slack = 1.0, round_off(point)
    for _ in range(_MAX_HALVINGS):
        alpha = newton_step(at.alpha, length * steps[0], box.alpha_low, box.alpha_high)
        lam = newton_step(at.lam, length * steps[1], box.lam_low, box.lam_high)
        slope = tf.reduce_sum(point.g_alpha * (alpha - at.alpha)) + tf.reduce_sum(
            point.g_lam * (lam - at.lam)
        )
        trial = problem.marginals(alpha, lam)
        if trial.state.ok:
            then = problem.point(sub, trial, *_predicted(at, point, trial, sub))
            if float(then.dual) <= float(point.dual) + _SUFFICIENT * float(slope) + slack:
                return trial, then
        length *= 0.5
    return None


def _predicted(
    at: Marginals, point: DualPoint, to: Marginals, sub: Subproblem
) -> tuple[tf.Tensor, tf.Tensor]:
    sites, d_alpha, d_lam = point.sites, to.alpha - at.alpha, to.lam - at.lam
    d_h = sites.d_h_d_alpha * d_alpha + sites.d_h_d_lam * d_lam  # (V17)
    d_s = sites.d_h_d_lam / sub.sigma * d_alpha + sites.d_s_d_lam * d_lam  # (V17)
    near = (tf.abs(d_h) < 0.5 * sites.sigma + 0.5) & (tf.abs(d_s) < 0.3 * sites.sigma)
    return tf.where(near, sites.h + d_h, sites.h), tf.where(near, sites.sigma + d_s, sites.sigma)
