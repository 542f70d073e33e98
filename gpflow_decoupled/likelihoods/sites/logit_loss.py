"""The site losses of binary labels with a logistic link: exact, and bounded by quadratic pieces."""

from __future__ import annotations

__all__ = ["LogitLoss", "PiecewiseLogitLoss"]

import tensorflow as tf
from gpflow import likelihoods as gl
from gpflow.base import TensorType

from ...expectations.logit_integrals import softplus_mean, softplus_moments
from ...expectations.piecewise import piecewise_mean, piecewise_moments
from .site_loss import Expansion, SiteLoss


class LogitLoss(SiteLoss):
    """f = E log(1 + e^eta) - y h for labels Y [N, L] of 0 or 1, to 1e-12 at any sigma: Gauss-Hermite and (V4).

    A few us an observation. It is computed as E log(1 + e^eta) at -h for y = 1, without cancellation.
    """

    def __init__(self, likelihood: gl.Likelihood, Y: TensorType) -> None:
        super().__init__(Y)
        self._sign = 1.0 - 2.0 * self.Y

    @property
    def lower(self) -> tf.Tensor:
        """Minus y [N, L]."""
        return -self.Y

    @property
    def upper(self) -> tf.Tensor:
        """1 - y [N, L]."""
        return 1.0 - self.Y

    def value(self, h: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
        """The loss f [N, L]."""
        return softplus_mean(self._sign * h, sigma)

    def expand(self, h: tf.Tensor, sigma: tf.Tensor) -> Expansion:
        """The loss and its derivatives, [N, L] each."""
        value, d_h, d_s, d_hh, d_hs, d_ss = softplus_moments(self._sign * h, sigma)
        return Expansion(value, self._sign * d_h, d_s, d_hh, self._sign * d_hs, d_ss)

    def start(self, alpha: tf.Tensor) -> tf.Tensor:
        """The h [N, L] with f_h = alpha at sigma = 0."""
        tiny = 1e-12 if alpha.dtype == tf.float64 else 1e-6
        p = tf.clip_by_value(self.Y + alpha, tiny, 1.0 - tiny)
        return tf.math.log(p / (1.0 - p))


class PiecewiseLogitLoss(LogitLoss):
    """The upper bound (V5) of `LogitLoss` by 20 quadratic pieces, at most 1.43e-4 nats an observation above it; Y [N, L].

    For methods that climb in q directly. It is not convex in (h, sigma), so that (V15) has many maxima.
    """

    no_dual = (
        "The bound by quadratic pieces is not convex: it cannot be maximised in the dual. Use "
        'BernoulliLogit(expectation="exact"), or a method that works on q itself: OpperArchambeau or CholeskyKL.'
    )

    def value(self, h: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
        """The bound of f [N, L]."""
        return piecewise_mean(self._sign * h, sigma)

    def expand(self, h: tf.Tensor, sigma: tf.Tensor) -> Expansion:
        """The bound and its derivatives, [N, L] each."""
        value, d_h, d_s, d_hh, d_hs, d_ss = piecewise_moments(self._sign * h, sigma)
        return Expansion(value, self._sign * d_h, d_s, d_hh, self._sign * d_hs, d_ss)
