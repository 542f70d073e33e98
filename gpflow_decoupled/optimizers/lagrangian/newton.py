"""Projected Newton steps on the multipliers of a subproblem: (V18), within a box.

The Hessian has the blocks K + diag dh*/dalpha and 1/2 V * V + diag sigma_k dsigma*/dlambda, and diag dh*/dlambda between
them; `linalg.coupled` solves it a block at a time.
"""

from __future__ import annotations

__all__ = ["MARGIN", "Box", "box_of", "covariance", "newton_direction", "newton_solve", "newton_step", "round_off"]

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from ...likelihoods import SiteLoss
from ...linalg.coupled import coupled_solve
from ...linalg.coupled_roots import coupled_solve_of_roots
from ...linalg.triangular import lower_root_gram
from .dual import DualPoint, DualProblem, Marginals
from .site_maximiser import Subproblem

MARGIN = 1e-10
"""Of the width of S, or of 1 where it is wider: how far alpha stays inside."""
_NEAREST = 0.99
"""Share of the way to a bound that one step may go."""
_SUFFICIENT = 1e-4
_TINY = 1e-9
"""Least lambda v with six digits of V in B^-1."""
_MAX_HALVINGS = 40


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
    """S [N, L] with a margin of `share` of its width, or of 1 where it is wider: section 7."""
    lower, upper = tf.convert_to_tensor(loss.lower), tf.convert_to_tensor(loss.upper)
    width = tf.minimum(upper - lower, 1.0)
    return lower + share * width, upper - share * width


def newton_direction(
    problem: DualProblem, sub: Subproblem, at: Marginals, point: DualPoint, box: Box
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The step of alpha and lam [N, L] on the free set, and whether its Hessian (V18) was positive definite.

    2 N^3 a latent; in the weight form 3 N p^2 in each of some ten iterations, and N p memory.
    """
    free = (
        _free(at.alpha, point.g_alpha, box.alpha_low, box.alpha_high),
        _free(at.lam, point.g_lam, box.lam_low, box.lam_high),
    )
    sites, weight = point.sites, problem.basis.form == "weight"
    solve_system = coupled_solve_of_roots if weight else coupled_solve
    steps = solve_system(
        problem.prior,
        tf.transpose(sites.d_h_d_alpha),
        problem.basis.root(problem.prior, at.state) if weight else 0.5 * tf.square(covariance(problem, at)),
        tf.transpose(sub.sigma * sites.d_s_d_lam),
        tf.transpose(sites.d_h_d_lam),
        -tf.transpose(point.g_alpha),
        -tf.transpose(point.g_lam),
        (tf.transpose(free[0]), tf.transpose(free[1])),
    )  # (V18)
    return tf.transpose(steps[0]), tf.transpose(steps[1]), steps[2]


def covariance(problem: DualProblem, at: Marginals) -> tf.Tensor:
    """V [L, N, N] of the function form for a Newton step: to six digits from B^-1 where no lambda v is tiny, N^3 / 3."""
    basis, state = problem.basis, at.state

    def from_inverse() -> tf.Tensor:
        scale = 1.0 / state.scale
        V = -scale[:, :, None] * lower_root_gram(state.inverse) * scale[:, None, :]
        return tf.linalg.set_diag(V, tf.transpose(state.variance))

    fits = tf.reduce_all(at.lam * state.variance > _TINY)
    return tf.cond(fits, from_inverse, lambda: basis.covariance(problem.prior, state))


def _free(value: tf.Tensor, gradient: tf.Tensor, low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
    """Not at a bound that the descent would cross."""
    near = 1e-9 * tf.minimum(high - low, 1.0)
    stuck = ((value - low <= near) & (gradient > 0.0)) | ((high - value <= near) & (gradient < 0.0))
    return tf.logical_not(stuck)


def newton_step(value: tf.Tensor, step: tf.Tensor, low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
    """The value [N, L] after a step [N, L], at most 99 % of the way to each bound."""
    new = value + step
    return tf.clip_by_value(new, value - _NEAREST * (value - low), value + _NEAREST * (high - value))


def newton_solve(
    problem: DualProblem,
    sub: Subproblem,
    at: Marginals,
    point: DualPoint,
    box: Box,
    finished: Callable[[Marginals, DualPoint], bool],
    direction: Callable[..., Any],
    max_steps: int = 50,
) -> tuple[Marginals, DualPoint, int]:
    """Newton steps with Armijo's rule on D_k until `finished`; the last point, and how many steps were taken.

    :param at: where to begin, alpha and lam [N, L] in the box, and `point` the subproblem there.
    :param direction: `newton_direction`, compiled.
    """
    for step in range(max_steps):
        if finished(at, point):
            return at, point, step
        p_alpha, p_lam, ok = direction(sub, at, point, box)
        if not ok:
            return at, point, step
        found = _line_search(problem, sub, at, point, box, (p_alpha, p_lam))
        if found is None:
            return at, point, step
        fell = float(point.dual) - float(found[1].dual)
        at, point = found
        if fell <= round_off(point):
            return at, point, step + 1
    return at, point, max_steps


def round_off(point: DualPoint) -> float:
    """Change of D_k, in nats, that says nothing."""
    return 1e-14 * (1.0 + abs(float(point.dual)))


def _line_search(
    problem: DualProblem, sub: Subproblem, at: Marginals, point: DualPoint, box: Box, steps: tuple
) -> tuple[Marginals, DualPoint] | None:
    """The first of 1, 1/2, 1/4, ... of a step that lowers D_k enough; None where none does."""
    length, slack = 1.0, round_off(point)
    for _ in range(_MAX_HALVINGS):
        alpha = newton_step(at.alpha, length * steps[0], box.alpha_low, box.alpha_high)
        lam = newton_step(at.lam, length * steps[1], box.lam_low, box.lam_high)
        slope = tf.reduce_sum(point.g_alpha * (alpha - at.alpha)) + tf.reduce_sum(point.g_lam * (lam - at.lam))
        trial = problem.marginals(alpha, lam)
        if trial.state.ok:
            then = problem.point(sub, trial, *_predicted(at, point, trial, sub))
            if float(then.dual) <= float(point.dual) + _SUFFICIENT * float(slope) + slack:
                return trial, then
        length *= 0.5
    return None


def _predicted(at: Marginals, point: DualPoint, to: Marginals, sub: Subproblem) -> tuple[tf.Tensor, tf.Tensor]:
    """Maximisers [N, L] at `to` by (V17), where they do not move far."""
    sites, d_alpha, d_lam = point.sites, to.alpha - at.alpha, to.lam - at.lam
    p_h = sites.d_h_d_alpha * d_alpha + sites.d_h_d_lam * d_lam
    p_s = sites.d_h_d_lam / sub.sigma * d_alpha + sites.d_s_d_lam * d_lam
    near = (tf.abs(p_h) < 0.5 * sites.sigma + 0.5) & (tf.abs(p_s) < 0.3 * sites.sigma)
    return tf.where(near, sites.h + p_h, sites.h), tf.where(near, sites.sigma + p_s, sites.sigma)
