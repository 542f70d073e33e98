"""Sites of negative binomial counts, and of counts whose zeros have a law of their own."""

from __future__ import annotations

__all__ = ["HURDLE", "NEGATIVE_BINOMIAL", "ZERO_INFLATED"]

from collections.abc import Callable

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

from ...counts import HurdlePoisson, ZeroInflatedPoisson
from ...counts.negative_binomial import NegativeBinomial
from ...parameters import constant_parameter
from ...support import COUNTS
from ..description import SiteDescription
from ..expected_loss import ExpectedLoss
from ..quadrature_loss import QuadratureLoss
from ..site_loss import SiteLoss, site_labels

_GRID = np.linspace(-40.0, 40.0, 1601)
"""Log odds on which the extremes of slopes are sought; beyond, these are constant."""
_MARGIN = 1e-3
"""Share added to the extremes of the grid, which miss the true ones by less than 4e-4."""
_TINY = 1e-12


def _negative_binomial_loss(likelihood: NegativeBinomial, Y: TensorType) -> QuadratureLoss:
    """Log-concave loss of counts with mean exp(eta) and variance mean + mean^2 / size."""
    y = site_labels(Y)
    constant_parameter(likelihood.size, "The size of the negative binomial", positive=True)

    def size() -> tf.Tensor:
        return tf.convert_to_tensor(likelihood.size)

    def slopes(eta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        x = eta - tf.math.log(size())
        p = tf.sigmoid(x)
        return (y + size()) * p - y, (y + size()) * p * tf.sigmoid(-x)

    def start(alpha: tf.Tensor) -> tf.Tensor:
        tiny = 1e-12
        up, down = tf.maximum(y + alpha, tiny), tf.maximum(size() - alpha, tiny)
        return tf.math.log(size()) + tf.math.log(up) - tf.math.log(down)

    def centre() -> tf.Tensor:
        return tf.math.log(size())  # with pi i it is where 1 + exp(eta) / size is zero

    return QuadratureLoss(
        likelihood, y, -y, size, slopes=slopes, start=start, width=np.pi, centre=centre
    )


def _zero_inflated_loss(likelihood: ZeroInflatedPoisson, Y: TensorType) -> SiteLoss:
    """Loss of counts with slope m - y (1 - s) above 0, with m = size s, s = e^eta / (size + e^eta),
    or m = e^eta, s = 0. Zeros are not log-concave.
    """
    y, size = site_labels(Y), _size(likelihood)

    def odds() -> tf.Tensor:
        log_share, log_rest = likelihood._logs()
        return log_rest - log_share

    def of_zero(L: tf.Tensor, s: tf.Tensor, m: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # r is the probability that a zero is one of the counts
        r = tf.sigmoid(odds() - L)
        return r * m, r * m * (1.0 - s - tf.sigmoid(L - odds()) * m)

    def extremes() -> tuple[tf.Tensor, tf.Tensor]:
        L = tf.nn.softplus(odds() + tf.constant(_GRID, y.dtype))
        s = tf.zeros_like(L) if size is None else -tf.math.expm1(-L / size())
        first, second = of_zero(L, s, L if size is None else size() * s)
        bend = tf.minimum(tf.reduce_min(second), 0.0)
        return (1.0 + _MARGIN) * tf.reduce_max(first), -(1.0 + _MARGIN) * bend

    def slopes(eta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        k = tf.convert_to_tensor(likelihood.size)
        s = tf.sigmoid(eta - tf.math.log(k))
        m = k * s
        zero = of_zero(likelihood._family().surprise(eta), s, m)
        some = m - y * (1.0 - s), (1.0 - s) * (m + y * s)
        return tuple(tf.where(y > 0.0, *pair) for pair in zip(some, zero))

    def ends() -> tuple[tf.Tensor, tf.Tensor]:
        return -y, tf.where(y > 0.0, _largest(y, size), extremes()[0])

    def curvature() -> tf.Tensor:
        return tf.where(y > 0.0, tf.zeros_like(y), extremes()[1])

    def start(alpha: tf.Tensor) -> tf.Tensor:
        return _log_odds(tf.maximum(y + alpha, _TINY), alpha, size)

    if size is None:
        return ExpectedLoss(likelihood, y, ends, start, curvature)

    def bend(part: int, of_some: tf.Tensor) -> tf.Tensor:
        return tf.where(y > 0.0, of_some, likelihood._family().zero_bend(odds())[part])

    return QuadratureLoss(
        likelihood,
        y,
        lambda: ends()[0],
        lambda: ends()[1],
        curvature,
        slopes=slopes,
        start=start,
        width=lambda: bend(1, tf.constant(np.pi, y.dtype)),
        centre=lambda: bend(0, tf.math.log(size())),
    )


def _hurdle_loss(likelihood: HurdlePoisson, Y: TensorType) -> SiteLoss:
    """Loss of counts above 0 with slope q - y (1 - s), q = m / p(y > 0), log-concave unless the
    size is below 1; zeros say nothing of eta.
    """
    y, size = site_labels(Y), _size(likelihood)
    zero = tf.zeros_like(y)

    def slopes(eta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        family, log_size = likelihood._family(), tf.math.log(likelihood.size)
        x = eta - log_size
        s, L = tf.sigmoid(x), family.surprise(eta)
        q = tf.exp(log_size + tf.math.log_sigmoid(x) - family.log_some(eta))
        first, second = q - y * (1.0 - s), q * (1.0 - s - q * tf.exp(-L)) + y * s * (1.0 - s)
        return tuple(tf.where(y > 0.0, part, tf.zeros_like(part)) for part in (first, second))

    def extremes() -> tuple[tf.Tensor, tf.Tensor]:
        if size is None:
            return _largest(y, size), zero
        first, second = slopes(tf.math.log(size()) + tf.constant(_GRID, y.dtype)[:, None, None])
        concave, limit = size() >= 1.0, _largest(y, size)
        steepest = (1.0 + _MARGIN) * tf.reduce_max(first, axis=0)
        bend = -(1.0 + _MARGIN) * tf.minimum(tf.reduce_min(second, axis=0), 0.0)
        return (
            tf.where(concave, limit, tf.maximum(limit, steepest)),
            tf.where(concave, zero, bend),
        )

    def ends() -> tuple[tf.Tensor, tf.Tensor]:
        return tf.where(y > 0.0, 1.0 - y, zero), tf.where(y > 0.0, extremes()[0], zero)

    def curvature() -> tf.Tensor:
        return tf.where(y > 0.0, extremes()[1], zero)

    def start(alpha: tf.Tensor) -> tf.Tensor:
        # the mean of Poisson counts above 0 is about e^eta + 1 / (1 + e^eta)
        mean = tf.maximum(y + alpha, 1.0 + _TINY)
        return tf.where(y > 0.0, _log_odds(mean - 1.0 / mean, alpha, size), zero)

    if size is None:
        return ExpectedLoss(likelihood, y, ends, start)
    return QuadratureLoss(
        likelihood,
        y,
        lambda: ends()[0],
        lambda: ends()[1],
        curvature,
        slopes=slopes,
        start=start,
        width=0.5 * np.pi,
        centre=lambda: likelihood._family().some_bend()[0],
    )


def _size(likelihood: ZeroInflatedPoisson) -> Callable[[], tf.Tensor] | None:
    if likelihood._family().size is None:
        return None
    constant_parameter(likelihood.size, "The size of the negative binomial", positive=True)
    return lambda: tf.convert_to_tensor(likelihood.size)


def _largest(y: tf.Tensor, size: Callable[[], tf.Tensor] | None) -> tf.Tensor:
    """The slope for a large eta."""
    return tf.zeros_like(y) + (tf.constant(np.inf, y.dtype) if size is None else size())


def _log_odds(rate: tf.Tensor, alpha: tf.Tensor, size: Callable[[], tf.Tensor] | None) -> tf.Tensor:
    if size is None:
        return tf.math.log(rate)
    return tf.math.log(size() * rate / tf.maximum(size() - alpha, _TINY))


NEGATIVE_BINOMIAL = SiteDescription(loss=_negative_binomial_loss, support=COUNTS)
ZERO_INFLATED = SiteDescription(loss=_zero_inflated_loss, support=COUNTS)
HURDLE = SiteDescription(loss=_hurdle_loss, support=COUNTS)
