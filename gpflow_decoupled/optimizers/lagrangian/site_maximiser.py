"""Maximise over mean and deviation of each site."""

#   max over (h, sigma): -f(h, sigma) + alpha h + lambda sigma_k (sigma - sigma_k / 2)
#                        - rho / 2 (sigma - sigma_k)^2 - kappa / 2 (h - h_k)^2             (V15)
#
# sigma may have either sign, f being even in it, so no barrier is needed.

from __future__ import annotations

__all__ = ["Subproblem", "check_dual", "maximise"]

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ...errors import DataError
from ...likelihoods import Expansion, Maximiser, SiteLoss
from ...likelihoods.sites.site_loss import dual_objective, log_normaliser

_MAX_STEPS = 60  # trial steps; about three are usual
_DECREMENT = 1e-12
"""A site is done after a full Newton step with a decrement below this, relative to 1 + |value|."""
_ROUND_OFF = 1e-13  # relative decrease of (V15) that is none


class Subproblem(NamedTuple):
    """Point where a subproblem touches the bound, and its proximal weights; all [N, L]."""

    h: tf.Tensor
    """h_k, the means."""
    sigma: tf.Tensor
    """sigma_k, the standard deviations."""
    rho: tf.Tensor
    """Weight of the move of sigma."""
    kappa: tf.Tensor | None = None
    """None is zero, for which some losses have the maximum in closed form."""
    delta: tf.Tensor | None = None
    """Weight of -delta / 2 (sigma - sigma_k)^4, the paper's augmented term (19); None is zero."""
    precision: tf.Tensor | None = None
    """c of the Gaussians that the loss subtracts (V31), added to rho and kappa; None is zero."""
    centre: tf.Tensor | None = None
    """mu of these Gaussians, required with `precision`."""


class _Loop(NamedTuple):
    step: tf.Tensor
    h: tf.Tensor
    sigma: tf.Tensor
    length: tf.Tensor
    """Step length per site, 0 if done."""
    at: Expansion


class _Model(NamedTuple):
    g_h: tf.Tensor
    g_s: tf.Tensor
    hh: tf.Tensor
    hs: tf.Tensor
    ss: tf.Tensor


def check_dual(loss: SiteLoss) -> None:
    """Raise `DataError` for a loss without a dual: not convex, or without second derivatives."""
    if loss.reference is not None:
        return check_dual(loss.reference.loss)
    if loss.parts:
        for part in loss.parts:
            check_dual(part)
        return
    if loss.no_dual is not None:
        raise DataError(loss.no_dual)
    zero = tf.zeros_like(loss.Y)
    one = tf.ones_like(zero)
    for h in (
        loss.start(zero),
        loss.Y,
        zero,
    ):  # the first may be so far away that the second derivatives underflow
        for sigma in (one, one + tf.reduce_max(tf.abs(loss.Y))):
            at = loss.expand(h, sigma)
            bends = np.abs(at.d_hh) + np.abs(at.d_ss)
            if np.any(np.isfinite(bends) & (bends > 0.0)):
                return
    raise DataError(
        "The second derivatives of this likelihood's site loss are zero or not finite at every"
        " label, as where -log p(y | f) consists of straight lines: it cannot be maximised in the"
        " dual. Declare a SiteLoss with expectations in closed form, as LaplaceLoss has them, or"
        " use a method that maximises the bound itself: OpperArchambeau or CholeskyKL."
    )


def maximise(
    loss: SiteLoss,
    sub: Subproblem,
    alpha: tf.Tensor,
    lam: tf.Tensor,
    h: tf.Tensor,
    sigma: tf.Tensor,
) -> Maximiser:
    """Return maximisers of (V15) at multipliers alpha, lam [N, L], from h, sigma [N, L]."""
    # In closed form if the loss has one, else by Newton's method with a step length per site.
    if loss.reference is not None:
        return _without_reference(loss.reference.loss, sub, alpha, lam, h, sigma)
    if loss.parts:
        return _by_parts(loss.parts, sub, alpha, lam, h, sigma)
    plain = sub.kappa is None and sub.delta is None
    closed = loss.maximiser(alpha, lam, sub.sigma, sub.rho) if plain else None
    if closed is not None:
        return closed

    def body(*state: tf.Tensor) -> _Loop:
        return _advance(loss, sub, alpha, lam, _Loop(*state))

    def running(*state: tf.Tensor) -> tf.Tensor:
        loop = _Loop(*state)
        return (loop.step < _MAX_STEPS) & tf.reduce_any(loop.length > 0.0)

    first = _Loop(tf.constant(0), h, sigma, tf.ones_like(h), loss.expand(h, sigma))
    last = _Loop(*tf.while_loop(running, body, first))
    m = _model(sub, alpha, lam, last.h, last.sigma, last.at)
    det = m.hh * m.ss - tf.square(m.hs)
    sign = tf.where(last.sigma < 0.0, -tf.ones_like(det), tf.ones_like(det))
    return Maximiser(
        h=last.h,
        sigma=tf.abs(last.sigma),
        value=_value(sub, alpha, lam, last.h, last.sigma, last.at.value),
        d_h_d_alpha=m.ss / det,
        d_h_d_lam=-m.hs * sub.sigma / det,
        d_s_d_lam=sign * m.hh * sub.sigma / det,
    )


