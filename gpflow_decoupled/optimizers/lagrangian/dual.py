"""The dual of a subproblem."""

from __future__ import annotations

__all__ = [
    "Box", "DualPoint", "DualProblem", "FieldMultipliers", "MARGIN", "Marginals", "Subproblem",
    "box_of", "check_dual", "maximise", "newton_direction", "newton_solve", "newton_step",
    "no_direction", "round_off",
]  # fmt: skip

import math
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np
import tensorflow as tf

from ...bases.dual import DualState
from ...compilation import Compiled
from ...errors import DataError, NumericalError
from ...likelihoods import Expansion, Maximiser, SiteLoss, site_loss
from ...likelihoods.site_loss import dual_objective, log_normaliser
from ...linalg.newton_systems import RIDGE
from ...models import GMRF, LCLGP

# ---
# Maximise over mean and deviation of each site.


#   max over (h, sigma): -f(h, sigma) + alpha h + lambda sigma_k (sigma - sigma_k / 2)
#                        - rho / 2 (sigma - sigma_k)^2 - kappa / 2 (h - h_k)^2             (V15)
#
# sigma may have either sign, f being even in it, so no barrier is needed.


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
    if loss.reference is not None:  # a loss less Gaussians N(mu, 1 / c), at other multipliers
        if sub.precision is None or sub.centre is None:
            raise ValueError("a loss with a reference needs a Subproblem with precision and centre")
        c, mu, own = sub.precision, sub.centre, sub._replace(precision=None, centre=None)
        pull = alpha + c * (sub.h - mu)
        best = maximise(loss.reference.loss, own, pull, lam + c, h, sigma)  # (V31)
        constant = 0.5 * c * (tf.square(mu) - tf.square(sub.h)) - log_normaliser(c)
        return best._replace(value=best.value + constant)
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


# ---
# A `GMRF` as the Lagrangian sees its models.


# With K = A Q^-1 A^T at the observations, never formed, (V7) and (V9) read, as in (C71),
#
#   E u = -K alpha = -A Q^-1 A^T alpha,   v = diag(A P^-1 A^T),   P = Q + A^T Lambda A
#   log|I + K Lambda| = log|P| - log|Q|
#
# so that Gaussian sites of precision lambda and natural mean lambda u - alpha give q.


_BLOCK = 256  # columns of K at a time


class FieldMultipliers:
    """The multipliers alpha, lambda [N, 1] of a field, and what `DualProblem` asks of a model.

    :param field: whose q begins the run; sites that were never moved are no multipliers.
    """

    kernel = None
    """The prior has no parameters."""
    num_latent_gps = 1

    def __init__(self, field: GMRF) -> None:
        self.field, self.likelihood = field, field.likelihood
        self.data, self.num_data = (None, field.Y), len(field.Y)
        # the part of a geometry that L-BFGS on a dual uses
        self.geometry: Any = _FieldGeometry(field)
        nothing = tf.zeros_like(field.Y)
        self.alpha, self.lam = (tf.Variable(nothing, trainable=False) for _ in range(2))
        nu, tau = (tf.convert_to_tensor(part) for part in (field.basis.nu, field.basis.tau))
        state = field.state_at(nu, tau) if bool(tf.reduce_any(nu != 0.0)) else None
        if state is not None:
            self.alpha.assign(tau * state.mean - nu)
            self.lam.assign(tau)

    @property
    def basis(self) -> FieldMultipliers:
        """Itself, which is asked what a `DualBasis` is."""
        return self

    def prior_kl(self, state: DualState) -> tf.Tensor:
        """KL in nats (V10)."""
        quadratic = tf.reduce_sum(state.alpha * state.mean + state.lam * state.variance)
        return 0.5 * (state.log_det - quadratic)

    def prior_mean(self) -> tf.Tensor:
        """The offset [N, 1]."""
        return self.field.offset

    def site_loss(self) -> SiteLoss:
        """Losses of the labels [N, 1]."""
        return site_loss(self.likelihood, self.field.Y)

    def write(self) -> None:
        """Set the field's sites to the multipliers."""
        alpha, lam = tf.convert_to_tensor(self.alpha), tf.convert_to_tensor(self.lam)
        self.field.basis.nu.assign(lam * self.geometry.product(None, -alpha) - alpha)
        self.field.basis.tau.assign(lam)


