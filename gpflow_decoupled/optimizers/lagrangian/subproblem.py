"""A subproblem, its weights and its box."""

from __future__ import annotations

__all__ = [
    "EXCESS", "NOT_FINITE", "Policy", "class_direction", "first_marginals", "inside",
    "isolated_sites", "lbfgs_solve", "make_subproblem", "more_cautious", "moved_into",
    "stationary_direction", "stationary_step",
]  # fmt: skip

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.optimizers import Scipy

from ...diagnostics.failure import unusable_observation
from ...errors import DataError, ModelError, NumericalError
from ...lbfgs import lbfgs_ascent
from ...likelihoods.categorical import CategoricalLoss
from ...linalg.newton_systems import RIDGE, class_solve
from .dual import (
    MARGIN,
    Box,
    Direction,
    DualPoint,
    DualProblem,
    Marginals,
    Subproblem,
    box_of,
    newton_step,
)

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


# ---
# `optimality_newton` for sites that couple a row's latents.


def class_direction(problem: DualProblem, at: Marginals) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The step of alpha and lam [N, C] by (V27) with (V35), and whether its system has a solution.

    Cost per class: 19/6 N^3, of which 3/2 are for V.
    """
    loss = problem.loss
    if not isinstance(loss, CategoricalLoss):
        raise ModelError(f"{type(loss).__name__} has no weights of classes.")
    slopes = loss.expand(at.mean, at.deviation)
    s, E = loss.tilt_and_weight(at.mean, at.deviation)
    right = slopes.d_h - at.alpha, slopes.d_s / at.deviation - at.lam
    V = problem.geometry.covariance(problem.prior, at.state)
    E, D, r, q = (tf.transpose(part) for part in (E, 1.0 - 2.0 * s, *right))
    d_alpha, d_lam, ok = class_solve(tf.convert_to_tensor(problem.prior), V, E, D, r, q)
    return tf.transpose(d_alpha), tf.transpose(d_lam), ok


# ---
# Newton's method on the optimality conditions alpha = f_h, sigma lambda = f_sigma (V11).


# Quadratic convergence (Robinson 1972) even where the dual has no minimum: (V27)
#
#   (I + H G)(d_alpha; d_lambda) = (f_h - alpha; f_sigma / sigma - lambda),
#   G = blockdiag(K, 1/2 V * V),
#   H = (f_hh, f_hsigma / sigma; f_hsigma / sigma, (f_sigmasigma - lambda) / sigma^2)


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


# ---
# A subproblem's dual by L-BFGS-B, for many observations.


_MAX_EVALUATIONS = 2000
_VALUE_TOLERANCE = 1e-15  # so small that `finished` decides


def lbfgs_solve(
    problem: DualProblem,
    sub: Subproblem,
    at: Marginals,
    point: DualPoint,
    box: Box,
    finished: Callable[[Marginals, DualPoint], bool],
) -> tuple[Marginals, DualPoint, int]:
    """Minimise D_k by L-BFGS-B from `at`; return the best point and the number of evaluations."""
    # Coordinates are scaled by the Hessian's diagonal (V18) at the start, where alpha and lam [N,
    # L] lie in the box.
    if finished(at, point):
        return at, point, 0
    scales = _scales(problem, sub, at, point)
    best, count = (at, point), 0

    def value_and_gradient(x: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best, count
        count += 1
        trial = problem.marginals(
            *box.clip(*Scipy.unpack_tensors([at.alpha, at.lam], tf.constant(x * scales)))
        )
        then = problem.point(sub, trial, best[1].sites.h, best[1].sites.sigma)
        if float(then.dual) <= float(best[1].dual):
            best = trial, then
        return -float(then.dual), -scales * _flat(then.g_alpha, then.g_lam)

    low, high = (
        _flat(box.alpha_low, box.lam_low) / scales,
        _flat(box.alpha_high, box.lam_high) / scales,
    )
    start = np.clip(_flat(at.alpha, at.lam) / scales, low, high)
    try:
        lbfgs_ascent(
            value_and_gradient,
            start,
            lambda _: finished(*best),
            _MAX_EVALUATIONS,
            low=low,
            high=high,
            value_tolerance=_VALUE_TOLERANCE,
        )
    except NumericalError:  # D_k is infinite at the start, so that there is no descent
        return at, point, 0
    return *best, count


def _scales(problem: DualProblem, sub: Subproblem, at: Marginals, point: DualPoint) -> np.ndarray:
    """Inverse roots of the diagonal of (V18) [2 N L]."""
    sites = point.sites
    moved = [
        tf.maximum(one, 0.0) for one in (sites.d_h_d_alpha, sub.sigma * sites.d_s_d_lam)
    ]  # negative at a saddle
    alpha = tf.transpose(problem.geometry.diagonal(problem.prior)) + moved[0]
    lam = 0.5 * tf.square(at.state.variance) + moved[1]
    return 1.0 / np.sqrt(_flat(alpha, lam))


def _flat(*parts: tf.Tensor) -> np.ndarray:
    return Scipy.pack_tensors(parts).numpy().astype(float)


# ---
# The first multipliers of a run.


NOT_FINITE = "use a kernel with a smaller variance."
"""Advice for a start at which the bound is not finite."""
_MAX_HALVINGS = 10  # of a site fixed point
_ISOLATED_STEPS = 25  # of Newton's method, at most
_ISOLATED_TOLERANCE = 0.02  # relative change: a start need not be exact
_MODERATE = 5.0
"""Start at the prior mean unless its loss is this much above the site's own, in nats."""
_LEAST_SHARE = 0.05
"""Least share of its prior variance for an observation whose neighbours pull against it."""


