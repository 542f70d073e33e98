"""E g(y) for y = sum_d alpha_d v_d + beta with independent v_d: three routes, and their choice."""

# | route | needs | error |
# |---|---|---|
# | "frequency_sum" | transform of g'' | 1e-10 at 64 frequencies |
# | "spectral" | any g | 1e-9 at 1024 points; fourth order at kinks |
# | "lattice" | cdf, any g | 1e-3 in a sum over 64 sites, at 1024 points |

from __future__ import annotations

__all__ = [
    "Integration", "ROUTES", "SiteGroup", "cell_masses", "choose_route", "convolve",
    "expectation", "frequencies_for", "growth_of", "integrate", "points_for", "reach_of",
    "spectral_density", "transform_of", "where_decayed", "widen",
]  # fmt: skip

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.config import default_float

from ..distributions import Base
from ..errors import DataError, check_option
from ..special import normal_cdf
from ..summaries import short_repr
from .projections import (
    Projections,
    Reach,
    Site,
    check_projections,
    map_blocks,
    other_factors,
    product,
    rows_of,
    tiny,
)

# ---
# Grid sums that end too early.


def where_decayed(value: tf.Tensor, terms: tf.Tensor, otherwise: float) -> tf.Tensor:
    """Return sums `value` [...] of `terms` [..., K], or `otherwise` if the ends hold much of it."""
    # Such a sum continues beyond the grid. The limit is 1e-3 in single precision.
    limit = 1e-5 if terms.dtype == tf.float64 else 1e-3
    size = tf.abs(tf.stop_gradient(terms))
    cells = max(int(terms.shape[-1]) // 64, 1)
    ends = tf.reduce_sum(size[..., :cells], axis=-1) + tf.reduce_sum(size[..., -cells:], axis=-1)
    good = ends <= limit * (1.0 + tf.reduce_sum(size, axis=-1))
    return tf.where(good, value, tf.constant(otherwise, value.dtype))


# ---
# The route "spectral": the density of y by inverse FFT (A10).


Transform = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
"""Characteristic functions at omega [n, D, T], for theta [D, 1, P], real or complex."""


def transform_of(
    characteristic: Transform,
    alpha: tf.Tensor,
    noise: tf.Tensor | None,
    omega: tf.Tensor,
    theta: tf.Tensor,
) -> tf.Tensor:
    """Characteristic function [n, T] of y - beta at omega [n, T], for alpha [n, D], noise [n]."""
    phi = product(characteristic(alpha[:, :, None] * omega[:, None, :], theta[:, None, :]))
    if noise is None:
        return phi
    decay = tf.exp(-0.5 * noise[:, None] * tf.square(omega))
    return phi * (_complex(decay) if phi.dtype.is_complex else decay)


def _complex(x: tf.Tensor) -> tf.Tensor:
    """x [...] as a complex tensor; the gradient of `tf.cast` warns."""
    return x if x.dtype.is_complex else tf.complex(x, tf.zeros_like(x))


def spectral_density(
    characteristic: Transform, y: Projections, R: Reach, K: int = 1024, averaged: bool = False
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return values y_k and the density of y there, [N, K] each, by (A10).

    :param characteristic: at omega [n, D, T], for theta [D, 1, P].
    :param averaged: over cells.
    """
    # The error is the mass beyond R standard deviations plus the characteristic function beyond pi
    # / step.
    check_projections(y)
    u, q = _density(characteristic, y, R, K, averaged)
    return y.beta[:, None] + u, q


def _density(
    characteristic: Transform, y: Projections, R: Reach, K: int, averaged: bool = False
) -> tuple[tf.Tensor, tf.Tensor]:
    """Distances from the mean and densities there, [n, K] each."""
    step = 2.0 * tf.cast(R, y.alpha.dtype) * y.scale[:, None] / K
    omega = 2.0 * math.pi / (K * step) * tf.range(K // 2 + 1, dtype=step.dtype)
    phi = transform_of(characteristic, y.alpha, y.noise, omega, y.theta)
    # the signs shift the mean to the middle of the grid; a sinc averages over cells
    places = np.arange(K // 2 + 1)
    filters = (-1.0) ** places * (np.sinc(places / K) if averaged else 1.0)
    phi = tf.math.conj(_complex(phi)) * _complex(tf.constant(filters, step.dtype))
    q = tf.signal.irfft(phi, fft_length=[K]) / step  # (A10)
    return (tf.range(K, dtype=step.dtype) - K // 2) * step, q


def _by_spectrum(base: Base, y: Projections, site: Site, R: Reach, K: int) -> tf.Tensor:
    """Kinks are corrected to the fourth order of the step."""
    u, q = _density(base.characteristic, y, R, K)
    values, step = y.beta[:, None] + u, u[:, 1:2] - u[:, :1]
    columns = [part[:, None] for part in site.parameters]
    g = site.smooth(values, *columns)
    if site.kink is None:
        return where_decayed(tf.reduce_sum(g * q, axis=1) * step[:, 0], g * q * step, -math.inf)
    place, slope = site.kink(*columns)
    g += slope * tf.abs(values - place)
    # the error of the trapezoid rule at a kink, from the density there by linear interpolation
    at = (place - values[:, :1]) / step
    near = tf.stop_gradient(tf.floor(at))
    xi = at - near
    K = tf.cast(tf.shape(values)[1], at.dtype)
    cell = tf.cast(tf.clip_by_value(near, 0.0, K - 2.0), tf.int32)
    left, right = (tf.gather(q, cell + side, batch_dims=1) for side in (0, 1))
    inside = tf.cast((near >= 0.0) & (near < K - 1.0), q.dtype)
    density = inside * ((1.0 - xi) * left + xi * right)
    # (A10), the term of a kink
    correction = tf.square(step) * (tf.square(xi) - xi + 1.0 / 6.0) * density
    return (tf.reduce_sum(g * q, axis=1, keepdims=True) * step + slope * correction)[:, 0]


# ---
# The route "frequency_sum": a Gaussian expectation plus a sum.


# With N the Gaussian of the mean and variance of y, and k the Fourier transform of g'', (A11)
#
#   E g(y) = E_N g + 1/pi Re int_0^inf k(omega) (phi_N(omega) - phi_y(omega)) / omega^2 d omega
#
# where phi_y is the product of the characteristic functions of the alpha_d v_d.


def _by_frequency_sum(base: Base, y: Projections, site: Site, R: Reach, T: int) -> tf.Tensor:
    """By (A11); 64 frequencies give 1e-10 for light tails, R <= 10, and T grows with R."""
    assert site.kernel is not None and site.gauss is not None
    shift = y.beta if site.centre is None else y.beta - site.centre(*site.parameters)
    omega, weight, shift = _rule(site, shift, y.scale, tf.cast(R, y.alpha.dtype), T)
    variance = tf.square(y.spread)
    phi = transform_of(base.characteristic, y.alpha, y.noise, omega, y.theta)
    gauss = tf.exp(-0.5 * variance[:, None] * tf.square(omega))
    columns = [part[:, None] for part in site.parameters]
    kernel = site.kernel(omega, *columns) * weight / tf.square(omega)
    phase = omega * shift[:, None]
    terms = tf.cos(phase) * (gauss - tf.math.real(phi))
    # symmetric densities have a real transform, and no sines
    if phi.dtype.is_complex:
        terms += tf.sin(phase) * tf.math.imag(phi)
    rest = tf.reduce_sum(kernel * terms, axis=1) / math.pi
    return site.gauss(y.beta, variance, *site.parameters) + rest  # (A11)


def _rule(
    site: Site, shift: tf.Tensor, spread: tf.Tensor, R: tf.Tensor, T: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Frequencies, weights, and the distance clipped to where y has mass: the sum is periodic."""
    # by (A13), or Gauss-Legendre nodes up to the site's `cutoff`; not differentiated
    if site.cutoff is not None:
        nodes, weights = (
            tf.constant(part, shift.dtype) for part in np.polynomial.legendre.leggauss(T)
        )
        half = 0.5 * tf.stop_gradient(site.cutoff(spread, *site.parameters))[:, None]
        return half * (nodes + 1.0), half * weights, shift
    width = tf.zeros_like(shift) if site.width is None else site.width(*site.parameters)
    reach = tf.stop_gradient(R * spread + width)
    shift = tf.clip_by_value(shift, -reach, reach)
    step = (2.0 * math.pi / (tf.stop_gradient(tf.abs(shift)) + reach))[:, None]  # (A13)
    return step * tf.range(1, T + 1, dtype=shift.dtype), step, shift


# ---
# The route "lattice": masses, convolved by FFT (Challis & Barber 2012, corrected).


# 1. Masses of each alpha_d v_d in K cells are differences of its cdf, (A8).
# 2. Their convolution, by FFT on a ring of 2 K places, has the masses of y.
# 3. E g(y) is the sum of masses times g at the centres of the cells, averaged over the cell at
#    kinks (A9).
#
# Rounding to cells adds width^2 / 12 of variance per term, so values are rescaled.


Cdf = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
"""Cdfs at finite v [n, D, K - 1], for theta [D, 1, P], differentiable in both."""


def cell_masses(cdf: Cdf, alpha: tf.Tensor, theta: tf.Tensor, step: tf.Tensor, K: int) -> tf.Tensor:
    """Masses [n, D, K] of alpha_d v_d in cells at (k - K/2) step, (A8); outer cells are open.

    `cdf` takes v [n, D, K - 1], for theta [D, 1, P]; alpha is [n, D], theta [D, P], step [n].
    """
    small = tf.sqrt(tf.constant(tiny(alpha), alpha.dtype))
    sign = tf.where(alpha < 0.0, -tf.ones_like(alpha), tf.ones_like(alpha))
    safe = tf.where(tf.abs(alpha) < small, sign * small, alpha)[:, :, None]
    edges = tf.constant(np.arange(1, K) - 0.5 * K - 0.5, alpha.dtype) * step[:, None, None]
    v = tf.clip_by_value(edges / safe, -1e8, 1e8)
    below = cdf(v, theta[:, None, :])
    first, last = below[..., :1], below[..., -1:]
    upward = sign[:, :, None]
    ends = tf.where(upward > 0.0, first, 1.0 - first), tf.where(upward > 0.0, 1.0 - last, last)
    # (A8)
    return tf.concat([ends[0], upward * (below[..., 1:] - below[..., :-1]), ends[1]], axis=-1)


def convolve(masses: tf.Tensor) -> tf.Tensor:
    """Convolve the masses [n, D, K] of D terms to [n, 2 K], for values from -K to K - 1 steps."""
    # Mass beyond the ring wraps around. The gradient (A15) takes one FFT per term.
    K = masses.shape[2]

    @tf.custom_gradient
    def summed(masses: tf.Tensor) -> tuple:
        halves = masses[..., K // 2 :], tf.zeros_like(masses), masses[..., : K // 2]
        spectra = tf.signal.rfft(tf.concat(halves, axis=-1))
        total = tf.roll(
            tf.signal.irfft(tf.reduce_prod(spectra, axis=1), fft_length=[2 * K]), K, axis=1
        )

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            waves = tf.signal.rfft(tf.roll(upstream, K, axis=1))
            rings = tf.signal.irfft(
                waves[:, None] * tf.math.conj(other_factors(spectra)), fft_length=[2 * K]
            )  # (A15)
            return tf.concat([rings[..., -K // 2 :], rings[..., : K // 2]], axis=-1)

        return total, gradient

    return summed(masses)


def _by_lattice(base: Base, y: Projections, site: Site, R: Reach, K: int) -> tf.Tensor:
    """The error falls at least 16-fold when K grows fourfold."""
    step = 2.0 * tf.cast(R, y.alpha.dtype) * y.scale / K
    masses = cell_masses(base.cdf, y.alpha, y.theta, step, K)
    if y.noise is not None:
        root = tf.sqrt(tf.maximum(y.noise, tiny(y.alpha)))[:, None]
        normal = cell_masses(lambda v, _: normal_cdf(v), root, y.theta[:1], step, K)
        masses = tf.concat([masses, normal], axis=1)
    u, rho = step[:, None] * tf.range(-K, K, dtype=step.dtype), convolve(masses)
    # values with the variance of y, which rounding to cells has raised
    width = step[:, None]
    mean = tf.reduce_sum(rho * u, axis=1, keepdims=True)
    on_lattice = tf.reduce_sum(rho * tf.square(u - mean), axis=1, keepdims=True)
    if site.kink is not None:
        on_lattice += tf.square(width) / 12.0
    ratio = tf.sqrt(tf.square(y.spread)[:, None] / on_lattice)
    u, width = (u - mean) * ratio, width * ratio
    columns = [part[:, None] for part in site.parameters]
    values = y.beta[:, None] + u
    g = site.smooth(values, *columns)
    if site.kink is not None:
        place, slope = site.kink(*columns)
        far = tf.abs(values - place)
        inside = 0.25 * width + tf.square(far) / width
        g += slope * tf.where(far >= 0.5 * width, far, inside)  # (A9)
    return where_decayed(tf.reduce_sum(rho * g, axis=1), rho * g, -math.inf)


def widen(cdf: Cdf, y: Projections, R: Reach) -> tf.Tensor:
    """Double R, at most six times, until every site has at most 1e-7 of its mass outside."""
    # Polynomial tails need a characteristic function instead. In single precision the limit is
    # 1e-5.
    limit = 1e-7 if y.alpha.dtype == tf.float64 else 1e-5
    theta = y.theta[:, None, :]

    def misses(R: tf.Tensor, doublings: tf.Tensor) -> tf.Tensor:
        edge = R * y.scale[:, None] / tf.maximum(tf.abs(y.alpha), 1e-30)
        edge = tf.minimum(edge, 1e8)[:, :, None]
        outside = tf.reduce_sum(cdf(-edge, theta) + 1.0 - cdf(edge, theta), axis=[1, 2])
        return (tf.reduce_max(outside) > limit) & (doublings < 6)

    start = tf.stop_gradient(tf.cast(R, y.alpha.dtype))
    return tf.stop_gradient(tf.while_loop(misses, lambda R, i: (2.0 * R, i + 1), (start, 0))[0])


# ---
# The choice of a route.


_Evaluate = Callable[[Base, Projections, Site, Reach, int], tf.Tensor]
ROUTES: dict[str, _Evaluate] = {
    "frequency_sum": _by_frequency_sum,
    "spectral": _by_spectrum,
    "lattice": _by_lattice,
}


def choose_route(base: Base, site: Site, route: str) -> str:
    """Return `route`, or for "auto" the first of `ROUTES` that the site allows."""
    check_option("route", route, ("auto", *ROUTES))
    transform = site.kernel is not None and site.gauss is not None
    if route == "auto":
        return "frequency_sum" if transform else "spectral"
    if route == "frequency_sum" and not transform:
        raise DataError(
            "The route 'frequency_sum' needs a transform of the site, which is not known: use"
            " route='spectral'."
        )
    if route == "lattice" and not base.has_cdf:
        raise DataError(
            f"The base distribution '{base.name}' has no cdf: use the route 'spectral' or"
            " 'frequency_sum'."
        )
    return route


def expectation(
    base: Base,
    y: Projections,
    site: Site,
    R: Reach,
    route: str,
    size: int,
    memory: float = 2.0**29,
) -> tf.Tensor:
    """Return E g_n(y_n) [N], differentiable in alpha, beta, theta, noise and site parameters.

    Minus infinity where g_n outgrows the density of y_n.

    :param R: half range of the grid in standard deviations of y_n; `widen` enlarges a lattice.
    :param route: one of `ROUTES`, or "auto".
    :param size: number of frequencies, or of points, a power of two.
    :param memory: bytes that `base.work` complex tensors of a block may take.
    """
    check_projections(y, site)
    route, noisy = choose_route(base, site, route), y.noise is not None
    if route == "lattice":
        R = widen(base.cdf, y, R)

    def block(
        alpha: tf.Tensor, beta: tf.Tensor, noise: tf.Tensor, scale: tf.Tensor, *rest: tf.Tensor
    ) -> tf.Tensor:
        *parameters, theta = rest
        part = Projections(alpha, beta, theta, noise if noisy else None, scale)
        return ROUTES[route](base, part, site._replace(parameters=tuple(parameters)), R, size)

    terms = y.alpha.shape[1] + (noisy and route == "lattice")
    length = {"frequency_sum": size, "spectral": size // 2 + 1, "lattice": size + 1}[route]
    rows = rows_of(memory, terms, length, base.work, y.alpha.dtype)
    return map_blocks(block, [*y.per_site, *site.parameters], [y.theta], rows)


# ---
# The sites of a model.


_LARGEST_SHIFT = 2.0  # most standard deviations that a grid is widened by
_FAR, _LEAST_RATE = 40.0, 0.2
"""Growth is measured between y = 40 and 80, where exp(y) is finite in single precision. Below the
least rate it counts as a power, as abs(y)^8 does.
"""
_LIGHT_TAIL = 10.0
"""Range, in standard deviations, up to which 64 frequencies are enough."""


class Integration(NamedTuple):
    """Settings of the integrals: route, accuracy, memory."""

    route: str = "auto"
    """One of `ROUTES`; "auto" is "frequency_sum" if the site has a transform, else "spectral"."""
    frequencies: int = 64
    """T, for "frequency_sum"."""
    points: int = 1024
    """K, a power of two, for the other two routes."""
    memory: float = 2.0**29
    """Bytes for a value and its gradient; sites are computed in blocks that fit."""

    def checked(self) -> Integration:
        """Return these settings; `DataError` for numbers out of range."""
        if self.frequencies < 2:
            raise DataError(
                f"frequencies={short_repr(self.frequencies)}: it must be a whole number of at least"
                " 2, for example 64."
            )
        if self.points < 4 or self.points & (self.points - 1):
            raise DataError(
                f"points={short_repr(self.points)}: it must be a power of two, for example 1024."
            )
        return self

    def doubled(self) -> Integration:
        """The same with twice the frequencies and points."""
        return self._replace(frequencies=2 * self.frequencies, points=2 * self.points)


class SiteGroup(NamedTuple):
    """Sites of one kind, functions of y = features w + offset + noise for whitened weights w."""

    site: Site
    features: tf.Tensor
    """[N, D]"""
    offset: tf.Tensor
    """[N], the prior mean of y."""
    noise: tf.Tensor | None = None
    """Variance [N] of y given w, the residual of a GP given inducing variables; None is zero."""

    def first(self) -> SiteGroup:
        """The first site alone, to try what holds for all of them."""
        return SiteGroup(
            self.site._replace(parameters=tuple(part[:1] for part in self.site.parameters)),
            self.features[:1],
            self.offset[:1],
            None if self.noise is None else self.noise[:1],
        )


def frequencies_for(base: Base) -> int:
    """The number T of frequencies that a base distribution needs: 64 for light tails."""
    reach = _usual_reach(base)
    return int(min(64 * math.ceil(1.35 * reach / _LIGHT_TAIL), 512))


def _usual_reach(base: Base) -> float:
    """R at the default shapes; also while a function is traced."""
    with tf.init_scope():
        return float(np.max(base.tail(base.start(base.num_variables or 1)).numpy()))


def points_for(base: Base) -> int:
    """The number K of points for a base distribution: 1024 for most."""
    reach = _usual_reach(base)
    return int(min(max(1024, 2 ** math.ceil(math.log2(50.0 * reach))), 16384))


def integrate(base: Base, y: Projections, site: Site, how: Integration) -> tf.Tensor:
    """Return E g_n(y_n) [N], in nats.

    Minus infinity where it does not exist, as for Poisson sites under heavy tails.
    """
    if base.name == "normal" and how.route == "auto":
        # y is normal: closed form where the site has one, else one variable instead of D
        if site.gauss is not None:
            return site.gauss(y.beta, tf.square(y.spread), *site.parameters)
        y = Projections(y.spread[:, None], y.beta, tf.zeros([1, 0], y.alpha.dtype))
    R, route = reach_of(base, y.theta), choose_route(base, site, how.route)
    size = how.frequencies if route == "frequency_sum" else how.points
    if site.kernel is not None:
        return expectation(base, y, site, R, route, size, how.memory)
    # exp(y) times a normal density has its mass one variance away from the mean: a wider grid
    R += tf.minimum(tf.reduce_max(y.scale), _LARGEST_SHIFT)
    value = expectation(base, y, site, R, route, size, how.memory)
    exists = tf.reduce_all(
        growth_of(site)[:, None] * tf.abs(y.alpha) <= base.exponent(y.theta), axis=1
    )
    return tf.where(exists, value, tf.constant(-math.inf, value.dtype))


def growth_of(site: Site) -> tf.Tensor:
    """Rates c [N] with g_n(y) ~ exp(c abs(y)) on its steeper side; 0 for growth like a power."""
    like = site.parameters[0] if site.parameters else tf.zeros([1], default_float())
    columns = [part[:, None] for part in site.parameters]
    y = (
        tf.constant([_FAR, 2.0 * _FAR, -_FAR, -2.0 * _FAR], like.dtype)
        + tf.zeros_like(like)[:, None]
    )
    size = tf.math.log1p(tf.abs(tf.stop_gradient(site.smooth(y, *columns))))
    rates = tf.maximum(size[:, 1] - size[:, 0], size[:, 3] - size[:, 2]) / _FAR
    return tf.where(rates > _LEAST_RATE, rates, tf.zeros_like(rates))


def reach_of(base: Base, theta: tf.Tensor) -> tf.Tensor:
    """R, the widest range of base variables in standard deviations; a constant scalar."""
    return tf.stop_gradient(tf.reduce_max(base.tail(theta)))
