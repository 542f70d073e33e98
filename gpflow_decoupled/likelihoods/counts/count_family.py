"""Poisson and negative binomial counts, and their zeros."""

from __future__ import annotations

__all__ = ["CountFamily"]

import math
from typing import NamedTuple

import tensorflow as tf

from ...expectations.logit_integrals import softplus_mean
from .binomial import deviation_of

_LIMIT = 40.0
"""Exponents are clipped there: squares of e^40, of 2e17 counts, are finite in single precision."""
_LEAST = 1e-30
"""Below it L and 1 - e^-L are the same number."""
_FAR = -30.0
"""Where log(1 + e^x) is e^x to all digits."""


class CountFamily(NamedTuple):
    """Counts of mean e^f: Poisson, or negative binomial of variance m + m^2 / size.

    Arguments are tensors [...] that broadcast.
    """

    size: tf.Tensor | None
    """Of the negative binomial; None for Poisson."""

    def rate(self, f: tf.Tensor) -> tf.Tensor:
        """e^f, at most e^40."""
        return tf.exp(tf.minimum(f, _LIMIT))

    @property
    def excess(self) -> tf.Tensor | float:
        """1 / size, zero for Poisson: E[y (y - 1)] is (1 + excess) e^2f."""
        return 0.0 if self.size is None else 1.0 / self.size

    def log_prob(self, f: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        """log p(y | f) in nats."""
        if self.size is None:
            return y * f - self.rate(f) - tf.math.lgamma(y + 1.0)
        x = f - tf.math.log(self.size)
        return self._constant(y) - y * tf.nn.softplus(-x) - self.size * tf.nn.softplus(x)

    def mean_log_prob(self, mean: tf.Tensor, variance: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        """E log p(y | f), f ~ N(mean, variance), in nats; a closed form, or to 1e-12."""
        if self.size is None:
            return y * mean - self.rate(mean + 0.5 * variance) - tf.math.lgamma(y + 1.0)
        sigma = deviation_of(variance) + tf.zeros_like(mean)
        x = mean - tf.math.log(self.size) + tf.zeros_like(sigma)
        return self._constant(y) + y * x - (y + self.size) * softplus_mean(x, sigma)

    def surprise(self, f: tf.Tensor) -> tf.Tensor:
        """L = -log p(0 | f), at least 0."""
        if self.size is None:
            return self.rate(f)
        return self.size * tf.nn.softplus(f - tf.math.log(self.size))

    def log_some(self, f: tf.Tensor) -> tf.Tensor:
        """log p(y > 0 | f) = log(1 - e^-L), linear for small and zero for large f."""
        if self.size is None:
            log_L = tf.minimum(f, _LIMIT)
        else:
            x = f - tf.math.log(self.size)
            near = tf.math.log(tf.nn.softplus(tf.maximum(x, _FAR)))
            log_L = tf.math.log(self.size) + tf.where(x < _FAR, x, near)
        L = tf.maximum(self.surprise(f), _LEAST)
        return log_L + tf.math.log(-tf.math.expm1(-L) / L)

    def peak(self, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Place and width of the peak of p(y | f) over f, for y > 0."""
        y = tf.maximum(y, 1.0)
        return tf.math.log(y), tf.sqrt(1.0 / y + self.excess)

    def zero_bend(self, log_odds: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The f, real part and imaginary one, at which e^L = -e^log_odds, the nearest singularity
        of log(1 + e^(log_odds - L)).
        """
        if self.size is None:  # e^f = log_odds + pi i
            return 0.5 * tf.math.log(tf.square(log_odds) + math.pi**2), tf.atan2(
                tf.constant(math.pi, log_odds.dtype), log_odds
            )
        # (1 + e^f / size)^size = -e^log_odds, on the branch of logarithms within pi
        growth = tf.exp(tf.minimum(log_odds / self.size, _LIMIT))
        turn = tf.minimum(math.pi / self.size, tf.constant(math.pi, growth.dtype))
        real, imaginary = growth * tf.cos(turn) - 1.0, growth * tf.sin(turn)
        modulus = tf.maximum(tf.square(real) + tf.square(imaginary), _LEAST)
        return (
            tf.math.log(self.size) + 0.5 * tf.math.log(modulus),
            tf.maximum(tf.atan2(tf.abs(imaginary), real), 0.05),
        )

    def some_bend(self) -> tuple[tf.Tensor | float, float]:
        """Place and width of the bend of `log_some`: e^L = 1 at L = 2 pi i."""
        if self.size is None:
            return math.log(2.0 * math.pi), 0.5 * math.pi
        angle = math.pi / tf.maximum(self.size, 2.0)
        return tf.math.log(2.0 * self.size * tf.sin(angle)), 0.5 * math.pi

    def _constant(self, y: tf.Tensor) -> tf.Tensor:
        return tf.math.lgamma(y + self.size) - tf.math.lgamma(self.size) - tf.math.lgamma(y + 1.0)
