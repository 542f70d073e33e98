"""Sites of censored observations."""

from __future__ import annotations

__all__ = ["CENSORED_NORMAL", "LOG_NORMAL", "WEIBULL"]

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

from ..parameters import constant_parameter
from ..support import Support
from ..survival import CensoredNormal, Weibull
from .description import SiteDescription
from .expected_loss import ExpectedLoss
from .probit_site import inverse_of_mills
from .site_loss import site_labels

_TINY = 1e-12


def _normal_loss(likelihood: CensoredNormal, Y: TensorType) -> ExpectedLoss:
    """Log-concave loss of normal noise; its slope is (eta - y) / s^2, or of one sign."""
    Y = site_labels(Y)
    y, code = likelihood.split(Y)
    constant_parameter(likelihood.scale, "The noise scale", positive=True)

    def ends() -> tuple[tf.Tensor, tf.Tensor]:
        infinite, zero = tf.fill(tf.shape(y), tf.constant(np.inf, y.dtype)), tf.zeros_like(y)
        lower = tf.where(code < 0.0, zero, -infinite)
        return lower, tf.where(code > 0.0, zero, infinite)

    def start(alpha: tf.Tensor) -> tf.Tensor:
        scale, place = likelihood.noise_scale(), likelihood.transformed(y)
        # right-censored -log Phi(u), u = (eta - y) / s: its slope is -phi(u) / (s Phi(u))
        limited = code * inverse_of_mills(-code * scale * alpha)
        return place + scale * tf.where(code == 0.0, scale * alpha, limited)

    return ExpectedLoss(likelihood, Y, ends, start)


def _weibull_loss(likelihood: Weibull, Y: TensorType) -> ExpectedLoss:
    """Log-concave loss of times of scale e^eta; with z = k (log y - eta) its slope is k (1 - e^z),
    right-censored -k e^z, left-censored between 0 and k.
    """
    Y = site_labels(Y)
    y, code = likelihood.split(Y)
    constant_parameter(likelihood.shape, "The shape", positive=True)

    def ends() -> tuple[tf.Tensor, tf.Tensor]:
        infinite, zero = tf.fill(tf.shape(y), tf.constant(np.inf, y.dtype)), tf.zeros_like(y)
        steepest = tf.convert_to_tensor(likelihood.shape) + zero
        return tf.where(code < 0.0, zero, -infinite), tf.where(code > 0.0, zero, steepest)

    def start(alpha: tf.Tensor) -> tf.Tensor:
        share = alpha * likelihood.noise_scale()  # of k
        hazard = tf.maximum(tf.where(code > 0.0, -share, 1.0 - share), _TINY)
        z = tf.where(code < 0.0, tf.zeros_like(hazard), tf.math.log(hazard))
        return tf.math.log(y) - likelihood.noise_scale() * z

    return ExpectedLoss(likelihood, Y, ends, start)


def _codes(Y: np.ndarray) -> np.ndarray:
    inside = np.isfinite(Y)
    inside[:, -1] = np.isin(Y[:, -1], (-1.0, 0.0, 1.0))
    return inside


def _codes_of_times(Y: np.ndarray) -> np.ndarray:
    inside = _codes(Y)
    inside[:, :-1] &= Y[:, :-1] > 0.0
    return inside


_WORDS = (
    "{}, and in the last column 0 where the value was observed, 1 where the true one is above, -1"
    " where it is below"
)
_FIX = "pass such a column, of build as censored=np.where(observed, 0, 1)"
_VALUES = Support(_WORDS.format("numbers"), _codes, _FIX)
_TIMES = Support(_WORDS.format("numbers above 0"), _codes_of_times, _FIX + ", and times above 0")
CENSORED_NORMAL = SiteDescription(loss=_normal_loss, support=_VALUES)
LOG_NORMAL = SiteDescription(loss=_normal_loss, support=_TIMES)
WEIBULL = SiteDescription(loss=_weibull_loss, support=_TIMES)
