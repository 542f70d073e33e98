"""Sites of censored observations."""

from __future__ import annotations

__all__ = [
    "CENSORED_NORMAL", "CensoredLikelihood", "CensoredNormal", "LOG_NORMAL", "LogNormal",
    "WEIBULL", "Weibull", "exp_moments", "log_normal_terms",
]  # fmt: skip

import abc
import math
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import MeanAndVariance, TensorType

from ..expectations.log_means import log_mean_exp
from ..expectations.peaked import peaked_mean
from ..special import log_normal_cdf
from .bernoulli import inverse_of_mills
from .counts import deviation_of
from .parameters import NumberedLikelihood, Support, constant_parameter, positive_parameter
from .site_loss import ExpectedLoss, SiteDescription, site_labels

# ---
# Observations with limits.


class CensoredLikelihood(NumberedLikelihood):
    """y, or log y, is f plus noise of a scale s; Y [N, P + 1] ends with a column of codes.

    The code is 0 where y was observed, 1 where the true value is above y (right-censored), -1 where
    below. With z = (y - f) / s, or (log y - f) / s, its terms are log p(z) - log s, log P(Z > z)
    and log P(Z < z). Log-concave. `predict_y` is of the true value, not censored.

    Example::

        Y = np.hstack([values, np.where(above_limit, 1.0, 0.0)])
        model = CVIGP((X, Y), gpflow.kernels.Matern52(), CensoredNormal())
    """

    number = "censored"
    of_logarithms: ClassVar[bool] = False
    """Whether log y is f plus noise, and y is above 0."""

    @abc.abstractmethod
    def noise_scale(self) -> tf.Tensor:
        """s, a positive tensor."""

    @abc.abstractmethod
    def log_terms(self, z: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """log p(z), log P(Z > z) and log P(Z < z) of the noise in nats, of the shape of z."""

    @abc.abstractmethod
    def mean_terms(self, z: tf.Tensor, spread: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """The means of `log_terms` over z + spread N(0, 1), of the shape of z."""

    def transformed(self, y: tf.Tensor) -> tf.Tensor:
        """y or log y."""
        return tf.math.log(y) if self.of_logarithms else y

    def expected_log_prob(self, mean: tf.Tensor, spread: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        """E log p(y | f), f ~ N(mean, spread^2), in nats [..., P]; spread of either sign."""
        y, code = self.split(Y)
        scale = self.noise_scale()
        like = tf.zeros_like(mean + spread)
        z = (self.transformed(y) - mean) / scale + like
        return self._chosen(y, code, self.mean_terms(z, spread / scale + like))

    def _chosen(
        self, y: tf.Tensor, code: tf.Tensor, terms: tuple[tf.Tensor, tf.Tensor, tf.Tensor]
    ) -> tf.Tensor:
        density, above, below = terms
        density -= tf.math.log(self.noise_scale())
        if self.of_logarithms:
            density -= tf.math.log(y)
        return tf.where(code == 0.0, density, tf.where(code > 0.0, above, below))

    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        y, code = self.split(Y)
        z = (self.transformed(y) - tf.convert_to_tensor(F)) / self.noise_scale()
        return self._chosen(y, code, self.log_terms(z))

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self._predict_mean_and_var(X, F, tf.zeros_like(F))[0]

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self._predict_mean_and_var(X, F, tf.zeros_like(F))[1]

    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        mean = tf.convert_to_tensor(Fmu)
        return tf.reduce_sum(self.expected_log_prob(mean, deviation_of(Fvar), Y), axis=-1)


# ---
# Censored Gaussian noise: Tobit.


_BEND = (-1.92, 2.82)
"""Real part and distance from the real line of the nearest zeros of Phi."""


class CensoredNormal(CensoredLikelihood):
    """Gaussian noise with censored observations (Tobin, 1958): y = f + s N(0, 1).

    Y [N, P + 1] ends with a column of codes: 0 observed, 1 true value above y, -1 below.
    Log-concave. Expectations are closed forms where y is observed, and accurate to 1e-9 elsewhere;
    predictions are closed forms.

    :param scale: s, the standard deviation of the noise, above 0.
    :param kwargs: of `gpflow.likelihoods.ScalarLikelihood`.

    Example::

        model = gd.build(X, y, "tobit", censored=np.where(y <= detection_limit, -1, 0))
        gd.fit(model)
        mean, variance = model.predict_y(Xnew)  # of values that no limit hides
    """

    def __init__(self, scale: npt.ArrayLike = 1.0, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.scale: Parameter = positive_parameter(scale, "scale")

    def noise_scale(self) -> tf.Tensor:
        return tf.convert_to_tensor(self.scale)

    def log_terms(self, z: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        return log_normal_terms(z)

    def mean_terms(self, z: tf.Tensor, spread: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        centre, width = (tf.constant(number, z.dtype) for number in _BEND)
        density = log_normal_terms(z)[0] - 0.5 * tf.square(spread)
        above = peaked_mean(lambda x: log_normal_cdf(-x), z, spread, -centre, width)
        return density, above, peaked_mean(log_normal_cdf, z, spread, centre, width)

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        return tf.identity(Fmu), Fvar + tf.square(self.scale)

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        # f plus noise is normal: the same three terms with both variances
        y, code = self.split(Y)
        scale = self.noise_scale()
        total = tf.sqrt(Fvar + tf.square(scale))
        density, above, below = log_normal_terms((self.transformed(y) - Fmu) / total)
        density -= tf.math.log(total / scale)  # `_chosen` subtracts log scale
        return tf.reduce_sum(self._chosen(y, code, (density, above, below)), axis=-1)


def log_normal_terms(z: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Logarithms of phi(z), Phi(-z) and Phi(z), of the shape [...] of z."""
    density = -0.5 * (tf.square(z) + math.log(2.0 * math.pi))
    return density, log_normal_cdf(-z), log_normal_cdf(z)


# ---
# Times whose logarithms have Gaussian noise.


_LIMIT = 40.0
"""Exponents are clipped there: squares of e^40 are finite in single precision."""


class LogNormal(CensoredNormal):
    """Positive observations with log y = f + s N(0, 1), censored or not: e^f is the median.

    Y [N, P + 1] ends with a column of codes: 0 observed, 1 true value above y, -1 below.
    Log-concave; integrals as `CensoredNormal`, moments are closed forms.

    :param scale: s, the standard deviation of log y, above 0.
    :param kwargs: of `gpflow.likelihoods.ScalarLikelihood`.

    Example::

        model = gd.build(X, months, "log_normal", censored=np.where(died, 0, 1))
        gd.fit(model)
    """

    of_logarithms = True

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        total = Fvar + tf.square(self.scale)
        return exp_moments(Fmu + 0.5 * total, total)


def exp_moments(log_mean: tf.Tensor, growth: tf.Tensor) -> MeanAndVariance:
    """Mean and variance [...] of y > 0 from log E y, and log E y^2 - 2 log E y > 0."""
    mean = tf.exp(tf.minimum(log_mean, _LIMIT))
    return mean, tf.square(mean) * tf.math.expm1(tf.minimum(growth, _LIMIT))


# ---
# Times to an event, rising or falling hazard.


_WEIBULL_LIMIT = 80.0
"""Exponents are clipped there: e^80 is finite in single precision."""
_LEAST = 1e-30
"""Below it e^z and 1 - exp(-e^z) are the same number."""
_WEIBULL_BEND = (math.log(2.0 * math.pi), 0.5 * math.pi)
"""log(1 - exp(-e^z)) is singular where e^z = 2 pi i."""


class Weibull(CensoredLikelihood):
    """Positive observations of scale e^f and shape k, P(y > t) = exp(-(t / e^f)^k).

    The hazard grows with time for k > 1, falls for k < 1; k = 1 is exponential. Y [N, P + 1] ends
    with a column of codes: 0 observed, 1 true value above y, -1 below. Log-concave. Expected log
    densities are closed forms where y is observed or right-censored, accurate to 1e-9 where
    left-censored; log densities to 1e-8; moments are closed forms.

    :param shape: k, above 0.
    :param kwargs: of `gpflow.likelihoods.ScalarLikelihood`.

    Example::

        model = gd.build(X, months, "weibull", censored=np.where(died, 0, 1))
        gd.fit(model)
    """

    of_logarithms = True

    def __init__(self, shape: float = 1.0, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.shape: Parameter = positive_parameter(shape, "shape")

    def noise_scale(self) -> tf.Tensor:
        return 1.0 / tf.convert_to_tensor(self.shape)

    def log_terms(self, z: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        return z - _exp(z), -_exp(z), _log_below(z)

    def mean_terms(self, z: tf.Tensor, spread: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        hazard = _exp(z + 0.5 * tf.square(spread))  # cumulated until y
        centre, width = (tf.constant(number, z.dtype) for number in _WEIBULL_BEND)
        return z - hazard, -hazard, peaked_mean(_log_below, z, spread, centre, width)

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        # E y^j given f is e^(j f) Gamma(1 + j / k)
        first, second = (tf.math.lgamma(1.0 + j / self.shape) for j in (1.0, 2.0))
        return exp_moments(Fmu + 0.5 * Fvar + first, Fvar + second - 2.0 * first)

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        centre = tf.math.log(self.split(Y)[0])
        found = log_mean_exp(
            lambda f: self._scalar_log_prob(X, f, Y),
            tf.convert_to_tensor(Fmu),
            Fvar,
            centre,
            1.0 / self.shape,
        )
        return tf.reduce_sum(found, axis=-1)


def _exp(z: tf.Tensor) -> tf.Tensor:
    return tf.exp(tf.minimum(z, _WEIBULL_LIMIT))


def _log_below(z: tf.Tensor) -> tf.Tensor:
    hazard = tf.maximum(_exp(z), _LEAST)
    return tf.minimum(z, _WEIBULL_LIMIT) + tf.math.log(-tf.math.expm1(-hazard) / hazard)


# ---


_TINY = 1e-12


def _normal_loss(likelihood: CensoredNormal, Y: TensorType) -> ExpectedLoss:
    """Log-concave loss of normal noise; its slope is (eta - y) / s^2, or of one sign."""
    Y = site_labels(Y)
    y, code = likelihood.split(Y)
    constant_parameter(likelihood.scale, "The noise scale", positive=True)

    def ends() -> tuple[tf.Tensor, tf.Tensor]:
        return _slopes_within(code, tf.constant(np.inf, y.dtype) + tf.zeros_like(y))

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
        return _slopes_within(code, tf.convert_to_tensor(likelihood.shape) + tf.zeros_like(y))

    def start(alpha: tf.Tensor) -> tf.Tensor:
        share = alpha * likelihood.noise_scale()  # of k
        hazard = tf.maximum(tf.where(code > 0.0, -share, 1.0 - share), _TINY)
        z = tf.where(code < 0.0, tf.zeros_like(hazard), tf.math.log(hazard))
        return tf.math.log(y) - likelihood.noise_scale() * z

    return ExpectedLoss(likelihood, Y, ends, start)


def _slopes_within(code: tf.Tensor, steepest: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Ends of S [N, L]: slopes of limited observations have one sign."""
    zero, infinite = tf.zeros_like(steepest), np.inf * tf.ones_like(steepest)
    return tf.where(code < 0.0, zero, -infinite), tf.where(code > 0.0, zero, steepest)


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
