"""E g_n(y_n) for a model's sites."""

from __future__ import annotations

__all__ = [
    "Integration", "ROUTES", "SiteGroup", "frequencies_for", "growth_of", "integrate",
    "points_for", "reach_of", "route_of",
]  # fmt: skip

import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.config import default_float

from ..distributions import Base
from ..errors import DataError, check_option
from ..summaries import short_repr
from . import fourier
from .fourier import Variables, choose_route, expectation
from .projections import Projections, Site

ROUTES = ("auto", *fourier.ROUTES)
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

    def checked(self, base: Base) -> Integration:
        """Return these settings after checks; `DataError` for numbers or a route out of range."""
        check_option("route", self.route, ROUTES)
        if not isinstance(self.frequencies, int | np.integer) or self.frequencies < 2:
            raise DataError(
                f"frequencies={short_repr(self.frequencies)}: it must be a whole number of at least"
                " 2, for example 64."
            )
        if (
            not isinstance(self.points, int | np.integer)
            or self.points < 4
            or self.points & (self.points - 1)
        ):
            raise DataError(
                f"points={short_repr(self.points)}: it must be a power of two, for example 1024."
            )
        if not self.memory > 0.0:
            raise DataError(
                f"memory={short_repr(self.memory)}: it must be a number of bytes above 0, for"
                " example 2.0**29."
            )
        if self.route == "lattice" and not base.has_cdf:
            raise DataError(
                f"The base distribution '{base.name}' has no cdf: use the route 'spectral' or"
                " 'frequency_sum'."
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


def route_of(base: Base, site: Site, route: str) -> str:
    """The route for a base distribution and a site, where `route` may be "auto"."""
    return choose_route(_variables(base), site, None if route == "auto" else route)


def _variables(base: Base) -> Variables:
    return Variables(base.characteristic, base.cdf if base.has_cdf else None, base.work)


def integrate(base: Base, y: Projections, site: Site, how: Integration) -> tf.Tensor:
    """Return E g_n(y_n) [N], in nats.

    Minus infinity where it does not exist, as for Poisson sites under heavy tails.
    """
    if base.name == "normal" and how.route == "auto":
        # y is normal: closed form where the site has one, else one variable instead of D
        if site.gauss is not None:
            return site.gauss(y.beta, tf.square(y.spread), *site.parameters)
        y = Projections(y.spread[:, None], y.beta, tf.zeros([1, 0], y.alpha.dtype))
    R, route = reach_of(base, y.theta), route_of(base, site, how.route)
    size = how.frequencies if route == "frequency_sum" else how.points
    if site.kernel is not None:
        return expectation(_variables(base), y, site, R, route, size, how.memory)
    # exp(y) times a normal density has its mass one variance away from the mean: a wider grid
    R += tf.minimum(tf.reduce_max(y.scale), _LARGEST_SHIFT)
    value = expectation(_variables(base), y, site, R, route, size, how.memory)
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