class _FieldGeometry:
    """Products with K = A Q^-1 A^T [N, N] and posteriors, one sparse factorisation each.

    `prior` is ignored: Q does not change.
    """

    forms_square_matrices = False
    in_graphs = False
    """The factorisations are SciPy's."""

    def __init__(self, field: GMRF) -> None:
        self.field, self.dtype = field, field.float_type
        factor = field.posterior_factor(np.zeros(len(field.Y)))
        if factor is None:
            raise NumericalError(
                "The precision Q has changed and is not positive definite: make a new GMRF.",
                matrix="Q",
            )
        self.factor = factor

    def prior(self, kernel: None) -> tf.Tensor:
        """No numbers."""
        return tf.zeros([0], self.dtype)

    def product(self, prior: tf.Tensor | None, vectors: tf.Tensor) -> tf.Tensor:
        """K x [N, 1]."""
        A = self.field.design
        return tf.constant(A @ self.factor.solve(A.T @ np.asarray(vectors)), self.dtype)

    def diagonal(self, prior: tf.Tensor) -> tf.Tensor:
        """The diagonal of K [1, N]."""
        return tf.constant(self.field.variances_of(self.factor)[None], self.dtype)

    def row_squares(self, prior: tf.Tensor) -> tf.Tensor:
        """sum_j K_nj^2 [1, N]; a solve per observation."""
        A, found = self.field.design, []
        for first in range(0, A.shape[0], _BLOCK):
            columns = A @ self.factor.solve(A[first : first + _BLOCK].T.toarray())
            found.append(np.sum(columns**2, axis=0))
        return tf.constant(np.concatenate(found)[None], self.dtype)

    def diagnosis(self, prior: tf.Tensor) -> NumericalError | None:
        """None: Q was factorised."""
        return None

    def state_at(self, prior: tf.Tensor, alpha: tf.Tensor, lam: tf.Tensor) -> DualState:
        """(V7), (V9)."""
        return self._state(self.product(prior, -tf.convert_to_tensor(alpha)), alpha, lam)

    def state_of_sites(self, prior: tf.Tensor, b: tf.Tensor, lam: tf.Tensor) -> DualState:
        """The state with sites exp(b u - lam u^2 / 2), (V22)."""
        found = self.field.state_at(b, lam)
        mean = tf.zeros_like(b) if found is None else tf.constant(found.mean, self.dtype)
        return self._state(mean, lam * mean - b, lam)  # (V22)

    def with_alpha(self, prior: tf.Tensor, state: DualState, alpha: tf.Tensor) -> DualState:
        """The state with another alpha [N, 1], without factorisation."""
        mean = self.product(prior, -tf.convert_to_tensor(alpha))
        return state._replace(alpha=alpha, coefficients=alpha, mean=mean)

    def _state(self, mean: tf.Tensor, alpha: tf.Tensor, lam: tf.Tensor) -> DualState:
        alpha, lam = tf.convert_to_tensor(alpha), tf.convert_to_tensor(lam)
        factor = self.field.posterior_factor(np.asarray(lam)[:, 0])
        unused, variance, log_det = tf.zeros([0], self.dtype), tf.fill(tf.shape(lam), np.nan), 0.0
        if factor is not None:
            variance = self.field.variances_of(factor)[:, None]
            log_det = factor.log_det - self.factor.log_det
        return DualState(
            chol=unused,
            scale=unused,
            negative=unused,
            coefficients=alpha,
            ok=tf.constant(factor is not None),
            mean=mean,
            variance=tf.cast(variance, self.dtype),
            log_det=tf.constant(log_det, self.dtype),
            alpha=alpha,
            lam=lam,
        )