def _without_reference(
    loss: SiteLoss,
    sub: Subproblem,
    alpha: tf.Tensor,
    lam: tf.Tensor,
    h: tf.Tensor,
    sigma: tf.Tensor,
) -> Maximiser:
    """Maximisers for a loss less Gaussians N(mu, 1 / c), at other multipliers: (V31)."""
    if sub.precision is None or sub.centre is None:
        raise ValueError("a loss with a reference needs a Subproblem with its precision and centre")
    c, mu = sub.precision, sub.centre
    own = sub._replace(precision=None, centre=None)
    best = maximise(loss, own, alpha + c * (sub.h - mu), lam + c, h, sigma)  # (V31)
    constant = 0.5 * c * (tf.square(mu) - tf.square(sub.h)) - log_normaliser(c)
    return best._replace(value=best.value + constant)


def _by_parts(
    parts: tuple[SiteLoss, ...],
    sub: Subproblem,
    alpha: tf.Tensor,
    lam: tf.Tensor,
    h: tf.Tensor,
    sigma: tf.Tensor,
) -> Maximiser:
    found, first = [], 0
    for part in parts:
        rows = slice(first, first + int(part.Y.shape[0]))
        own = Subproblem(*(None if one is None else one[rows] for one in sub))
        if part.log_concave:
            own = own._replace(kappa=None)  # kappa is zero, and the maximum may have a closed form
        found.append(maximise(part, own, *(one[rows] for one in (alpha, lam, h, sigma))))
        first = rows.stop
    return Maximiser(*(tf.concat(column, axis=0) for column in zip(*found)))


def _advance(
    loss: SiteLoss, sub: Subproblem, alpha: tf.Tensor, lam: tf.Tensor, loop: _Loop
) -> _Loop:
    m = _model(sub, alpha, lam, loop.h, loop.sigma, loop.at)
    det = m.hh * m.ss - tf.square(m.hs)
    p_h, p_s = (m.ss * m.g_h - m.hs * m.g_s) / det, (m.hh * m.g_s - m.hs * m.g_h) / det
    decrement = m.g_h * p_h + m.g_s * p_s
    size = tf.maximum(tf.abs(p_h), tf.abs(p_s))
    length = tf.minimum(loop.length, 10.0 * (1.0 + tf.abs(loop.sigma)) / tf.maximum(size, 1e-300))
    h, sigma = loop.h + length * p_h, loop.sigma + length * p_s
    at = loss.expand(h, sigma)
    now = _value(sub, alpha, lam, loop.h, loop.sigma, loop.at.value)
    then = _value(sub, alpha, lam, h, sigma, at.value)
    slack = _ROUND_OFF * (1.0 + tf.abs(now))
    accepted = (length > 0.0) & (then >= now + 1e-4 * length * decrement - slack)
    tiny = length * size <= 1e-14 * (1.0 + tf.abs(loop.h) + tf.abs(loop.sigma))
    done = (decrement <= _DECREMENT * (1.0 + tf.abs(now))) | tiny | (loop.length <= 0.0)
    new = Expansion(*(tf.where(accepted, after, before) for after, before in zip(at, loop.at)))
    return _Loop(
        loop.step + 1,
        tf.where(accepted, h, loop.h),
        tf.where(accepted, sigma, loop.sigma),
        tf.where(
            done, tf.zeros_like(length), tf.where(accepted, tf.ones_like(length), 0.25 * length)
        ),
        new,
    )


def _value(
    sub: Subproblem,
    alpha: tf.Tensor,
    lam: tf.Tensor,
    h: tf.Tensor,
    sigma: tf.Tensor,
    loss: tf.Tensor,
) -> tf.Tensor:
    """The objective of (V15) [N, L], less the paper's augmented term (19)."""
    value = dual_objective(
        loss, h, sigma, alpha, lam, sub.sigma, sub.rho, sub.kappa, sub.h
    )  # (V15)
    if sub.delta is not None:
        value -= 0.5 * sub.delta * (sigma - sub.sigma) ** 4
    return value


def _model(
    sub: Subproblem, alpha: tf.Tensor, lam: tf.Tensor, h: tf.Tensor, sigma: tf.Tensor, at: Expansion
) -> _Model:
    moved = sigma - sub.sigma
    g_h, g_s = alpha - at.d_h, lam * sub.sigma - at.d_s - sub.rho * moved
    hh, ss = at.d_hh, at.d_ss + sub.rho
    if sub.kappa is not None:
        g_h, hh = g_h - sub.kappa * (h - sub.h), hh + sub.kappa
    if sub.delta is not None:
        g_s, ss = g_s - 2.0 * sub.delta * moved**3, ss + 6.0 * sub.delta * tf.square(moved)
    half = 0.5 * (hh + ss)
    least = half - tf.sqrt(tf.square(0.5 * (hh - ss)) + tf.square(at.d_hs))
    floor = 1e-13 * (tf.abs(hh) + tf.abs(ss)) + 1e-300
    shift = tf.where(
        least < floor, floor - least + tf.where(least < -floor, 0.1 * tf.abs(least), 0.0), 0.0
    )
    return _Model(g_h, g_s, hh + shift, at.d_hs, ss + shift)
