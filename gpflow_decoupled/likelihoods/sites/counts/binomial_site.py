"""Sites of successes in trials."""

from __future__ import annotations

__all__ = ["BETA_BINOMIAL", "BINOMIAL", "BinomialLoss"]

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

from ....expectations.logit_integrals import softplus_mean, softplus_moments
from ...counts import Binomial
from ...counts.binomial import log_choices
from ...support import Support
from ..description import SiteDescription
from ..logit_site import inner_log_odds
from ..site_loss import Expansion, SiteLoss, site_labels


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
BETA_BINOMIAL = SiteDescription(support=_TRIALS)
