"""Sites of binary labels, probit link."""

from __future__ import annotations

__all__ = [
    "BernoulliLogit", "BernoulliProbit", "ConvexPiecewiseLogitLoss", "JITTERED_PROBIT", "LOGIT",
    "LogitLoss", "PROBIT", "PiecewiseLogitLoss", "bernoulli_sites", "inner_log_odds",
    "inverse_of_mills", "logistic_site", "logit_sites",
]  # fmt: skip

import math
from collections.abc import Callable
from functools import cache, partial

import numpy as np
import tensorflow as tf
from gpflow import likelihoods as gl
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods import ScalarLikelihood
from gpflow.likelihoods.utils import inv_probit
from scipy.optimize import minimize_scalar
from scipy.stats import norm

from ..errors import check_option
from ..expectations.logit_integrals import (
    log_sigmoid_mean,
    piecewise_mean,
    piecewise_moments,
    softplus_mean,
    softplus_moments,
)
from ..expectations.projections import Site
from ..probability import tfp
from ..special import inverse_mills, log_normal_cdf, normal_cdf, x_over_sinh
from .log_densities import scalar_expectations
from .parameters import BINARY
from .site_loss import Expansion, QuadratureLoss, SiteDescription, SiteLoss, site_labels

# ---
# Binary labels with a logistic link.


_LEAST_VARIANCE = 1e-16  # keeps the derivative of the root finite


class BernoulliLogit(ScalarLikelihood):
    """Binary labels with a logistic link: p(y = 1 | f) = 1 / (1 + e^-f) for labels 0 and 1.

    Log-concave. Expectations and predictions are accurate to 1e-12 at every variance; GPflow's
    `Bernoulli(invlink=tf.sigmoid)` has 20 nodes, and overflows beyond |f| = 37.

    :param expectation: "exact", or a lower bound on the expected log density by 20 quadratic
        pieces: "piecewise", at most 1.43e-4 nats low; "piecewise_convex", at most 3.05e-4 nats low,
        for the Lagrangian. Predictions are exact.
    :param kwargs: of `gpflow.likelihoods.ScalarLikelihood`.

    Example::

        # Y [N, 1] of zeros and ones
        model = CVIGP((X, Y), gpflow.kernels.Matern52(), BernoulliLogit())
        ConjugateComputation().run(model)
        probability, _ = model.predict_y(Xnew)
    """

    def __init__(self, expectation: str = "exact", **kwargs: object) -> None:
        check_option("expectation", expectation, ("exact", "piecewise", "piecewise_convex"))
        super().__init__(**kwargs)
        self.expectation = expectation

    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return tfp.distributions.Bernoulli(logits=tf.convert_to_tensor(F)).log_prob(Y)

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.sigmoid(F)

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.sigmoid(F) * tf.sigmoid(-F)

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        # E sigmoid(f) is the derivative of E log(1 + e^f) in the mean of f
        p = tf.clip_by_value(softplus_moments(*_moments(Fmu, Fvar)).d_h, 0.0, 1.0)
        return p, p * (1.0 - p)

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return tf.reduce_sum(log_sigmoid_mean(*_moments((2.0 * Y - 1.0) * Fmu, Fvar)), axis=-1)

    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        # log p(y | f) = -log(1 + e^(-f)) for y = 1 and -log(1 + e^f) for y = 0
        moments = _moments((1.0 - 2.0 * Y) * Fmu, Fvar)
        if self.expectation == "exact":
            return -tf.reduce_sum(softplus_mean(*moments), axis=-1)
        return -tf.reduce_sum(
            piecewise_mean(*moments, convex=self.expectation == "piecewise_convex"), axis=-1
        )


