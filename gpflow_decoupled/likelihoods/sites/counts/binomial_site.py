"""Sites of successes in trials."""

from __future__ import annotations

__all__ = ["BETA_BINOMIAL", "BINOMIAL", "BinomialLoss"]

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

from ....expectations.logit_integrals import softplus_mean, softplus_moments
from ...counts import BetaBinomial, Binomial
from ...counts.binomial import log_choices
from ...parameters import constant_parameter
from ...support import Support
from ..description import SiteDescription
from ..expected_loss import ExpectedLoss
from ..logit_site import inner_log_odds
from ..site_loss import Expansion, SiteLoss, site_labels

_GRID = np.linspace(-1.0, 1.0, 321)
"""Log odds on which the extremes of slopes are sought, in units of the farthest bend and more."""
_BEYOND = 8.0
_MARGIN = 1e-3
"""Share added to the extremes of the grid."""


class BinomialLoss(SiteLoss):
    """The site loss of y successes in t trials, f = t E log(1 + e^eta) - y h - log(t over y).

    Accurate to 1e-12 at every sigma.

    :param likelihood: `Binomial`, without Parameters.
    :param Y: successes [N, L], and a last column of trials.

    Example::

        loss = BinomialLoss(Binomial(), np.hstack([successes, trials]))
        loss.value(h, sigma)  # [N, L], nats
    """

    def __init__(self, likelihood: Binomial, Y: TensorType) -> None:
        y, trials = likelihood.split(site_labels(Y))
        super().__init__(y)
        self._trials = trials + tf.zeros_like(y)
        self._constant_part = log_choices(self._trials, y)

    @property
    def lower(self) -> tf.Tensor:
        return -self.Y

    @property
    def upper(self) -> tf.Tensor:
        return self._trials - self.Y

    def value(self, h: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
        mean = softplus_mean(h + tf.zeros_like(sigma), sigma + tf.zeros_like(h))
        return self._trials * mean - self.Y * h - self._constant_part

    def expand(self, h: tf.Tensor, sigma: tf.Tensor) -> Expansion:
        parts = softplus_moments(h, sigma)
        _, d_h, *others = (self._trials * part for part in parts)
        return Expansion(self.value(h, sigma), d_h - self.Y, *others)

    def start(self, alpha: tf.Tensor) -> tf.Tensor:
        return inner_log_odds((self.Y + alpha) / self._trials)


def _beta_binomial_loss(likelihood: BetaBinomial, Y: TensorType) -> ExpectedLoss:
    """Loss of overdispersed successes; not log-concave, but with one trial."""
    Y = site_labels(Y)
    y, trials = likelihood.split(Y)
    failures = trials - y
    constant_parameter(likelihood.concentration, "The concentration", positive=True)

    def rising(f: tf.Tensor, n: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Derivatives of log a (a + 1) ... (a + n - 1), a = c / (1 + e^-f)."""
        p, q = tf.sigmoid(f), tf.sigmoid(-f)
        a, some = likelihood.concentration * p, tf.maximum(n, 1.0)
        one = tf.ones_like(a + some)
        D = tf.math.digamma(a + some) - tf.math.digamma(a + 1.0)
        bend = tf.math.polygamma(one, a + some) - tf.math.polygamma(one, (a + 1.0) * one)
        first, second = q + a * q * D, a * q * (q - p) * D + tf.square(a * q) * bend - p * q
        return tf.where(n > 0.0, first, 0.0), tf.where(n > 0.0, second, 0.0)

    def extremes() -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        # the farthest bends are at log(1 + c), on both sides; beyond, slopes are -1, 0 or 1
        far = _BEYOND + tf.math.log1p(likelihood.concentration)
        f = far * tf.constant(_GRID, y.dtype)[:, None, None]
        (up, up_bend), (down, down_bend) = rising(f, y), rising(-f, failures)
        bend = tf.minimum(tf.reduce_min(-up_bend - down_bend, axis=0), 0.0)
        share = tf.where(bend < 0.0, 1.0 + _MARGIN, tf.ones_like(bend))
        return (
            share * tf.minimum(tf.reduce_min(down - up, axis=0), -tf.sign(y)),
            share * tf.maximum(tf.reduce_max(down - up, axis=0), tf.sign(failures)),
            -share * bend,
        )

    def start(alpha: tf.Tensor) -> tf.Tensor:
        c = likelihood.concentration
        return inner_log_odds((y + alpha * (c + trials) / (c + 1.0)) / trials)

    return ExpectedLoss(likelihood, Y, lambda: extremes()[:2], start, lambda: extremes()[2])


def _in_trials(Y: np.ndarray) -> np.ndarray:
    whole = Y == np.round(Y)
    trials = Y[:, -1:]
    inside = np.where(trials >= 1.0, (Y >= 0.0) & (Y <= trials), True)  # the trials are named first
    inside[:, -1:] = trials >= 1.0
    return whole & inside


_TRIALS = Support(
    "whole numbers from 0 to the trials of the row, at least 1, which are the last column of Y",
    _in_trials,
    "pass the trials: build(..., trials=t), or Y = np.hstack([successes, trials])",
)
BINOMIAL = SiteDescription(loss=BinomialLoss, support=_TRIALS)
BETA_BINOMIAL = SiteDescription(loss=_beta_binomial_loss, support=_TRIALS)
