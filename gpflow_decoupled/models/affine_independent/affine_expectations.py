"""Expected log densities under a non-Gaussian q."""

from __future__ import annotations

__all__ = ["expected_log_densities", "resolution_of"]

import tensorflow as tf

from ...distributions import Base
from ...distributions.closed_form import NormalBase
from ...expectations.projections import Projections, Site
from ...expectations.site_integrals import Integration, integrate, route_of
from ..expectations import Moments, Resolution


def expected_log_densities(
    base: Base, site: Site, moments: Moments, how: Integration, doublings: int
) -> tf.Tensor:
    """E log p(y_n | f_n) [N] in nats, by Fourier transforms.

    Without projections in `moments` f is Gaussian, [N, 1].
    """
    for _ in range(doublings):
        how = how.doubled()
    if moments.projections is not None:
        return integrate(base, moments.projections, site, how)
    m, v = moments.mean, moments.variance
    y = Projections(tf.sqrt(v), m[:, 0], tf.zeros([1, 0], m.dtype))
    return integrate(NormalBase(), y, site, how._replace(route="auto"))


def resolution_of(base: Base, site: Site, how: Integration) -> Resolution:
    """The number of frequencies, or grid points, of these sites' route."""
    if route_of(base, site, how.route) == "frequency_sum":
        return Resolution("frequencies", how.frequencies)
    return Resolution("points", how.points)
