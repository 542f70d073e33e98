"""The interface of three routes to E g(y), y = sum_d alpha_d v_d + beta with independent v_d."""

from __future__ import annotations

__all__ = [
    "ROUTES", "Variables", "as_complex", "cell_masses", "check_points", "choose_route",
    "convolve", "expectation", "frequency_sum_expectation", "lattice_expectation",
    "missed_mass", "spectral_density", "spectral_expectation", "transform_of", "where_decayed",
    "widen",
]  # fmt: skip

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ..errors import DataError, check_option
from ..special import normal_cdf
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


_END = 64
"""The outermost cells are one in 64 on each side."""


def where_decayed(value: tf.Tensor, terms: tf.Tensor, otherwise: float) -> tf.Tensor:
    """Return sums `value` [...] of `terms` [..., K], or `otherwise` if the ends hold much of it."""
    # Such a sum continues beyond the grid. The limit is 1e-3 in single precision.
    limit = 1e-5 if terms.dtype == tf.float64 else 1e-3
    size = tf.abs(tf.stop_gradient(terms))
    cells = max(int(terms.shape[-1]) // _END, 1)
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
    return phi * (as_complex(decay) if phi.dtype.is_complex else decay)


def as_complex(x: tf.Tensor) -> tf.Tensor:
    """x [...] as a complex tensor; the gradient of `tf.cast` warns."""
    return x if x.dtype.is_complex else tf.complex(x, tf.zeros_like(x))


def check_points(K: int) -> None:
    """Raise `DataError` unless K is a power of two of at least 4."""
    if not isinstance(K, int | np.integer) or K < 4 or K & (K - 1):
        raise DataError(f"K={K}: the number of points must be a power of two, for example 1024.")


def spectral_density(
    characteristic: Transform, y: Projections, R: Reach, K: int = 1024, averaged: bool = False
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return values y_k and the density of y there, [N, K] each, by (A10).

    :param characteristic: at omega [n, D, T], for theta [D, 1, P].
    """
    # The error is the mass beyond R standard deviations plus the characteristic function beyond pi
    # / step.
    check_points(K)
    check_projections(y)
    u, q = _density(characteristic, y.alpha, y.noise, y.scale, y.theta, R, K, averaged)
    return y.beta[:, None] + u, q


def _density(
    characteristic: Transform,
    alpha: tf.Tensor,
    noise: tf.Tensor | None,
    scale: tf.Tensor,
    theta: tf.Tensor,
    R: Reach,
    K: int,
    averaged: bool = False,
) -> tuple[tf.Tensor, tf.Tensor]:
    step = 2.0 * tf.cast(R, alpha.dtype) * scale[:, None] / K
    places = tf.range(K // 2 + 1, dtype=alpha.dtype)
    omega = 2.0 * math.pi / (K * step) * places
    phi = transform_of(characteristic, alpha, noise, omega, theta)
    # the signs shift the mean to the middle of the grid; a sinc averages over cells
    filters = (-1.0) ** np.arange(K // 2 + 1) * (
        np.sinc(np.arange(K // 2 + 1) / K) if averaged else 1.0
    )
    phi = tf.math.conj(as_complex(phi)) * as_complex(tf.constant(filters, alpha.dtype))
    q = tf.signal.irfft(phi, fft_length=[K]) / step  # (A10)
    return (tf.range(K, dtype=alpha.dtype) - K // 2) * step, q


def spectral_expectation(
    characteristic: Transform,
    y: Projections,
    site: Site,
    R: Reach,
    K: int = 1024,
    memory: float = 2.0**29,
    work: int = 12,
) -> tf.Tensor:
    """Return E g_n(y_n) [N], differentiable in y's arrays and the site's parameters.

    Minus infinity where the grid ends before g times the density has decayed. Kinks are corrected
    to the fourth order of the step.

    :param characteristic: at omega [n, D, T], for theta [D, 1, P].
    :param memory: bytes that `work` complex tensors [n, D, K/2 + 1] may take.
    """
    check_points(K)
    check_projections(y, site)
    noisy = y.noise is not None

    def block(
        alpha: tf.Tensor, beta: tf.Tensor, noise: tf.Tensor, scale: tf.Tensor, *rest: tf.Tensor
    ) -> tf.Tensor:
        *parameters, theta = rest
        u, q = _density(characteristic, alpha, noise if noisy else None, scale, theta, R, K)
        columns = [part[:, None] for part in parameters]
        return _expected(beta[:, None] + u, q, u[:, 1:2] - u[:, :1], site, columns)

    rows = rows_of(memory, y.alpha.shape[1], K // 2 + 1, work, y.alpha.dtype)
    return map_blocks(block, [*y.per_site, *site.parameters], [y.theta], rows)


def _expected(
    values: tf.Tensor, q: tf.Tensor, step: tf.Tensor, site: Site, columns: list[tf.Tensor]
) -> tf.Tensor:
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


def frequency_sum_expectation(
    characteristic: Transform,
    y: Projections,
    site: Site,
    R: Reach,
    T: int = 64,
    memory: float = 2.0**29,
    work: int = 12,
) -> tf.Tensor:
    """Return E g_n(y_n) [N] by (A11), differentiable in y's arrays and the site's parameters.

    :param characteristic: at omega [n, D, T], for theta [D, 1, P].
    :param T: number of frequencies (A13). 64 give 1e-10 for light tails, R <= 10; T must grow in
        proportion to R.
    :param memory: bytes that `work` complex tensors [n, D, T] may take.
    """
    check_projections(y, site)
    transform, reference = site.kernel, site.gauss
    if transform is None or reference is None:
        raise DataError("This site has no transform: use the route 'spectral' or 'lattice'.")
    if T < 2:
        raise DataError(f"T={T}: the sum needs at least two frequencies, for example 64.")
    reach = tf.cast(R, y.alpha.dtype)

    def block(
        alpha: tf.Tensor, beta: tf.Tensor, noise: tf.Tensor, scale: tf.Tensor, *rest: tf.Tensor
    ) -> tf.Tensor:
        *parameters, theta = rest
        shift = beta if site.centre is None else beta - site.centre(*parameters)
        omega, weight, shift = _rule(site, shift, scale, parameters, reach, T)
        variance = tf.reduce_sum(tf.square(alpha), axis=1) + noise
        phi = transform_of(characteristic, alpha, None if y.noise is None else noise, omega, theta)
        gauss = tf.exp(-0.5 * variance[:, None] * tf.square(omega))
        kernel = (
            transform(omega, *(part[:, None] for part in parameters)) * weight / tf.square(omega)
        )
        phase = omega * shift[:, None]
        terms = tf.cos(phase) * (gauss - tf.math.real(phi))
        # symmetric densities have a real transform, and no sines
        if phi.dtype.is_complex:
            terms += tf.sin(phase) * tf.math.imag(phi)
        return (
            reference(beta, variance, *parameters) + tf.reduce_sum(kernel * terms, axis=1) / math.pi
        )  # (A11)

    rows = rows_of(memory, y.alpha.shape[1], T, work, y.alpha.dtype)
    return map_blocks(block, [*y.per_site, *site.parameters], [y.theta], rows)


def _rule(
    site: Site,
    shift: tf.Tensor,
    spread: tf.Tensor,
    parameters: list[tf.Tensor],
    R: tf.Tensor,
    T: int,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    # By (A13), or Gauss-Legendre nodes up to the site's `cutoff`; not differentiated. The distance
    # is clipped to where y has mass, as the sum is periodic.
    if site.cutoff is not None:
        nodes, weights = (
            tf.constant(part, shift.dtype) for part in np.polynomial.legendre.leggauss(T)
        )
        half = 0.5 * tf.stop_gradient(site.cutoff(spread, *parameters))[:, None]
        return half * (nodes + 1.0), half * weights, shift
    width = tf.zeros_like(shift) if site.width is None else site.width(*parameters)
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
_FAR = 1e8
"""Replaces an infinite argument of a cdf."""


def cell_masses(cdf: Cdf, alpha: tf.Tensor, theta: tf.Tensor, step: tf.Tensor, K: int) -> tf.Tensor:
    """Masses [n, D, K] of alpha_d v_d in cells at (k - K/2) step, (A8); outer cells are open.

    `cdf` takes v [n, D, K - 1], for theta [D, 1, P]; alpha is [n, D], theta [D, P], step [n].
    """
    small = tf.sqrt(tf.constant(tiny(alpha), alpha.dtype))
    sign = tf.where(alpha < 0.0, -tf.ones_like(alpha), tf.ones_like(alpha))
    safe = tf.where(tf.abs(alpha) < small, sign * small, alpha)[:, :, None]
    edges = tf.constant(np.arange(1, K) - 0.5 * K - 0.5, alpha.dtype) * step[:, None, None]
    v = tf.clip_by_value(edges / safe, -_FAR, _FAR)
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
        spectra = tf.signal.rfft(_on_ring(masses, K))
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


def _on_ring(masses: tf.Tensor, K: int) -> tf.Tensor:
    gap = tf.zeros_like(masses)
    return tf.concat([masses[..., K // 2 :], gap, masses[..., : K // 2]], axis=-1)


def _summed(
    cdf: Cdf,
    alpha: tf.Tensor,
    noise: tf.Tensor,
    scale: tf.Tensor,
    theta: tf.Tensor,
    R: Reach,
    K: int,
    noisy: bool,
) -> tuple[tf.Tensor, tf.Tensor]:
    step = 2.0 * tf.cast(R, alpha.dtype) * scale / K
    masses = cell_masses(cdf, alpha, theta, step, K)
    if noisy:
        root = tf.sqrt(tf.maximum(noise, tiny(alpha)))[:, None]
        masses = tf.concat(
            [masses, cell_masses(lambda v, _: normal_cdf(v), root, theta, step, K)], axis=1
        )
    return step[:, None] * tf.range(-K, K, dtype=alpha.dtype), convolve(masses)


def lattice_expectation(
    cdf: Cdf,
    y: Projections,
    site: Site,
    R: Reach,
    K: int = 1024,
    memory: float = 2.0**29,
    work: int = 12,
    matched: bool = True,
) -> tf.Tensor:
    """Return E g_n(y_n) [N], differentiable in y's arrays and the site's parameters.

    The error falls at least 16-fold when K grows fourfold. Minus infinity where the lattice ends
    before g times the density has decayed.

    :param cdf: at v [n, D, K - 1], for theta [D, 1, P].
    :param memory: bytes that `work` complex tensors [n, D, K + 1] may take.
    """
    check_points(K)
    check_projections(y, site)
    noisy = y.noise is not None

    def block(
        alpha: tf.Tensor, beta: tf.Tensor, noise: tf.Tensor, scale: tf.Tensor, *rest: tf.Tensor
    ) -> tf.Tensor:
        *parameters, theta = rest
        u, rho = _summed(cdf, alpha, noise, scale, theta, R, K, noisy)
        width = tf.stop_gradient(u[:, 1:2] - u[:, :1])
        if matched:
            variance = tf.reduce_sum(tf.square(alpha), axis=1, keepdims=True) + noise[:, None]
            u, width = _matched(u, rho, variance, width, averaged=site.kink is not None)
        columns = [part[:, None] for part in parameters]
        values = beta[:, None] + u
        g = site.smooth(values, *columns)
        if site.kink is not None:
            place, slope = site.kink(*columns)
            g += slope * _cell_average(values - place, width)
        return where_decayed(tf.reduce_sum(rho * g, axis=1), rho * g, -math.inf)

    rows = rows_of(memory, y.alpha.shape[1] + noisy, K + 1, work, y.alpha.dtype)
    return map_blocks(block, [*y.per_site, *site.parameters], [y.theta], rows)


def _matched(
    u: tf.Tensor, rho: tf.Tensor, variance: tf.Tensor, width: tf.Tensor, averaged: bool
) -> tuple[tf.Tensor, tf.Tensor]:
    mean = tf.reduce_sum(rho * u, axis=1, keepdims=True)
    on_lattice = tf.reduce_sum(rho * tf.square(u - mean), axis=1, keepdims=True)
    if averaged:
        on_lattice += tf.square(width) / 12.0
    ratio = tf.sqrt(variance / on_lattice)
    return (u - mean) * ratio, width * ratio


def _cell_average(u: tf.Tensor, width: tf.Tensor) -> tf.Tensor:
    inside = 0.25 * width + tf.square(u) / width
    return tf.where(tf.abs(u) >= 0.5 * width, tf.abs(u), inside)  # (A9)


# ---


# | route | needs | error |
# |---|---|---|
# | "frequency_sum" | characteristic function, transform of g'' | 1e-10 at 64 frequencies |
# | "spectral" | characteristic function, any g | 1e-9 at 1024 points; fourth order at kinks |
# | "lattice" | cdf, any g | 1e-3 in a sum over 64 sites, at 1024 points |
#
# The default is the first route that base distribution and site allow (lattice: Challis & Barber
# 2012).


_DOUBLINGS = 6  # of a lattice's range, at most
_MISSED = 1e-7  # mass outside of a lattice that is small enough


class Variables(NamedTuple):
    """The functions of the base distribution that the routes use."""

    characteristic: Transform | None
    """Characteristic functions at omega [n, D, T], for shapes theta [D, 1, P]."""
    cdf: Cdf | None
    """Cdfs at v [n, D, K], for shapes theta [D, 1, P]."""
    work: int = 12
    """Complex tensors of the size of omega that a value and its gradient hold at once."""


class _Route(NamedTuple):
    evaluate: Callable[[Variables, Projections, Site, Reach, int, float], tf.Tensor]
    """(variables, y, site, R, frequencies or points, bytes of memory) -> E g_n(y_n) [N]."""
    lacks: Callable[[Variables, Site], str]
    """The route's missing requirement, or ""."""
    size: int
    """Default number of frequencies or points."""


def _by_frequency_sum(
    variables: Variables, y: Projections, site: Site, R: Reach, size: int, memory: float
) -> tf.Tensor:
    assert variables.characteristic is not None
    return frequency_sum_expectation(
        variables.characteristic, y, site, R, size, memory, variables.work
    )


def _by_spectrum(
    variables: Variables, y: Projections, site: Site, R: Reach, size: int, memory: float
) -> tf.Tensor:
    assert variables.characteristic is not None
    return spectral_expectation(variables.characteristic, y, site, R, size, memory, variables.work)


def _by_lattice(
    variables: Variables, y: Projections, site: Site, R: Reach, size: int, memory: float
) -> tf.Tensor:
    assert variables.cdf is not None
    R = widen(variables.cdf, y, R)
    return lattice_expectation(variables.cdf, y, site, R, size, memory, variables.work)


def _frequency_sum_lacks(variables: Variables, site: Site) -> str:
    known = (
        variables.characteristic is not None and site.kernel is not None and site.gauss is not None
    )
    return (
        ""
        if known
        else "a characteristic function of the base distribution and a transform of the site"
    )


def _spectrum_lacks(variables: Variables, site: Site) -> str:
    return (
        ""
        if variables.characteristic is not None
        else "a characteristic function of the base distribution"
    )


def _lattice_lacks(variables: Variables, site: Site) -> str:
    return "" if variables.cdf is not None else "a cdf of the base distribution"


ROUTES = {
    "frequency_sum": _Route(_by_frequency_sum, _frequency_sum_lacks, 64),
    "spectral": _Route(_by_spectrum, _spectrum_lacks, 1024),
    "lattice": _Route(_by_lattice, _lattice_lacks, 1024),
}
"""The routes, best first."""


def choose_route(variables: Variables, site: Site, route: str | None = None) -> str:
    """Return `route`, or the first of `ROUTES` that base distribution and site allow."""
    if route is not None:
        check_option("route", route, ROUTES)
    possible = [name for name, one in ROUTES.items() if not one.lacks(variables, site)]
    if route in possible or (route is None and possible):
        return route or possible[0]
    name = route or "lattice"
    others = (
        f"use route={possible[0]!r}" if possible else "give the base distribution one of the two"
    )
    raise DataError(
        f"The route {name!r} needs {ROUTES[name].lacks(variables, site)}, which is not known:"
        f" {others}."
    )


def expectation(
    variables: Variables,
    y: Projections,
    site: Site,
    R: Reach,
    route: str | None = None,
    size: int | None = None,
    memory: float = 2.0**29,
) -> tf.Tensor:
    """Return E g_n(y_n) [N], differentiable in alpha, beta, theta, noise and site parameters.

    Minus infinity where g_n outgrows the density of y_n.

    :param R: half range of the grid in standard deviations of y_n; `widen` enlarges a lattice.
    :param route: one of `ROUTES`; by default the first possible one.
    :param size: number of frequencies or points; by default the route's.
    """
    name = choose_route(variables, site, route)
    return ROUTES[name].evaluate(variables, y, site, R, size or ROUTES[name].size, memory)


def missed_mass(cdf: Cdf, y: Projections, R: Reach) -> tf.Tensor:
    """Bound [N] on the mass of y_n beyond R standard deviations, summed over its D terms."""
    edge = tf.cast(R, y.alpha.dtype) * y.scale[:, None] / tf.maximum(tf.abs(y.alpha), 1e-30)
    edge = tf.minimum(edge, 1e8)[:, :, None]
    theta = y.theta[:, None, :]
    return tf.reduce_sum(cdf(-edge, theta) + 1.0 - cdf(edge, theta), axis=[1, 2])


def widen(cdf: Cdf, y: Projections, R: Reach) -> tf.Tensor:
    """Double R, at most six times, until every site has at most 1e-7 of its mass outside."""
    # Polynomial tails need a characteristic function instead. In single precision the limit is
    # 1e-5.
    limit = _MISSED if y.alpha.dtype == tf.float64 else 100.0 * _MISSED

    def misses(R: tf.Tensor, doublings: tf.Tensor) -> tf.Tensor:
        return (tf.reduce_max(missed_mass(cdf, y, R)) > limit) & (doublings < _DOUBLINGS)

    start = tf.stop_gradient(tf.cast(R, y.alpha.dtype))
    return tf.stop_gradient(tf.while_loop(misses, lambda R, i: (2.0 * R, i + 1), (start, 0))[0])