def first_marginals(
    problem: DualProblem, sweeps: int, tolerance: float, project: bool = False
) -> tuple[Marginals, tuple[tf.Tensor, tf.Tensor]]:
    """Marginals at the model's multipliers, or at a new start if all are zero.

    :param sweeps: most site fixed points (V22), while each gains more than `tolerance` nats.
    :param project: move the model's multipliers into S.
    :return: the marginals, and (h, sigma) [N, L] from which to maximise the sites.
    """
    basis = problem.basis
    alpha, lam = tf.convert_to_tensor(basis.alpha), tf.convert_to_tensor(basis.lam)
    if bool(tf.reduce_any(alpha != 0.0)) or bool(tf.reduce_any(lam != 0.0)):
        if project:
            alpha = tf.clip_by_value(alpha, *box_of(problem.loss, MARGIN))
            lam = tf.maximum(lam, -tf.convert_to_tensor(problem.loss.curvature))
        at = _checked(problem, alpha, lam)
        return at, (at.mean, at.deviation)
    # 1) The multipliers that suit each observation by itself.
    h, sigma = isolated_sites(problem)
    loss = problem.expand(h, sigma)
    low, high = box_of(problem.loss, MARGIN)
    lam = tf.maximum(loss.d_s / sigma, 0.0)
    isolated, zero = (
        problem.marginals(tf.clip_by_value(loss.d_h, low, high), lam),
        tf.zeros_like(alpha),
    )
    found = [(isolated, (h, sigma))]
    # 2) The same variances with the prior mean, where alpha = 0 lies in S; and from there some site
    # fixed points.
    inner = ((zero > low) & (zero < high)) | _single(zero, low, high)
    centred = bool(tf.reduce_all(inner))
    if sweeps or centred:
        at = problem.with_alpha(isolated, zero)
        found += [(at, (at.mean, at.deviation))] if centred else []
        swept = _swept(problem, at, sweeps, tolerance)
        found += [] if swept is at else [(inside(problem, swept), (swept.mean, swept.deviation))]
    # 3) The best of these.
    best = max(found, key=lambda pair: float(pair[0].bound) if bool(pair[0].ok) else -math.inf)
    if not best[0].ok:
        raise _failure(problem, best[0])
    return best


def inside(problem: DualProblem, at: Marginals) -> Marginals:
    """Marginals with each alpha [N, L] outside S replaced by f_h."""
    low, high = box_of(problem.loss, MARGIN)
    keep = (at.alpha > low) & (at.alpha < high)
    slope = problem.expand(at.mean, at.deviation).d_h
    return problem.with_alpha(at, tf.where(keep, at.alpha, tf.clip_by_value(slope, low, high)))


def isolated_sites(problem: DualProblem) -> tuple[tf.Tensor, tf.Tensor]:
    """Means and standard deviations [N, L] of observations alone, with a prior by neighbours."""
    # c_n = t_n (K t)_n is the prior variance of the mean at n if all pull by t_n = +-1; r_n = sum_j
    # K_nj^2 / K_nn^2 counts neighbours. With k = K_nn, each maximises
    #
    #     -(h - m_0)^2 / (2 c) - (sigma^2 / k - log sigma^2) / (2 r) - f(h, sigma)   over (h, sigma)
    #
    # by Newton's method; exact for observations independent a priori. Cost N^2 per latent.
    mean = problem.prior_mean
    k, squares, pull = problem.prior_sums(mean)
    c = tf.maximum(pull, _LEAST_SHARE * k)
    r = squares / tf.square(k)
    h, sigma = _first_point(problem, k)
    for _ in range(_ISOLATED_STEPS):
        e = problem.expand(h, sigma)
        g_h = (mean - h) / c - e.d_h
        g_s = 1.0 / (r * sigma) - sigma / (k * r) - e.d_s
        hh, hs = 1.0 / c + tf.maximum(e.d_hh, 0.0), e.d_hs
        ss = 1.0 / (k * r) + 1.0 / (r * sigma**2) + tf.maximum(e.d_ss, 0.0)
        det = hh * ss - tf.square(hs)
        convex = det > 1e-8 * hh * ss  # where it is not, h and sigma move each by itself
        det, hs = tf.where(convex, det, hh * ss), tf.where(convex, hs, tf.zeros_like(hs))
        p_h, p_s = (ss * g_h - hs * g_s) / det, (hh * g_s - hs * g_h) / det
        reach = 10.0 * (1.0 + sigma)
        h, new = (
            h + tf.clip_by_value(p_h, -reach, reach),
            tf.clip_by_value(sigma + p_s, sigma / 3.0, 3.0 * sigma),
        )
        moved = tf.reduce_max(tf.maximum(tf.abs(p_h) / reach, tf.abs(new - sigma) / sigma))
        sigma = new
        if float(moved) < _ISOLATED_TOLERANCE:
            break
    return h, sigma