def no_direction(*_: object, **__: object) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Newton's steps need K and V [N, N], which a field does not form: none is found."""
    nothing = tf.zeros([])
    return nothing, nothing, tf.constant(False)


# ---


# With site losses f, and h_k, sigma_k the point where the subproblem touches the bound:
#
#   D_k = -1/2 log|C| + 1/2 alpha^T K alpha - m_0^T alpha + sum f^k*                (V14)
#   Q_k = -KL - sum [f(m, s_k) + rho / 2 (s_k - sigma_k)^2 + kappa / 2 (m - h_k)^2],
#         s_k = sigma_k / 2 + v / (2 sigma_k)                                       (V13)
#
# For log-concave sites D_k >= max Q_k and Q_k <= F, the bound.


Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Marginals(NamedTuple):
    """Marginals of q at some multipliers, and the bound."""

    alpha: tf.Tensor
    """[N, L]"""
    lam: tf.Tensor
    """[N, L]"""
    state: DualState
    mean: tf.Tensor
    """Means of q(f) at the observations, with the mean function [N, L]."""
    deviation: tf.Tensor
    """Standard deviations [N, L]."""
    divergence: tf.Tensor
    """KL, [] nats."""
    bound: tf.Tensor
    """F, [] nats (V10)."""
    ok: tf.Tensor
    """[], bool: whether V exists and F is finite."""


class DualPoint(NamedTuple):
    """A subproblem at some multipliers."""

    sites: Maximiser
    dual: tf.Tensor
    """D_k, [] nats; infinite where V does not exist."""
    primal: tf.Tensor
    """Q_k, [] nats."""
    g_alpha: tf.Tensor
    """[N, L]: (V16)"""
    g_lam: tf.Tensor
    """[N, L]: (V16)"""


