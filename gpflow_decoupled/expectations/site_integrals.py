"""E g_n(y_n) over projections of independent base variables, by the route that base and site allow (section 4)."""

from __future__ import annotations

__all__ = [
    "ROUTES",
    "Integration",
    "SiteGroup",
    "frequencies_for",
    "growth_of",
    "integrate",
    "points_for",
    "reach_of",
    "route_of",
]

import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.config import default_float

from ..distributions import Base
from ..errors import DataError, check_option
from . import fourier
from .fourier import Variables, choose_route, expectation
from .projections import Projections, Site

ROUTES = ("auto", *fourier.ROUTES)
_LARGEST_SHIFT = 2.0
_FAR, _LEAST_RATE = 40.0, 0.2
"""Where growth is looked for: abs(y)^8 still counts as a power there, and exp(y) is finite in single precision."""
_LIGHT_TAIL = 10.0
"""The reach that 64 frequencies are enough for."""


class Integration(NamedTuple):
    """How sites are integrated."""

    route: str = "auto"
    """"frequency_sum" where the site has a transform and "spectral" where it has not, or one of `ROUTES`"""
    frequencies: int = 64
    """T of the frequency sum"""
    points: int = 1024
    """K of the other two, a power of two"""
    memory: float = 2.0**29
    """Bytes that value and gradient may take: sites are worked through in blocks"""

    def checked(self, base: Base) -> Integration:
        """Itself. Raises `UnknownOptionError` or `DataError` for settings that cannot be, or not with this base."""
        check_option("route", self.route, ROUTES)
        if not isinstance(self.frequencies, int | np.integer) or self.frequencies < 2:
            raise DataError(
                f"frequencies={self.frequencies!r}: it must be a whole number of 2 at least, for example 64."
            )
        if not isinstance(self.points, int | np.integer) or self.points < 4 or self.points & (self.points - 1):
            raise DataError(f"points={self.points!r}: it must be a power of two, for example 1024.")
        if not self.memory > 0.0:
            raise DataError(f"memory={self.memory!r}: it must be above 0, a number of bytes.")
        if self.route == "lattice" and not base.has_cdf:
            raise DataError(f"the base '{base.name}' has no cdf: use the route 'spectral' or 'frequency_sum'.")
        return self

    def doubled(self) -> Integration:
        """Twice as fine."""
        return self._replace(frequencies=2 * self.frequencies, points=2 * self.points)


class SiteGroup(NamedTuple):
    """Sites of one kind: y = features w~ + offset + noise, for whitened w~."""

    site: Site
    features: tf.Tensor
    """[N, D]"""
    offset: tf.Tensor
    """[N]"""
    noise: tf.Tensor | None = None
    """[N]: variance of what a Gaussian process has beside its inducing variables"""


def frequencies_for(base: Base) -> int:
    """T that is enough for a base in all its likely shapes: 64 for light tails, and in proportion to them."""
    reach = _usual_reach(base)
    return int(min(64 * math.ceil(1.35 * reach / _LIGHT_TAIL), 512))


def _usual_reach(base: Base) -> float:
    """R at the default shape, also while tracing."""
    with tf.init_scope():
        return float(np.max(base.tail(base.start(1)).numpy()))


def points_for(base: Base) -> int:
    """K that is enough for a base in all its likely shapes: 1024 for most."""
    reach = _usual_reach(base)
    return int(min(max(1024, 2 ** math.ceil(math.log2(50.0 * reach))), 16384))


def route_of(base: Base, site: Site, route: str) -> str:
    """What "auto" stands for with this base and site. Raises `DataError` where they do not allow a route that is named."""
    return choose_route(_variables(base), site, None if route == "auto" else route)


def _variables(base: Base) -> Variables:
    return Variables(base.characteristic, base.cdf if base.has_cdf else None, base.work)


def integrate(base: Base, y: Projections, site: Site, how: Integration) -> tf.Tensor:
    """E g_n(y_n) [N] in nats; a normal base needs no more than mean and variance [N] where the site knows that integral.

    Minus infinity where the expectation of a site that grows exponentially, like the Poisson likelihood's, does not exist.
    """
    if base.name == "normal" and how.route == "auto":
        if site.gauss is not None:
            return site.gauss(y.beta, tf.square(y.spread), *site.parameters)
        y = Projections(y.spread[:, None], y.beta, tf.zeros([1, 0], y.alpha.dtype))
    R, route = reach_of(base, y.theta), route_of(base, site, how.route)
    size = how.frequencies if route == "frequency_sum" else how.points
    if site.kernel is not None:
        return expectation(_variables(base), y, site, R, route, size, how.memory)
    R += tf.minimum(tf.reduce_max(y.scale), _LARGEST_SHIFT)  # growth like exp(y) moves what matters by a variance
    value = expectation(_variables(base), y, site, R, route, size, how.memory)
    exists = tf.reduce_all(growth_of(site)[:, None] * tf.abs(y.alpha) <= base.exponent(y.theta), axis=1)
    return tf.where(exists, value, tf.constant(-math.inf, value.dtype))


def growth_of(site: Site) -> tf.Tensor:
    """The rates c [N] such that g_n(y) grows like exp(c abs(y)) on its steeper side; 0 for growth like that of powers."""
    like = site.parameters[0] if site.parameters else tf.zeros([1], default_float())
    columns = [part[:, None] for part in site.parameters]
    y = tf.constant([_FAR, 2.0 * _FAR, -_FAR, -2.0 * _FAR], like.dtype) + tf.zeros_like(like)[:, None]
    size = tf.math.log1p(tf.abs(tf.stop_gradient(site.smooth(y, *columns))))
    rates = tf.maximum(size[:, 1] - size[:, 0], size[:, 3] - size[:, 2]) / _FAR
    return tf.where(rates > _LEAST_RATE, rates, tf.zeros_like(rates))


def reach_of(base: Base, theta: tf.Tensor) -> tf.Tensor:
    """R, the widest tail of the base variables, in standard deviations; a scalar that is not differentiated."""
    return tf.stop_gradient(tf.reduce_max(base.tail(theta)))
