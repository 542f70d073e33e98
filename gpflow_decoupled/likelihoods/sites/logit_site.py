"""Sites of binary labels, logistic link."""

from __future__ import annotations

__all__ = [
    "LOGIT",
    "ConvexPiecewiseLogitLoss",
    "LogitLoss",
    "PiecewiseLogitLoss",
    "inner_log_odds",
    "logistic_site",
    "logit_sites",
]

import math

import tensorflow as tf
from gpflow import likelihoods as gl
from gpflow.base import TensorType

from ...expectations.logit_integrals import softplus_mean, softplus_moments
from ...expectations.piecewise import piecewise_mean, piecewise_moments
from ...expectations.projections import Site
from ...special.hyperbolic import x_over_sinh
from ..bernoulli_logit import BernoulliLogit
from ..support import BINARY
from .description import SiteDescription
from .site_loss import Expansion, SiteLoss


class LogitLoss(SiteLoss):
    """The site loss of binary labels with a logistic link, f = E log(1 + e^eta) - y h.

    eta ~ N(h, sigma^2). Accurate to 1e-12 at every sigma.

    :param likelihood: `BernoulliLogit` or GPflow's `Bernoulli(invlink=tf.sigmoid)`; no Parameters.
    :param Y: labels y [N, L] of 0 and 1.

    Example::

        loss = LogitLoss(BernoulliLogit(), Y)
        loss.value(h, sigma)  # [N, L], nats
    """

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

    def _mean(self, h: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
        """E log(1 + e^eta), or its bound."""
        return softplus_mean(h, sigma)

    def _moments(self, h: tf.Tensor, sigma: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """`_mean` and its derivatives, in the order of `Expansion`."""
        return softplus_moments(h, sigma)


class PiecewiseLogitLoss(LogitLoss):
    """An upper bound on `LogitLoss` by 20 quadratic pieces, at most 1.43e-4 nats high each.

    Not convex in (h, sigma), so the dual is refused.

    :param likelihood: `BernoulliLogit("piecewise")`.
    :param Y: labels y [N, L] of 0 and 1.

    Example::

        loss = PiecewiseLogitLoss(BernoulliLogit("piecewise"), Y)
        # between 0 and 1.43e-4
        loss.value(h, sigma) - LogitLoss(BernoulliLogit(), Y).value(h, sigma)
    """

    no_dual: str | None = (
        "The bound by quadratic pieces is not convex: it cannot be maximised in the dual. Use"
        ' BernoulliLogit(expectation="exact") or "piecewise_convex", or a method that works on q'
        " itself: OpperArchambeau or CholeskyKL."
    )
    convex = False
    """Use the convex bound instead of the best one."""

    def _mean(self, h: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
        return piecewise_mean(h, sigma, convex=self.convex)  # (V5) or (V28)

    def _moments(self, h: tf.Tensor, sigma: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return piecewise_moments(h, sigma, convex=self.convex)


class ConvexPiecewiseLogitLoss(PiecewiseLogitLoss):
    """A convex upper bound on `LogitLoss` by 20 quadratic pieces, at most 3.05e-4 nats high each.

    Jointly convex in (h, sigma) and non-decreasing in sigma, so the Lagrangian ascends.

    :param likelihood: `BernoulliLogit("piecewise_convex")`.
    :param Y: labels y [N, L] of 0 and 1.

    Example::

        model = LCLGP((X, Y), gpflow.kernels.Matern52(), BernoulliLogit("piecewise_convex"))
        LinearlyConstrainedLagrangian().run(model)
    """

    no_dual = None
    convex = True


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