class DualProblem:
    """The dual of a model's bound, as compiled functions of the multipliers.

    Cost per latent of `marginals`: 2/3 N^3, or N p^2 in weight space; of `point`: a few passes over
    the site losses.
    """

    def __init__(self, model: LCLGP | FieldMultipliers, compile: bool = True) -> None:
        self.model, self.basis, self.compile = model, model.basis, compile
        self.geometry = model.basis.geometry
        self.prior = tf.Variable(self.geometry.prior(model.kernel), trainable=False)
        self.prior_mean = tf.Variable(model.prior_mean(), trainable=False)
        self.loss = model.site_loss()  # reads the likelihood's Parameters whenever it is called
        self.expand = self.compiled(self.loss.expand)
        self.point = self.compiled(self._point)
        self.marginals = self._with_geometry(self._marginals)
        self.with_alpha = self._with_geometry(self._with_alpha)
        self.sweep = self._with_geometry(self._sweep)

    def compiled(self, function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        """Compile the function if `compile` is set."""
        return Compiled(function, reduce_retracing=True) if self.compile else function

    def _with_geometry(self, function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        return self.compiled(function) if self.geometry.in_graphs else function

    def refresh(self) -> None:
        """Read the kernel and the mean function again, without recompilation."""
        self.prior.assign(self.geometry.prior(self.model.kernel))
        self.prior_mean.assign(self.model.prior_mean())

    def _marginals(self, alpha: tf.Tensor, lam: tf.Tensor) -> Marginals:
        """(V7)-(V10) at alpha, lam [N, L]."""
        return self._of_state(self.geometry.state_at(self.prior, alpha, lam))

    def _sweep(self, at: Marginals, share: tf.Tensor) -> Marginals:
        # Gaussian sites of precision lambda and natural mean lambda u - alpha move by `share`;
        # alpha may leave S.
        loss = self.loss.expand(at.mean, at.deviation)
        precision, centred = loss.d_s / at.deviation, at.mean - self.prior_mean
        now, goal = at.lam * centred - at.alpha, precision * centred - loss.d_h
        lam = at.lam + share * (precision - at.lam)
        return self._of_state(
            self.geometry.state_of_sites(self.prior, now + share * (goal - now), lam)
        )  # (V22)

    def _with_alpha(self, at: Marginals, alpha: tf.Tensor) -> Marginals:
        return self._of_state(self.geometry.with_alpha(self.prior, at.state, alpha))

    def _of_state(self, state: DualState) -> Marginals:
        mean, deviation = self.prior_mean + state.mean, tf.sqrt(state.variance)
        divergence = self.basis.prior_kl(state)
        bound = -tf.reduce_sum(self.loss.value(mean, deviation)) - divergence  # (V10)
        ok = state.ok & tf.math.is_finite(bound) & tf.reduce_all(state.variance > 0.0)
        return Marginals(state.alpha, state.lam, state, mean, deviation, divergence, bound, ok)

    def write_best(self, candidates: list[tuple[tf.Tensor, tf.Tensor]]) -> float | None:
        """Write the best of the candidates (alpha, lam) [N, L] to the model; return its bound."""
        found = [self.marginals(alpha, lam) for alpha, lam in candidates]
        best = max(found, key=lambda at: float(at.bound) if bool(at.ok) else -math.inf)
        if not bool(best.ok):
            return None
        self.basis.alpha.assign(best.alpha)
        self.basis.lam.assign(best.lam)
        return float(best.bound)

    def prior_sums(self, mean: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """diag K, sum_j K_nj^2 and t_n (K t)_n, each and `mean` [N, L]; t_n = +-1, n's pull."""
        geometry, prior, shape = self.geometry, self.prior, tf.shape(mean)
        diagonal, squares = (
            tf.broadcast_to(tf.transpose(part), shape)
            for part in (geometry.diagonal(prior), geometry.row_squares(prior))
        )
        t = -tf.sign(self.expand(mean, tf.ones_like(mean)).d_h)
        return diagonal, squares, t * geometry.product(prior, t)

    def _point(self, sub: Subproblem, at: Marginals, h: tf.Tensor, sigma: tf.Tensor) -> DualPoint:
        alpha, lam = at.alpha, at.lam
        sites = maximise(self.loss, sub, alpha, lam, h, sigma)
        centred = at.mean - self.prior_mean
        fit = -0.5 * tf.reduce_sum(alpha * centred) - tf.reduce_sum(self.prior_mean * alpha)
        dual = fit - 0.5 * at.state.log_det + tf.reduce_sum(sites.value)  # (V14)
        variance = at.state.variance
        slack = 2.0 * sub.sigma * sites.sigma - tf.square(sub.sigma) - variance
        # A site that is not log-concave may have no maximum.
        inside = tf.reduce_all((sites.sigma > 0.0) & (sites.d_h_d_alpha > 0.0))
        finite = at.state.ok & tf.math.is_finite(dual) & inside
        infinite = tf.fill([], tf.constant(float("inf"), dual.dtype))
        return DualPoint(
            sites=sites,
            dual=tf.where(finite, dual, infinite),
            primal=self._primal(sub, at),
            g_alpha=sites.h - at.mean,  # (V16)
            g_lam=0.5 * slack,  # (V16)
        )

    def _primal(self, sub: Subproblem, at: Marginals) -> tf.Tensor:
        tangent = 0.5 * (sub.sigma + at.state.variance / sub.sigma)
        moved = tangent - sub.sigma
        losses = self.loss.value(at.mean, tangent) + 0.5 * sub.rho * tf.square(moved)
        if sub.kappa is not None:
            losses += 0.5 * sub.kappa * tf.square(at.mean - sub.h)
        if sub.delta is not None:
            losses += 0.5 * sub.delta * moved**4
        if sub.precision is not None:
            losses += 0.5 * sub.precision * (tf.square(moved) + tf.square(at.mean - sub.h))  # (V31)
        return -tf.reduce_sum(losses) - at.divergence  # (V13)


# ---
# Projected Newton steps within a box (V18).


MARGIN = 1e-10
"""Distance of alpha from the ends of S, as a share of its width, or of 1 if wider."""
_NEWTON_ROUND_OFF = 4.0
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
            tf.maximum(distance, _NEWTON_ROUND_OFF * epsilon * tf.abs(end)),
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
