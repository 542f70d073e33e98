"""Sites of binary labels, probit link."""

from __future__ import annotations

__all__ = ["JITTERED_PROBIT", "PROBIT", "bernoulli_sites", "inverse_of_mills"]

from collections.abc import Callable
from functools import cache

import numpy as np
import tensorflow as tf
from gpflow import likelihoods as gl
from gpflow.base import TensorType
from gpflow.likelihoods.utils import inv_probit
from scipy.optimize import minimize_scalar
from scipy.stats import norm

from ...special.normal import inverse_mills, normal_cdf
from ..support import BINARY
from .description import SiteDescription
from .logit_site import LOGIT
from .quadrature_loss import QuadratureLoss
from .site_loss import site_labels

JITTER = 1e-3
"""Margin that GPflow's `inv_probit` keeps between probabilities and 0 or 1."""
_FAR = 1e3
"""Where phi / Phi is replaced by its expansion."""
_PLACE, _WIDTH = 1.9, 2.8
"""The zeros of Phi nearest to the real line are -1.9 +- 2.8 i."""
_JITTERED_PLACE, _JITTERED_WIDTH = 3.2, 0.9
"""With the jitter they are -3.2 +- 0.9 i."""


def _probit_loss(likelihood: gl.ScalarLikelihood, Y: TensorType) -> QuadratureLoss:
    """Log-concave loss -log Phi(u), u = eta for label 1 and -eta for label 0."""
    y = site_labels(Y)
    t = 2.0 * y - 1.0

    def slopes(eta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        u = t * eta
        r = inverse_mills(u)
        far = tf.minimum(u, -_FAR)  # r (r + u) cancels there
        return -t * r, tf.where(u < -_FAR, 1.0 - 1.0 / tf.square(far), r * (r + u))

    def start(alpha: tf.Tensor) -> tf.Tensor:
        return t * inverse_of_mills(-t * alpha)

    zero, infinite = tf.zeros_like(y), np.inf * tf.ones_like(y)
    lower, upper = tf.where(t > 0.0, -infinite, zero), tf.where(t > 0.0, zero, infinite)
    return QuadratureLoss(
        likelihood, y, lower, upper, slopes=slopes, start=start, width=_WIDTH, centre=-_PLACE * t
    )


def inverse_of_mills(ratio: tf.Tensor) -> tf.Tensor:
    """The u [...] with phi(u) / Phi(u) = `ratio` [...], by three Newton steps in logarithms."""
    m = tf.maximum(ratio, 1e-30)
    right = tf.sqrt(tf.maximum(-2.0 * tf.math.log(m * np.sqrt(2.0 * np.pi)), 0.0))
    u = tf.where(m < 0.8, right, 1.0 / m - m)
    for _ in range(3):
        r = inverse_mills(u)
        u += tf.clip_by_value(
            (tf.math.log(tf.maximum(r, 1e-35)) - tf.math.log(m)) / tf.maximum(r + u, 1e-6),
            -1.0,
            1.0,
        )
    return u


def _jittered_probit_loss(likelihood: gl.Bernoulli, Y: TensorType) -> QuadratureLoss:
    """Loss of GPflow's default Bernoulli, p = Phi (1 - 2 jitter) + jitter; not log-concave."""
    y = site_labels(Y)
    t = 2.0 * y - 1.0
    steepest, curvature = _jittered_extremes()
    share = 1.0 - 2.0 * JITTER

    def slopes(eta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # far out r underflows, and r (r + u) must not be 0 times infinity
        u = tf.clip_by_value(t * eta, -1e3, 1e3)
        r = (
            share
            * tf.exp(-0.5 * tf.square(u))
            / np.sqrt(2.0 * np.pi)
            / (normal_cdf(u) * share + JITTER)
        )
        return -t * r, r * (r + u)

    zero, ones = tf.zeros_like(t), tf.ones_like(t)
    lower, upper = (
        tf.where(t > 0.0, -steepest * ones, zero),
        tf.where(t > 0.0, zero, steepest * ones),
    )
    return QuadratureLoss(
        likelihood,
        y,
        lower,
        upper,
        curvature,
        slopes=slopes,
        width=_JITTERED_WIDTH,
        centre=-_JITTERED_PLACE * t,
    )


@cache
def _jittered_extremes() -> tuple[float, float]:
    """The largest |l'| and the largest -l'' of the probit with jitter."""

    def slope(u: float) -> float:
        return (1.0 - 2.0 * JITTER) * norm.pdf(u) / (norm.cdf(u) * (1.0 - 2.0 * JITTER) + JITTER)

    grid = np.linspace(-8.0, 8.0, 1601)

    def largest(function: Callable[[float], float]) -> float:
        at = grid[np.argmax([function(u) for u in grid])]
        found = minimize_scalar(
            lambda u: -function(u),
            bounds=(at - 0.01, at + 0.01),
            options={"xatol": 1e-10},
            method="bounded",
        )
        return float(-found.fun) * (1.0 + 1e-12)

    return largest(slope), largest(lambda u: -slope(u) * (slope(u) + u))


PROBIT = SiteDescription(loss=_probit_loss, support=BINARY)
JITTERED_PROBIT = PROBIT._replace(loss=_jittered_probit_loss)


def bernoulli_sites(likelihood: gl.Bernoulli) -> SiteDescription:
    """Sites of GPflow's Bernoulli likelihood, with losses for two inverse links."""
    if likelihood.invlink is tf.sigmoid:
        return LOGIT
    return JITTERED_PROBIT if likelihood.invlink is inv_probit else SiteDescription(support=BINARY)
