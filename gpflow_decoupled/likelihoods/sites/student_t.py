"""Sites of Student-t noise, and of Student-t priors; section 3 of Khan 2014 for the loss."""

from __future__ import annotations

__all__ = ["STUDENT_T", "student_t_site"]

import math
from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import likelihoods as gl
from gpflow.base import TensorType

from ...expectations.projections import Site
from ..parameters import constant_parameter, parameter_per_site
from .description import SiteDescription
from .quadrature import QuadratureLoss
from .site_loss import site_labels

_HALF_LOG_2_PI = 0.5 * math.log(2.0 * math.pi)
_LEGENDRE, _REACH = 96, 8.5


def _student_t_loss(likelihood: gl.StudentT, Y: TensorType) -> QuadratureLoss:
    """The loss of Student-t noise; it is not log-concave, and S is the range of l' without the proximal terms."""
    y = site_labels(Y)
    df = tf.cast(constant_parameter(likelihood.df, "The degrees of freedom df", positive=True), y.dtype)
    constant_parameter(likelihood.scale, "The noise scale", positive=True)

    def scale() -> tf.Tensor:
        return tf.convert_to_tensor(likelihood.scale)

    def steepest() -> tf.Tensor:
        return (df + 1.0) / (2.0 * scale() * tf.sqrt(df))

    def lowest() -> tf.Tensor:
        return -steepest()

    def slopes(eta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        precision = (df + 1.0) / (df * tf.square(scale()))
        weight = 1.0 / (1.0 + tf.square((eta - y) / scale()) / df)
        return precision * (eta - y) * weight, precision * (2.0 * tf.square(weight) - weight)

    def start(alpha: tf.Tensor) -> tf.Tensor:
        """Of the two residuals with slope alpha the one nearer to 0."""
        root = tf.sqrt(tf.maximum(tf.square(df + 1.0) - 4.0 * df * tf.square(alpha * scale()), 0.0))
        return y + 2.0 * alpha * df * tf.square(scale()) / (df + 1.0 + root)

    def curvature() -> tf.Tensor:
        return (df + 1.0) / (8.0 * df * tf.square(scale()))  # (V20)

    return QuadratureLoss(likelihood, y, lowest, steepest, curvature, slopes=slopes, start=start)


def student_t_site(y_0: tf.Tensor, s: tf.Tensor, nu: tf.Tensor, transform: bool = False) -> Site:
    """The Student-t log density of y about y_0 [N] with scale s [N] and nu [N] degrees of freedom.

    :param transform: whether the frequency sum is used in the place of the route "spectral". It is right for means of y close
        to y_0 only: T Gauss-Legendre nodes resolve a distance of 1.6 T over the last frequency, which is 3 s sqrt(nu) for 64
        nodes; the expectation of an outlier is then wrong by 0.1 nats.
    """

    def smooth(y: tf.Tensor, y_0: tf.Tensor, s: tf.Tensor, nu: tf.Tensor) -> tf.Tensor:
        return tfp.distributions.StudentT(nu, y_0, s).log_prob(y)

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


def _normal_expectation(
    g: Callable[..., tf.Tensor],
    m: tf.Tensor,
    variance: tf.Tensor,
    y_0: tf.Tensor,
    width: tf.Tensor,
    parameters: tuple[tf.Tensor, ...],
) -> tf.Tensor:
    """E g(y) under y ~ N(m, variance), [n] each, to 1e-10, for a g that changes over a distance `width` [n] about y_0 [n].

    By Gauss-Legendre nodes of z in y = m + spread z where the normal is narrower than g, and otherwise of t in
    y = y_0 + width sinh t, which distributes them evenly over the peak of g and over its tails.
    """
    spread = tf.sqrt(tf.maximum(variance, 1e-30))
    # 1) nodes for a normal that is narrower than g
    narrow = (spread < 0.5 * width)[:, None]
    nodes, weights = (tf.constant(part, m.dtype) for part in np.polynomial.legendre.leggauss(_LEGENDRE))
    z = _REACH * nodes
    mass = _REACH * weights * tf.exp(-0.5 * tf.square(z) - _HALF_LOG_2_PI)

    # 2) nodes for a normal that is wider, out to 8.5 standard deviations
    wide = tf.maximum(spread, 0.1 * width)[:, None]
    ends = (
        tf.stop_gradient(tf.asinh(((m - y_0)[:, None] + side * wide) / width[:, None])) for side in (-_REACH, _REACH)
    )
    low, high = ends
    t = 0.5 * (high + low) + 0.5 * (high - low) * nodes
    y_wide = y_0[:, None] + width[:, None] * tf.sinh(t)
    density = tf.exp(-0.5 * tf.square((y_wide - m[:, None]) / wide) - _HALF_LOG_2_PI) / wide
    mass_wide = width[:, None] * tf.cosh(t) * 0.5 * (high - low) * weights * density

    # 3) for each site those that fit
    y = tf.where(narrow, m[:, None] + spread[:, None] * z, y_wide)
    return tf.reduce_sum(tf.where(narrow, mass, mass_wide) * g(y, *(part[:, None] for part in parameters)), axis=1)


def _density(likelihood: gl.StudentT, Y: tf.Tensor) -> Site:
    return student_t_site(Y, parameter_per_site(likelihood.scale, "The noise scale", Y), Y * 0.0 + float(likelihood.df))


STUDENT_T = SiteDescription(_student_t_loss, _density)
