"""Expectations of sites under projections of independent variables: the three routes behind one door.

| route | needs | error | where |
|---|---|---|---|
| "frequency_sum" (R3) | transforms of the base and of g'' | 1e-10 at 64 frequencies | `expectations.frequency_sum` |
| "spectral" (R2) | transform of the base, any g | 1e-9 at 1024 points, fourth order at kinks of g | `expectations.spectral` |
| "lattice" (R1) | cdf of the base, any g | 1e-3 in a sum over 64 sites at 1024 points | `expectations.lattice` |

The first that base and site allow is taken, or the one that is named. Source: Challis & Barber 2012, with the corrections
and the two new routes of the derivations.
"""

from __future__ import annotations

__all__ = ["ROUTES", "Settled", "Variables", "choose_route", "expectation", "missed_mass", "settle", "widen"]

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from ..errors import DataError, NumericalError, check_option
from .frequency_sum import frequency_sum_expectation
from .lattice import Cdf, lattice_expectation
from .projections import Projections, Site
from .spectral import Transform, spectral_expectation

ROUTES = ("frequency_sum", "spectral", "lattice")
_SIZES = {"frequency_sum": 64, "spectral": 1024, "lattice": 1024}
_DOUBLINGS = 6
_MISSED = 1e-7


class Variables(NamedTuple):
    """What the routes need of the base variables."""

    characteristic: Transform | None
    """Of omega [n, D, T] and theta [D, 1, P]"""
    cdf: Cdf | None
    """Of v [n, D, K] and theta [D, 1, P]"""
    work: int = 12
    """Complex tensors like omega that a value and its gradient hold at once"""


class Settled(NamedTuple):
    """A number that stopped moving."""

    value: tf.Tensor
    """[]"""
    size: int
    """Points, or frequencies, that it took"""
    change: float
    """By which it moved when they were doubled last"""


def choose_route(variables: Variables, site: Site, route: str | None = None) -> str:
    """`route`, or the first of `ROUTES` that base and site allow.

    Raises:
        DataError: what the route needs is not there.
        UnknownOptionError: there is no such route.
    """
    lacking = {
        "frequency_sum": "a characteristic function of the base and a transform of the site"
        if variables.characteristic is None or site.kernel is None or site.gauss is None
        else "",
        "spectral": "a characteristic function of the base" if variables.characteristic is None else "",
        "lattice": "a cdf of the base" if variables.cdf is None else "",
    }
    if route is not None:
        check_option("route", route, ROUTES)
    possible = [name for name in ROUTES if not lacking[name]]
    if route in possible or (route is None and possible):
        return route or possible[0]
    name = route or "lattice"
    others = f"use route={possible[0]!r}" if possible else "give the base one of the two"
    raise DataError(f"the route {name!r} needs {lacking[name]}, which is not known: {others}.")


def expectation(
    variables: Variables,
    y: Projections,
    site: Site,
    R: Any,
    route: str | None = None,
    size: int | None = None,
    memory: float = 2.0**29,
) -> tf.Tensor:
    """E g_n(y_n) [N] over R standard deviations on both sides, by `size` points or frequencies.

    Differentiable in alpha, beta, theta, noise and the parameters of the site. `memory`: bytes that value and gradient of
    a block of sites may take. A lattice that misses mass is widened (`widen`). On a grid, sites that grow faster than the
    density falls have the expectation minus infinity: no grid can tell what it is, and it is always a bound.
    """
    name = choose_route(variables, site, route)
    size = size or _SIZES[name]
    if name == "lattice":
        assert variables.cdf is not None
        R = widen(variables.cdf, y, R)
        return lattice_expectation(variables.cdf, y, site, R, size, memory, variables.work)
    assert variables.characteristic is not None
    chosen = frequency_sum_expectation if name == "frequency_sum" else spectral_expectation
    return chosen(variables.characteristic, y, site, R, size, memory, variables.work)


def settle(evaluate: Callable[[int], tf.Tensor], size: int, tolerance: float = 1e-3, largest: int = 2**16) -> Settled:
    """Double `size` until evaluate(size), a scalar like a sum over sites, moves by less than `tolerance`.

    Raises:
        NumericalError: it still moves at `largest`.
    """
    value = evaluate(size)
    change = float("inf")
    while 2 * size <= largest:
        size, previous = 2 * size, value
        value = evaluate(size)
        change = abs(float(value) - float(previous))
        if change < tolerance:
            return Settled(value, size, change)
    raise NumericalError(
        f"a sum over sites still moves by {change:.2g} at {size} points, more than {tolerance:.2g}: raise the largest "
        "number, or widen the tolerance; use a route by characteristic functions where the base has one."
    )


def missed_mass(cdf: Cdf, y: Projections, R: Any) -> tf.Tensor:
    """A bound [N] for the mass of each term of y beyond R standard deviations of y, summed over the D terms."""
    edge = tf.cast(R, y.alpha.dtype) * y.scale[:, None] / tf.maximum(tf.abs(y.alpha), 1e-30)
    edge = tf.minimum(edge, 1e8)[:, :, None]
    theta = y.theta[:, None, :]
    return tf.reduce_sum(cdf(-edge, theta) + 1.0 - cdf(edge, theta), axis=[1, 2])


def widen(cdf: Cdf, y: Projections, R: Any) -> tf.Tensor:
    """R, doubled until no site has more than 1e-7 of its mass outside (`missed_mass`), six times at most; a scalar.

    Polynomial tails want more than that: there the route by characteristic functions is better. In single precision, where
    a cdf is no better than that, the limit is 1e-5.
    """
    limit = _MISSED if y.alpha.dtype == tf.float64 else 100.0 * _MISSED

    def misses(R: tf.Tensor, doublings: tf.Tensor) -> tf.Tensor:
        return (tf.reduce_max(missed_mass(cdf, y, R)) > limit) & (doublings < _DOUBLINGS)

    start = tf.stop_gradient(tf.cast(R, y.alpha.dtype))
    return tf.stop_gradient(tf.while_loop(misses, lambda R, i: (2.0 * R, i + 1), (start, 0))[0])