def _first_point(problem: DualProblem, k: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    # Where the loss there far exceeds the site's least, its preferred point and sigma at most 1.
    mean = problem.prior_mean
    low, high = box_of(problem.loss, 0.01)
    own = problem.loss.start(tf.clip_by_value(tf.zeros_like(mean), low, high))
    unit, wide = tf.ones_like(k), tf.sqrt(k / (1.0 + tf.sqrt(k)))
    loss = problem.loss.value
    h = tf.where(loss(mean, unit) <= loss(own, unit) + _MODERATE, mean, own)
    return h, tf.where(loss(h, wide) <= loss(h, unit) + _MODERATE, wide, tf.minimum(wide, unit))


def _swept(problem: DualProblem, at: Marginals, sweeps: int, tolerance: float) -> Marginals:
    """Marginals after site fixed points (V22), halved while the bound would fall."""
    share = 1.0
    for _ in range(sweeps):
        new = problem.sweep(at, tf.constant(share, at.alpha.dtype))
        if not (new.ok and float(new.bound) > float(at.bound)):
            share *= 0.5
            if share < 0.5**_MAX_HALVINGS:
                break
            continue
        gain, at = float(new.bound - at.bound), new
        share = min(1.0, 2.0 * share)
        if gain < tolerance:
            break
    return at


def _checked(problem: DualProblem, alpha: tf.Tensor, lam: tf.Tensor) -> Marginals:
    lower, upper = (
        tf.convert_to_tensor(problem.loss.lower),
        tf.convert_to_tensor(problem.loss.upper),
    )
    outside = tf.where(
        ((alpha <= lower) | (alpha >= upper)) & ~_single(alpha, lower, upper)
    ).numpy()
    if len(outside):
        n, column = outside[0]
        raise DataError(
            f"alpha[{n}, {column}] = {alpha[n, column]:g} is outside of S = ({lower[n, column]:g},"
            f" {upper[n, column]:g}), the range of the loss's derivative for this observation"
            f" ({len(outside)} entries are outside). Use multipliers inside, or set alpha and lam"
            " to zero, from where the run finds a start. If the likelihood's parameters have"
            " changed since the multipliers were found, pass prepared=, which moves them into S."
        )
    lowest = -EXCESS * tf.convert_to_tensor(problem.loss.curvature)
    below = tf.where(lam < lowest).numpy()
    if len(below):
        n, column = below[0]
        raise DataError(
            f"lam[{n}, {column}] = {lam[n, column]:g} is below {float(lowest[n, column]):g}, the"
            f" least that the second derivative of this site's loss allows ({len(below)} entries"
            " are below). Use larger ones, or set alpha and lam to zero, from where the run finds"
            " a start."
        )
    at = problem.marginals(alpha, lam)
    if not at.ok:
        raise _failure(problem, at)
    return at


def _single(alpha: tf.Tensor, lower: tf.Tensor, upper: tf.Tensor) -> tf.Tensor:
    """True where S is one point, for a row that says nothing of f, and alpha is there."""
    return (alpha == lower) & (alpha == upper)


def _failure(problem: DualProblem, at: Marginals) -> NumericalError:
    of_prior = None if bool(at.state.ok) else problem.geometry.diagnosis(problem.prior)
    rows = len(problem.model.data[1])  # sites of weights follow
    moments = at.mean[:rows], tf.square(at.deviation[:rows])
    of_data = unusable_observation(problem.model, None, moments)
    # multipliers that are not finite come from an observation, if there is one that explains them
    causes = (of_prior, of_data) if np.all(np.isfinite(at.lam)) else (of_data, of_prior)
    return next(filter(None, causes), None) or NumericalError(
        "The bound at the first multipliers is not finite: the kernel's variance, the data or the"
        " likelihood's parameters are too extreme for the expectations. Scale the inputs, or use a"
        " kernel with a smaller variance.",
        matrix="K",
    )
