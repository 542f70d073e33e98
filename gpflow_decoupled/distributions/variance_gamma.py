"""The symmetric variance-gamma base distribution."""

from __future__ import annotations

__all__ = ["VarianceGammaBase"]

import math
from functools import cache

import numpy as np
import tensorflow as tf
from scipy.interpolate import CubicSpline
from scipy.special import gammaln, kve

from ..probability import tfp
from ..special.bessel import log_bessel_k
from ..special.hermite import hermite_lookup
from .base_density import Base, Seed, Transform

tfd = tfp.distributions
_LOW, _HIGH, _STEP = math.log(0.25), math.log(100.0), 0.02  # table in log k


class VarianceGammaBase(Base):
    """A normal density with variance drawn from Gamma(k, k), k = theta [..., 1] in [0.25, 100].

    k = 1 is Laplace, large k normal; the excess kurtosis is 3 / k. It has no cdf.

    Example::

        model = AffineIndependentGP(
            (X, Y), gpflow.kernels.Matern52(), Laplace(0.3), base="variance_gamma"
        )
    """

    name = "variance_gamma"
    num_shapes = 1
    default = (2.0,)
    has_cdf = False

    def bijector(self, dtype: tf.DType) -> tfp.bijectors.Bijector:
        low, high = (tf.constant(math.log(k), dtype) for k in (0.26, 99.0))
        return tfp.bijectors.Chain([tfp.bijectors.Exp(), tfp.bijectors.Sigmoid(low, high)])

    def problem(self, theta: np.ndarray) -> str:
        if np.all((theta >= 0.25) & (theta <= 100.0)):
            return ""
        return (
            f"k of the variance-gamma base distribution is {theta.ravel()}; it must lie between"
            " 0.25 and 100: clip it."
        )

    def raw_moments(self, theta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.zeros_like(theta[..., 0]), tf.ones_like(theta[..., 0])

    def raw_log_prob(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        """The log density of r [...]; infinite at r = 0 for k of one half or less."""
        k = theta[..., 0]
        z = tf.maximum(tf.sqrt(2.0 * k) * tf.abs(r), 1e-12)
        front = 0.5 * tf.math.log(2.0 * k / math.pi) - tf.math.lgamma(k)
        return front + (k - 0.5) * tf.math.log(0.5 * z) + log_bessel_k(k - 0.5, z)

    def raw_entropy(self, theta: tf.Tensor) -> tf.Tensor:
        """See `Base`; absolute error 1e-9, [...]."""
        k = theta[..., 0]
        tables = [tf.constant(table, k.dtype) for table in _entropies()]
        return hermite_lookup(tables, _STEP, tf.math.log(k) - _LOW)

    def raw_transform(self, omega: tf.Tensor, theta: tf.Tensor) -> Transform:
        k = theta[..., 0]
        return tf.exp(-k * tf.math.log1p(tf.square(omega) / (2.0 * k))), None

    def raw_sample(self, shape: tf.Tensor, theta: tf.Tensor, seed: Seed) -> tf.Tensor:
        k = theta[..., 0]
        first, second = tf.unstack(tfp.random.split_seed(seed, n=2, salt="VarianceGamma"))
        n = tf.reduce_prod(shape) // tf.maximum(tf.size(k), 1)
        variance = tf.reshape(tfd.Gamma(k, k).sample(n, seed=first), shape)
        return tf.sqrt(variance) * tf.random.stateless_normal(shape, second, dtype=theta.dtype)

    def exponent(self, theta: tf.Tensor) -> tf.Tensor:
        """sqrt(2 k), [...]."""
        return tf.sqrt(2.0 * tf.stop_gradient(theta[..., 0]))

    def tail(self, theta: tf.Tensor) -> tf.Tensor:
        """Distance at which Chernoff's bound on the mass beyond is 1e-8: 15 at k = 1, [...]."""
        k = tf.stop_gradient(theta[..., 0])

        def excess(u: tf.Tensor) -> tf.Tensor:
            """Minus the log of the best Chernoff bound, at u sqrt(2 k), less log 1e8."""
            return (
                2.0 * k * tf.square(u) / (1.0 - tf.square(u))
                + k * tf.math.log1p(-tf.square(u))
                - math.log(1e8)
            )

        u = tfp.math.find_root_chandrupatla(
            excess, tf.zeros_like(k), tf.ones_like(k) - 1e-5
        ).estimated_root
        return tf.sqrt(2.0 * k) * u / (1.0 - tf.square(u))


@cache
def _entropies() -> tuple[np.ndarray, np.ndarray]:
    log_k = np.arange(_LOW - _STEP, _HIGH + 2.0 * _STEP, _STEP)
    s = np.arange(-80.0, 5.0, 0.05)
    values = np.array([_entropy(k, s) for k in np.exp(log_k)])
    slopes = CubicSpline(log_k, values).derivative()(log_k)
    return values[1:], slopes[1:]


def _entropy(k: float, s: np.ndarray) -> float:
    z, order = math.sqrt(2.0 * k) * np.exp(s), abs(k - 0.5)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        log_bessel = np.log(kve(order, z)) - z
        # where kve overflows
        leading = gammaln(order) + (order - 1.0) * math.log(2.0) - order * np.log(z)
    log_bessel = np.where(np.isfinite(log_bessel), log_bessel, leading)
    log_q = (
        0.5 * math.log(2.0 * k / math.pi) - gammaln(k) + (k - 0.5) * np.log(0.5 * z) + log_bessel
    )
    return -2.0 * float(np.sum(np.exp(log_q + s) * log_q)) * (s[1] - s[0])
