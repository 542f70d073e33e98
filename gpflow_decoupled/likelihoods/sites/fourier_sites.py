"""Sites of affine-independent inference whose second derivative has a closed transform: the table of section 4.3.

| site | log g(y) | parameters [N] |
|---|---|---|
| `logistic_site` | log sigma(kappa y), kappa = tau c | kappa, of either sign |
| `laplace_site` | -abs(y - y_0) / tau - log 2 tau | y_0, tau |
| `student_t_site` | Student-t density of (y - y_0) / s, nu degrees of freedom | y_0, s, nu |
| `gaussian_site` | normal density of y - y_0, standard deviation s | y_0, s |

All are exact log densities, so that bounds on log Z come out normalised, and all are differentiable in their parameters.
"""

from __future__ import annotations

__all__ = ["gaussian_site", "laplace_site", "logistic_site", "student_t_site"]

import math
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from ...expectations.logit_integrals import softplus_mean
from ...expectations.projections import Site
from ...special.elementary import normal_cdf, x_over_sinh

_HALF_LOG_2_PI = 0.5 * math.log(2.0 * math.pi)
_LEGENDRE, _REACH = 96, 8.5


def logistic_site(kappa: tf.Tensor) -> Site:
    """Log sigma(kappa y) for kappa [N], the label's sign times the slope, not zero."""

    def gauss(m: tf.Tensor, variance: tf.Tensor, kappa: tf.Tensor) -> tf.Tensor:
        root = tf.sqrt(tf.maximum(variance, 1e-30))
        return -softplus_mean(-kappa * m, tf.abs(kappa) * root)

    return Site(
        smooth=lambda y, kappa: -tf.nn.softplus(-kappa * y),
        parameters=(kappa,),
        kernel=lambda omega, kappa: -tf.abs(kappa) * x_over_sinh(math.pi * omega / kappa),
        gauss=gauss,
        width=lambda kappa: 30.0 / tf.abs(kappa),  # (A13)
    )


def laplace_site(y_0: tf.Tensor, tau: tf.Tensor) -> Site:
    """The Laplace density of y about y_0 [N] with scale tau [N]: a likelihood, or a prior of a weight."""

    def gauss(m: tf.Tensor, variance: tf.Tensor, y_0: tf.Tensor, tau: tf.Tensor) -> tf.Tensor:
        spread = tf.sqrt(tf.maximum(variance, 1e-30))
        t = (m - y_0) / spread
        density = tf.exp(-0.5 * tf.square(t) - _HALF_LOG_2_PI)
        distance = 2.0 * spread * density + (m - y_0) * (1.0 - 2.0 * normal_cdf(-t))
        return -distance / tau - tf.math.log(2.0 * tau)

    return Site(
        smooth=lambda y, y_0, tau: tf.zeros_like(y) - tf.math.log(2.0 * tau),
        parameters=(y_0, tau),
        kink=lambda y_0, tau: (y_0, -1.0 / tau),
        kernel=lambda omega, y_0, tau: tf.zeros_like(omega) - 2.0 / tau,
        gauss=gauss,
        centre=lambda y_0, tau: y_0,
    )


