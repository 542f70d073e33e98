"""The interface of three routes to E g(y), y = sum_d alpha_d v_d + beta with independent v_d."""

# | route | needs | error |
# |---|---|---|
# | "frequency_sum" | characteristic function, transform of g'' | 1e-10 at 64 frequencies |
# | "spectral" | characteristic function, any g | 1e-9 at 1024 points; fourth order at kinks |
# | "lattice" | cdf, any g | 1e-3 in a sum over 64 sites, at 1024 points |
#
# The default is the first route that base distribution and site allow (lattice: Challis & Barber
# 2012).

from __future__ import annotations

__all__ = ["ROUTES", "Variables", "choose_route", "expectation", "missed_mass", "widen"]

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from ..errors import DataError, check_option
from .frequency_sum import frequency_sum_expectation
from .lattice import Cdf, lattice_expectation
from .projections import Projections, Reach, Site
from .spectral import Transform, spectral_expectation

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
