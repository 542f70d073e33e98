"""The first multipliers of a run."""

from __future__ import annotations

__all__ = ["NOT_FINITE", "first_marginals", "inside", "isolated_sites"]

import math

import numpy as np
import tensorflow as tf

from ...diagnostics.unusable_observation import unusable_observation
from ...errors import DataError, NumericalError
from .dual import DualProblem, Marginals
from .newton import MARGIN, box_of
from .subproblem import EXCESS

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