def _moments(mean: tf.Tensor, variance: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    deviation = tf.sqrt(tf.maximum(variance, _LEAST_VARIANCE))
    return mean + tf.zeros_like(deviation), deviation + tf.zeros_like(mean)


# ---
# Binary labels with a probit link.


class BernoulliProbit(ScalarLikelihood):
    """Binary labels with a probit link: p(y = 1 | f) = Phi(f), Phi the standard normal cdf.

    Log-concave, unlike GPflow's `Bernoulli()`, whose probabilities stay in [0.001, 0.999].
    Predictions are closed forms, and expected log densities accurate to 1e-8 at every variance.

    :param kwargs: of `gpflow.likelihoods.ScalarLikelihood`.

    Example::

        model = gpflow.models.SVGP(gpflow.kernels.Matern52(), BernoulliProbit(), Z)
        probability, _ = model.predict_y(Xnew)
    """

    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return log_normal_cdf((2.0 * Y - 1.0) * F)

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.exp(log_normal_cdf(F))

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.exp(log_normal_cdf(F) + log_normal_cdf(-F))

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        # E Phi(f) = Phi(mean / sqrt(1 + variance))
        scaled = Fmu / tf.sqrt(1.0 + Fvar)
        return self._conditional_mean(X, scaled), self._conditional_variance(X, scaled)

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return tf.reduce_sum(log_normal_cdf((2.0 * Y - 1.0) * Fmu / tf.sqrt(1.0 + Fvar)), axis=-1)

    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return scalar_expectations(self, X, Fmu, Fvar, Y)


# ---
# Sites of binary labels, logistic link.


class LogitLoss(SiteLoss):
    """Of a logistic link and Y [N, L], f = E log(1 + e^eta) - y h, to 1e-12 at every sigma."""

    def __init__(self, likelihood: gl.Likelihood, Y: TensorType) -> None:
        super().__init__(Y)
        self._sign = 1.0 - 2.0 * self.Y

    @property
    def lower(self) -> tf.Tensor:
        return -self.Y

    @property
    def upper(self) -> tf.Tensor:
        return 1.0 - self.Y

    def value(self, h: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
        return self._mean(self._sign * h, sigma)

    def expand(self, h: tf.Tensor, sigma: tf.Tensor) -> Expansion:
        value, d_h, d_s, d_hh, d_hs, d_ss = self._moments(self._sign * h, sigma)
        return Expansion(value, self._sign * d_h, d_s, d_hh, self._sign * d_hs, d_ss)

    def start(self, alpha: tf.Tensor) -> tf.Tensor:
        return inner_log_odds(self.Y + alpha)

    # E log(1 + e^eta) or its bound, and the same with its derivatives, in the order of `Expansion`
    _mean, _moments = staticmethod(softplus_mean), staticmethod(softplus_moments)


class PiecewiseLogitLoss(LogitLoss):
    """An upper bound [N, L] by 20 quadratic pieces, at most 1.43e-4 nats high; not convex."""

    no_dual: str | None = (
        "The bound by quadratic pieces is not convex: it cannot be maximised in the dual. Use"
        ' BernoulliLogit(expectation="exact") or "piecewise_convex", or a method that works on q'
        " itself: OpperArchambeau or CholeskyKL."
    )
    _mean = staticmethod(partial(piecewise_mean, convex=False))  # (V5)
    _moments = staticmethod(partial(piecewise_moments, convex=False))


class ConvexPiecewiseLogitLoss(PiecewiseLogitLoss):
    """A convex one [N, L], at most 3.05e-4 nats high, that does not fall with sigma."""

    no_dual = None
    _mean = staticmethod(partial(piecewise_mean, convex=True))  # (V28)
    _moments = staticmethod(partial(piecewise_moments, convex=True))


def inner_log_odds(p: tf.Tensor) -> tf.Tensor:
    """log p / (1 - p) of shares p [N], those at or beyond 0 and 1 moved just inside."""
    tiny = 1e-12 if p.dtype == tf.float64 else 1e-6
    p = tf.clip_by_value(p, tiny, 1.0 - tiny)
    return tf.math.log(p / (1.0 - p))


def logistic_site(kappa: tf.Tensor) -> Site:
    """The site log sigma(kappa y) for kappa [N] != 0, slope of the link times the label's sign."""

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


def _density(likelihood: gl.Likelihood, Y: tf.Tensor) -> Site:
    return logistic_site(2.0 * Y - 1.0)


LOGIT = SiteDescription(LogitLoss, _density, BINARY)
_LOSSES = {
    "exact": LogitLoss,
    "piecewise": PiecewiseLogitLoss,
    "piecewise_convex": ConvexPiecewiseLogitLoss,
}


def logit_sites(likelihood: BernoulliLogit) -> SiteDescription:
    """The sites of `BernoulliLogit`, by its `expectation`."""
    return LOGIT._replace(loss=_LOSSES[likelihood.expectation])


# ---


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