def student_t_site(y_0: tf.Tensor, s: tf.Tensor, nu: tf.Tensor, transform: bool = False) -> Site:
    """The Student-t density of y about y_0 [N] with scale s [N] and nu [N] degrees of freedom.

    Its route is "spectral". With `transform` it is the frequency sum, for means of y close to y_0 only: T Gauss-Legendre
    nodes resolve a distance of 1.6 T over the last frequency, 3 s sqrt(nu) at 64, and an outlier is off by 0.1 nats.
    """

    def smooth(y: tf.Tensor, y_0: tf.Tensor, s: tf.Tensor, nu: tf.Tensor) -> tf.Tensor:
        rest = tf.math.lgamma(0.5 * nu) + 0.5 * tf.math.log(math.pi * nu) + tf.math.log(s)
        decay = 0.5 * (nu + 1.0) * tf.math.log1p(tf.square((y - y_0) / s) / nu)
        return tf.math.lgamma(0.5 * (nu + 1.0)) - rest - decay

    def gauss(m: tf.Tensor, variance: tf.Tensor, y_0: tf.Tensor, s: tf.Tensor, nu: tf.Tensor) -> tf.Tensor:
        return _normal_expectation(smooth, m, variance, y_0, s * tf.sqrt(nu), (y_0, s, nu))

    def kernel(omega: tf.Tensor, y_0: tf.Tensor, s: tf.Tensor, nu: tf.Tensor) -> tf.Tensor:
        return -(nu + 1.0) * math.pi * omega * tf.exp(-s * tf.sqrt(nu) * omega)

    return Site(
        smooth=smooth,
        parameters=(y_0, s, nu),
        kernel=kernel if transform else None,
        gauss=gauss,
        centre=lambda y_0, s, nu: y_0,
        cutoff=lambda spread, y_0, s, nu: tf.minimum(35.0 / (s * tf.sqrt(nu)), 60.0 / spread),
    )


def gaussian_site(y_0: tf.Tensor, s: tf.Tensor) -> Site:
    """The normal density of y about y_0 [N] with standard deviation s [N]: only the moments of y enter."""

    def smooth(y: tf.Tensor, y_0: tf.Tensor, s: tf.Tensor) -> tf.Tensor:
        return -0.5 * tf.square((y - y_0) / s) - tf.math.log(s) - _HALF_LOG_2_PI

    def gauss(m: tf.Tensor, variance: tf.Tensor, y_0: tf.Tensor, s: tf.Tensor) -> tf.Tensor:
        return smooth(m, y_0, s) - 0.5 * variance / tf.square(s)

    return Site(
        smooth=smooth,
        parameters=(y_0, s),
        kernel=lambda omega, y_0, s: tf.zeros_like(omega),
        gauss=gauss,
        centre=lambda y_0, s: y_0,
    )


def _normal_expectation(
    g: Callable[..., tf.Tensor],
    m: tf.Tensor,
    variance: tf.Tensor,
    y_0: tf.Tensor,
    width: tf.Tensor,
    parameters: tuple[tf.Tensor, ...],
) -> tf.Tensor:
    """E g under N(m, variance), [n] each, for g that changes over `width` about y_0 [n], to 1e-10.

    Gauss-Legendre nodes: of z with y = m + spread z where the normal is the narrower, else of t with
    y = y_0 + width sinh t, which spreads them evenly over the peak of g and over the tails.
    """
    spread = tf.sqrt(tf.maximum(variance, 1e-30))
    narrow = (spread < 0.5 * width)[:, None]
    nodes, weights = (tf.constant(part, m.dtype) for part in np.polynomial.legendre.leggauss(_LEGENDRE))
    z = _REACH * nodes
    mass = _REACH * weights * tf.exp(-0.5 * tf.square(z) - _HALF_LOG_2_PI)

    wide = tf.maximum(spread, 0.1 * width)[:, None]
    ends = (
        tf.stop_gradient(tf.asinh(((m - y_0)[:, None] + side * wide) / width[:, None])) for side in (-_REACH, _REACH)
    )
    low, high = ends
    t = 0.5 * (high + low) + 0.5 * (high - low) * nodes
    y_wide = y_0[:, None] + width[:, None] * tf.sinh(t)
    density = tf.exp(-0.5 * tf.square((y_wide - m[:, None]) / wide) - _HALF_LOG_2_PI) / wide
    mass_wide = width[:, None] * tf.cosh(t) * 0.5 * (high - low) * weights * density

    y = tf.where(narrow, m[:, None] + spread[:, None] * z, y_wide)
    return tf.reduce_sum(tf.where(narrow, mass, mass_wide) * g(y, *(part[:, None] for part in parameters)), axis=1)
