"""E g_n(y_n) over projections of independent base variables, by the route that base and site allow (section 4)."""

from __future__ import annotations

__all__ = ["ROUTES", "Integration", "SiteGroup", "frequencies_for", "integrate", "points_for", "reach_of", "route_of"]

import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ..distributions import Base
from ..errors import DataError, check_option
from ..linalg.frequency_sum import frequency_sum_expectation
from ..linalg.lattice import lattice_expectation
from ..linalg.projections import Projections, Site
from ..linalg.spectral import spectral_expectation

ROUTES = ("auto", "frequency_sum", "spectral", "lattice")
_LARGEST_SHIFT = 2.0
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
    memory: float = 2.0**26
    """Bytes that a tensor over sites, dimensions and frequencies may take: sites are worked through in blocks"""

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


def route_of(site: Site, route: str) -> str:
    """What "auto" stands for with this site. Raises `DataError` for a frequency sum over a site without a transform."""
    if route == "frequency_sum" and site.kernel is None:
        raise DataError("these sites have no transform: use the route 'auto', 'spectral' or 'lattice'.")
    if route != "auto":
        return route
    return "spectral" if site.kernel is None else "frequency_sum"


def integrate(base: Base, y: Projections, site: Site, how: Integration) -> tf.Tensor:
    """E g_n(y_n) [N] in nats; a normal base needs no more than mean and variance [N] where the site knows that integral."""
    route = route_of(site, how.route)
    if base.name == "normal" and how.route == "auto":
        if site.gauss is not None:
            return site.gauss(y.beta, tf.square(y.spread), *site.parameters)
        y = Projections(y.spread[:, None], y.beta, tf.zeros([1, 0], y.alpha.dtype))
    R = reach_of(base, y.theta)
    if site.kernel is None:  # it may grow like exp(y), which moves what matters by a variance
        R += tf.minimum(tf.reduce_max(y.scale), _LARGEST_SHIFT)
    if route == "lattice":
        return lattice_expectation(base.cdf, y, site, R, how.points, how.memory, base.work)
    if route == "spectral":
        return spectral_expectation(base.characteristic, y, site, R, how.points, how.memory, base.work)
    return frequency_sum_expectation(base.characteristic, y, site, R, how.frequencies, how.memory, base.work)


def reach_of(base: Base, theta: tf.Tensor) -> tf.Tensor:
    """R, the widest tail of the base variables, in standard deviations; a scalar that is not differentiated."""
    return tf.stop_gradient(tf.reduce_max(base.tail(theta)))
