"""Sites of Student-t noise and priors."""

from __future__ import annotations

__all__ = ["STUDENT_T", "student_t_site"]

import math

import tensorflow as tf
from gpflow import likelihoods as gl
from gpflow.base import TensorType

from ...expectations.peaked import peaked_rule
from ...expectations.projections import Site
from ...probability import tfp
from ..parameters import constant_parameter, parameter_per_site
from .description import SiteDescription
from .quadrature_loss import QuadratureLoss
from .site_loss import site_labels


def _student_t_loss(likelihood: gl.StudentT, Y: TensorType) -> QuadratureLoss:
    """Loss of Student-t noise, not log-concave; S is the range of l' without proximal terms."""
    y = site_labels(Y)
    df = tf.cast(
        constant_parameter(likelihood.df, "The degrees of freedom df", positive=True), y.dtype
    )
    constant_parameter(likelihood.scale, "The noise scale", positive=True)

    def scale() -> tf.Tensor:
        return tf.convert_to_tensor(likelihood.scale)

    def steepest() -> tf.Tensor:
        # the slope is steepest at a residual of scale sqrt(df)
        return (df + 1.0) / (2.0 * scale() * tf.sqrt(df))

    def lowest() -> tf.Tensor:
        return -steepest()

    def slopes(eta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        precision = (df + 1.0) / (df * tf.square(scale()))
        weight = 1.0 / (1.0 + tf.square((eta - y) / scale()) / df)
        return precision * (eta - y) * weight, precision * (2.0 * tf.square(weight) - weight)

    def start(alpha: tf.Tensor) -> tf.Tensor:
        """The residual nearer to 0 of the two with slope alpha."""
        root = tf.sqrt(tf.maximum(tf.square(df + 1.0) - 4.0 * df * tf.square(alpha * scale()), 0.0))
        return y + 2.0 * alpha * df * tf.square(scale()) / (df + 1.0 + root)

    def curvature() -> tf.Tensor:
        return (df + 1.0) / (8.0 * df * tf.square(scale()))  # (V20)

    def width() -> tf.Tensor:
        return scale() * tf.sqrt(df)

    return QuadratureLoss(
        likelihood,
        y,
        lowest,
        steepest,
        curvature,
        slopes=slopes,
        start=start,
        width=width,
        centre=y,
    )


def student_t_site(y_0: tf.Tensor, s: tf.Tensor, nu: tf.Tensor, transform: bool = False) -> Site:
    """Student-t log density of y about y_0 [N], scale s [N], nu [N] degrees of freedom.

    :param transform: use the frequency sum, only for means of y near y_0: nodes resolve 3 s
        sqrt(nu).
    """

    def smooth(y: tf.Tensor, y_0: tf.Tensor, s: tf.Tensor, nu: tf.Tensor) -> tf.Tensor:
        return tfp.distributions.StudentT(nu, y_0, s).log_prob(y)

    def gauss(
        m: tf.Tensor, variance: tf.Tensor, y_0: tf.Tensor, s: tf.Tensor, nu: tf.Tensor
    ) -> tf.Tensor:
        spread = tf.sqrt(tf.maximum(variance, 1e-30))
        z, w = peaked_rule(m, spread, y_0, s * tf.sqrt(nu))
        return tf.reduce_sum(w * smooth(m + spread * z, y_0, s, nu), axis=0)

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


def _density(likelihood: gl.StudentT, Y: tf.Tensor) -> Site:
    return student_t_site(
        Y,
        parameter_per_site(likelihood.scale, "The noise scale", Y),
        Y * 0.0 + float(likelihood.df),
    )


STUDENT_T = SiteDescription(_student_t_loss, _density)
