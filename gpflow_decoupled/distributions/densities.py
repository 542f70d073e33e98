"""Mixtures of normals."""

from __future__ import annotations

__all__ = [
    "GeneralizedNormalBase", "LaplaceBase", "LogisticBase", "NormalBase", "NormalMixtureBase",
    "SkewNormalBase", "StudentTBase", "VarianceGammaBase",
]  # fmt: skip

import math
from functools import cache

import numpy as np
import tensorflow as tf
from scipy.interpolate import CubicSpline
from scipy.special import gammaln, kve

from ..errors import DataError
from ..probability import tfp
from ..special import hermite_lookup, log_bessel_k, log_normal_cdf, normal_cdf, x_over_sinh
from .base_density import Base, Seed, Transform
from .scalar import (
    LARGEST_POWER,
    LEAST_POWER,
    GeneralizedNormal,
    SkewNormal,
    generalized_normal_cdf,
    generalized_normal_transform,
    skew_normal_cdf,
    skew_normal_entropy,
    skew_normal_transform,
)

# ---
# Base distributions without shapes: normal, Laplace, logistic.


tfd = tfp.distributions


def _constant(theta: tf.Tensor, number: float) -> tf.Tensor:
    return tf.reduce_sum(theta, axis=-1) + number


class NormalBase(Base):
    """The standard normal density; affine-independent inference becomes Gaussian KL inference.

    Example::

        model = AffineIndependentGP(
            (X, Y), gpflow.kernels.Matern52(), BernoulliLogit(), base=NormalBase()
        )
    """

    name = "normal"

    def raw_moments(self, theta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return _constant(theta, 0.0), _constant(theta, 1.0)

    def raw_entropy(self, theta: tf.Tensor) -> tf.Tensor:
        return _constant(theta, 0.5 * math.log(2.0 * math.pi * math.e))

    def raw_log_prob(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        return -0.5 * (tf.square(r) + math.log(2.0 * math.pi))

    def raw_transform(self, omega: tf.Tensor, theta: tf.Tensor) -> Transform:
        return tf.exp(-0.5 * tf.square(omega)), None

    def raw_cdf(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        return normal_cdf(r)

    def raw_sample(self, shape: tf.Tensor, theta: tf.Tensor, seed: Seed) -> tf.Tensor:
        return tfd.Normal(tf.zeros([], theta.dtype), 1.0).sample(shape, seed=seed)

    def tail(self, theta: tf.Tensor) -> tf.Tensor:
        return _constant(theta, 6.5)


class LaplaceBase(Base):
    """The Laplace density: a kink at zero and exponential tails.

    Example::

        model = AffineIndependentGLM((X, Y), Laplace(0.5), base=LaplaceBase())
    """

    name = "laplace"

    def raw_moments(self, theta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return _constant(theta, 0.0), _constant(theta, math.sqrt(2.0))

    def raw_entropy(self, theta: tf.Tensor) -> tf.Tensor:
        return _constant(theta, 1.0 + math.log(2.0))

    def raw_log_prob(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        return -tf.abs(r) - math.log(2.0)

    def raw_transform(self, omega: tf.Tensor, theta: tf.Tensor) -> Transform:
        return 1.0 / (1.0 + tf.square(omega)), None

    def raw_cdf(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        half = 0.5 * tf.exp(-tf.abs(r))
        return tf.where(r < 0.0, half, 1.0 - half)

    def raw_sample(self, shape: tf.Tensor, theta: tf.Tensor, seed: Seed) -> tf.Tensor:
        return tfd.Laplace(tf.zeros([], theta.dtype), 1.0).sample(shape, seed=seed)

    def exponent(self, theta: tf.Tensor) -> tf.Tensor:
        """sqrt(2), [...]."""
        return self.raw_moments(theta)[1]

    def tail(self, theta: tf.Tensor) -> tf.Tensor:
        return _constant(theta, 15.0)


class LogisticBase(Base):
    """The logistic density: smooth, with exponential tails.

    Example::

        model = AffineIndependentGP(
            (X, Y), gpflow.kernels.Matern52(), BernoulliLogit(), base=LogisticBase()
        )
    """

    name = "logistic"

    def raw_moments(self, theta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return _constant(theta, 0.0), _constant(theta, math.pi / math.sqrt(3.0))

    def raw_entropy(self, theta: tf.Tensor) -> tf.Tensor:
        return _constant(theta, 2.0)

    def raw_log_prob(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        return -tf.abs(r) - 2.0 * tf.math.log1p(tf.exp(-tf.abs(r)))

    def raw_transform(self, omega: tf.Tensor, theta: tf.Tensor) -> Transform:
        return x_over_sinh(math.pi * omega), None

    def raw_cdf(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        return tf.sigmoid(r)

    def raw_sample(self, shape: tf.Tensor, theta: tf.Tensor, seed: Seed) -> tf.Tensor:
        return tfd.Logistic(tf.zeros([], theta.dtype), 1.0).sample(shape, seed=seed)

    def exponent(self, theta: tf.Tensor) -> tf.Tensor:
        """pi / sqrt(3), [...]."""
        return self.raw_moments(theta)[1]

    def tail(self, theta: tf.Tensor) -> tf.Tensor:
        return _constant(theta, 14.0)


# ---
# The skew-normal base distribution.


class SkewNormalBase(Base):
    """Azzalini's skew-normal density 2 phi(r) Phi(theta r), with one shape theta [..., 1].

    theta = 0 is normal, plus or minus infinity half-normal. Do not start at theta = 0, where the
    gradient of the bound vanishes.

    Example::

        base = SkewNormalBase()
        omega, theta = tf.constant([0.5, 1.0], tf.float64), tf.constant([2.0], tf.float64)
        base.characteristic(omega, theta)  # complex, [2]
        model = AffineIndependentGP(
            (X, Y), gpflow.kernels.Matern52(), BernoulliLogit(), base="skew_normal"
        )
    """

    name = "skew_normal"
    num_shapes = 1
    default = (1.0,)
    symmetric = False
    work = 14

    def raw_moments(self, theta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        shape = theta[..., 0]
        mean = math.sqrt(2.0 / math.pi) * shape / tf.sqrt(1.0 + tf.square(shape))
        return mean, tf.sqrt(1.0 - tf.square(mean))

    def raw_log_prob(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        return (
            0.5 * math.log(2.0 / math.pi) - 0.5 * tf.square(r) + log_normal_cdf(theta[..., 0] * r)
        )

    def raw_entropy(self, theta: tf.Tensor) -> tf.Tensor:
        return skew_normal_entropy(theta[..., 0])  # (A4)

    def raw_transform(self, omega: tf.Tensor, theta: tf.Tensor) -> Transform:
        return skew_normal_transform(omega, theta[..., 0])  # (A5)

    def raw_cdf(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        return skew_normal_cdf(r, theta[..., 0])

    def raw_sample(self, shape: tf.Tensor, theta: tf.Tensor, seed: Seed) -> tf.Tensor:
        n = tf.reduce_prod(shape) // tf.maximum(tf.size(theta), 1)
        zero = tf.zeros([], theta.dtype)
        return tf.reshape(SkewNormal(zero, 1.0 + zero, theta[..., 0]).sample(n, seed=seed), shape)

    def tail(self, theta: tf.Tensor) -> tf.Tensor:
        """6.5 for a normal density to 9.5 for a half-normal one, [...]."""
        mean, scale = self.raw_moments(tf.stop_gradient(theta))
        return (6.5 - tf.abs(mean)) / scale


# ---
# The generalised normal base.


class GeneralizedNormalBase(Base):
    """Symmetric densities proportional to exp(-|r|^p), p = theta [..., 1] in [0.9, 6].

    p = 1 is Laplace, p = 2 normal; smaller powers have heavier tails. The characteristic function
    comes from a table, computed once in 1.5 s.

    Example::

        base = GeneralizedNormalBase()
        base.entropy(tf.constant([[1.0], [2.0]], tf.float64))        # Laplace and normal, [2]
        model = AffineIndependentGLM((X, Y), Laplace(0.5), base="generalized_normal")
    """

    name = "generalized_normal"
    num_shapes = 1
    default = (1.5,)
    work = 32

    def bijector(self, dtype: tf.DType) -> tfp.bijectors.Bijector:
        return tfp.bijectors.Sigmoid(
            tf.constant(LEAST_POWER, dtype), tf.constant(LARGEST_POWER, dtype)
        )

    def problem(self, theta: np.ndarray) -> str:
        if np.all((theta >= LEAST_POWER) & (theta <= LARGEST_POWER)):
            return ""
        return (
            f"The power of the generalised normal base distribution is {theta.ravel()}; it must lie"
            f" between {LEAST_POWER} and {LARGEST_POWER}: clip it, or use VarianceGammaBase for"
            " heavier tails."
        )

    def raw_moments(self, theta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        inverse = 1.0 / theta[..., 0]
        return tf.zeros_like(inverse), tf.exp(
            0.5 * (tf.math.lgamma(3.0 * inverse) - tf.math.lgamma(inverse))
        )

    def raw_log_prob(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        p = theta[..., 0]
        return tf.math.log(0.5 * p) - tf.math.lgamma(1.0 / p) - tf.pow(tf.abs(r), p)

    def raw_entropy(self, theta: tf.Tensor) -> tf.Tensor:
        p = theta[..., 0]
        return 1.0 / p - tf.math.log(p) + math.log(2.0) + tf.math.lgamma(1.0 / p)

    def raw_transform(self, omega: tf.Tensor, theta: tf.Tensor) -> Transform:
        return generalized_normal_transform(omega, theta[..., 0]), None

    def raw_cdf(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        return generalized_normal_cdf(r, theta[..., 0])

    def raw_sample(self, shape: tf.Tensor, theta: tf.Tensor, seed: Seed) -> tf.Tensor:
        n = tf.reduce_prod(shape) // tf.maximum(tf.size(theta), 1)
        zero = tf.zeros([], theta.dtype)
        return tf.reshape(
            GeneralizedNormal(zero, 1.0 + zero, theta[..., 0]).sample(n, seed=seed), shape
        )

    def exponent(self, theta: tf.Tensor) -> tf.Tensor:
        """Infinite for powers above 1, the standard deviation of r at 1, and 0 below, [...]."""
        p = tf.stop_gradient(theta[..., 0])
        at_one = tf.where(
            p > 1.0,
            tf.fill(tf.shape(p), tf.constant(math.inf, p.dtype)),
            self.raw_moments(theta)[1],
        )
        return tf.where(p < 1.0, tf.zeros_like(p), at_one)

    def tail(self, theta: tf.Tensor) -> tf.Tensor:
        """30^(1/p) / sd, where the density is e^-30 of its maximum, [...]."""
        held = tf.stop_gradient(theta)
        return tf.pow(tf.constant(30.0, held.dtype), 1.0 / held[..., 0]) / self.raw_moments(held)[1]


# ---
# The Student-t base distribution, with polynomial tails.


_NODES = 96  # normals that make up the characteristic function
_DROP = 34.0
"""The integrand of the characteristic function is cut where it is e^-34 of its maximum."""


class StudentTBase(Base):
    """Student's t density with theta [..., 1] degrees of freedom, above 2.

    Its tails are too long for the route "lattice".

    Example::

        model = AffineIndependentGLM(
            (X, Y), gpflow.likelihoods.StudentT(), base="student_t", non_normal=2
        )
    """

    name = "student_t"
    num_shapes = 1
    default = (5.0,)
    work = 9 * _NODES // 4

    def bijector(self, dtype: tf.DType) -> tfp.bijectors.Bijector:
        two, least = (tf.constant(value, dtype) for value in (2.0, 1e-3))
        return tfp.bijectors.Chain([tfp.bijectors.Shift(two), tfp.bijectors.Softplus(low=least)])

    def problem(self, theta: np.ndarray) -> str:
        if np.all(theta > 2.0):
            return ""
        return (
            f"The Student-t base distribution has {theta.ravel()} degrees of freedom, and its"
            " variance is infinite at 2 or less: use more than 2, for example 3."
        )

    def raw_moments(self, theta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        nu = theta[..., 0]
        return tf.zeros_like(nu), tf.sqrt(nu / (nu - 2.0))

    def raw_log_prob(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        nu = theta[..., 0]
        return _log_height(nu) - 0.5 * (nu + 1.0) * tf.math.log1p(tf.square(r) / nu)

    def raw_entropy(self, theta: tf.Tensor) -> tf.Tensor:
        nu = theta[..., 0]
        half = 0.5 * (nu + 1.0)
        return half * (tf.math.digamma(half) - tf.math.digamma(0.5 * nu)) - _log_height(nu)

    def raw_transform(self, omega: tf.Tensor, theta: tf.Tensor) -> Transform:
        """E exp(i omega r), for omega [...]: a normal whose precision has a Gamma distribution."""
        # A trapezoidal integral over s, the log precision times a = nu / 2, of exp(a s - e^s - nu
        # omega^2 e^-s / 4) / Gamma(a).
        nu = theta[..., 0]
        a = 0.5 * nu
        s = _nodes(tf.stop_gradient(a))
        log_weight = a[..., None] * s - tf.exp(s) - tf.math.lgamma(a)[..., None]
        weight = tf.exp(log_weight) * (s[..., 1:2] - s[..., 0:1])
        rate = 0.25 * nu[..., None] * tf.exp(-s)
        return tf.reduce_sum(weight * tf.exp(-rate * tf.square(omega)[..., None]), axis=-1), None

    def raw_cdf(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        one = tf.ones([], theta.dtype)
        return tfd.StudentT(theta[..., 0], 0.0 * one, one).cdf(r)

    def raw_sample(self, shape: tf.Tensor, theta: tf.Tensor, seed: Seed) -> tf.Tensor:
        n = tf.reduce_prod(shape) // tf.maximum(tf.size(theta), 1)
        one = tf.ones([], theta.dtype)
        return tf.reshape(tfd.StudentT(theta[..., 0], 0.0 * one, one).sample(n, seed=seed), shape)

    def exponent(self, theta: tf.Tensor) -> tf.Tensor:
        """0, [...]: no exponential moment is finite."""
        return tf.zeros_like(theta[..., 0])

    def tail(self, theta: tf.Tensor) -> tf.Tensor:
        """43 for five degrees of freedom, several hundred for three, [...]."""
        nu = tf.stop_gradient(theta[..., 0])
        scale = self.raw_moments(tf.stop_gradient(theta))[1]

        def shortfall(log_r: tf.Tensor) -> tf.Tensor:
            """log 1e-8 minus the log of a bound on the mass beyond r, 2 density / hazard rate."""
            density = _log_height(nu) - 0.5 * (nu + 1.0) * tf.math.log1p(tf.exp(2.0 * log_r) / nu)
            hazard = (nu + 1.0) / (nu * tf.exp(-log_r) + tf.exp(log_r))
            return math.log(1e-8) - (math.log(2.0) + density - tf.math.log(hazard))

        ends = tf.zeros_like(nu) + 1.2, tf.zeros_like(nu) + 20.0
        return tf.exp(tfp.math.find_root_chandrupatla(shortfall, *ends).estimated_root) / scale


def _log_height(nu: tf.Tensor) -> tf.Tensor:
    normaliser = tf.math.lgamma(0.5 * nu) + 0.5 * tf.math.log(math.pi * nu)
    return tf.math.lgamma(0.5 * (nu + 1.0)) - normaliser


def _nodes(a: tf.Tensor) -> tf.Tensor:
    peak = tf.math.log(a)

    def fall(distance: tf.Tensor) -> tf.Tensor:
        return a * (tf.exp(distance) - 1.0 - distance) - _DROP

    zero = tf.zeros_like(a)
    up = tfp.math.find_root_chandrupatla(fall, zero, zero + 5.0).estimated_root
    down = tfp.math.find_root_chandrupatla(lambda x: fall(-x), zero, _DROP / a + 2.0).estimated_root
    ends = tf.linspace(tf.zeros([], a.dtype), tf.ones([], a.dtype), _NODES)
    return (peak - down)[..., None] + (up + down)[..., None] * ends


# ---
# The symmetric variance-gamma base distribution.


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


# ---


_REACH, _MIXTURE_NODES = 8.5, 241  # of each component, in its deviations: the entropy to 1e-10


class NormalMixtureBase(Base):
    """A mixture of J normals; theta [..., 3 J] has log weights, means, log standard deviations.

    Unconstrained. The entropy is exact to 1e-10 unless a standard deviation is below a fifteenth of
    an overlapping component's.

    :param components: J.

    Example::

        model = AffineIndependentGP(
            (X, Y), gpflow.kernels.Matern52(), BernoulliLogit(), base=NormalMixtureBase(3)
        )
    """

    name = "normal_mixture"
    symmetric = False

    def __init__(self, components: int = 2) -> None:
        if components < 1:
            raise DataError(f"components={components}: a mixture needs at least one component.")
        self.components = components
        self.num_shapes = 3 * components
        self.work = 10 + 4 * components
        means = np.linspace(-1.0, 1.0, components) if components > 1 else np.zeros(1)
        self.default = (*np.zeros(components), *means, *np.linspace(0.0, -0.5, components))

    def _parts(self, theta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        logits, means, log_scales = tf.split(theta, 3, axis=-1)
        return tf.nn.log_softmax(logits, axis=-1), means, tf.exp(log_scales)

    def raw_moments(self, theta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        log_weights, means, scales = self._parts(theta)
        weights = tf.exp(log_weights)
        mean = tf.reduce_sum(weights * means, axis=-1)
        spread = tf.square(scales) + tf.square(means - mean[..., None])
        return mean, tf.sqrt(tf.reduce_sum(weights * spread, axis=-1))

    def raw_log_prob(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        log_weights, means, scales = self._parts(theta)
        z = (r[..., None] - means) / scales
        terms = log_weights - tf.math.log(scales) - 0.5 * (tf.square(z) + math.log(2.0 * math.pi))
        return tf.reduce_logsumexp(terms, axis=-1)

    def raw_entropy(self, theta: tf.Tensor) -> tf.Tensor:
        log_weights, means, scales = self._parts(theta)
        nodes = np.linspace(-_REACH, _REACH, _MIXTURE_NODES)
        weights = np.exp(-0.5 * nodes**2) * (nodes[1] - nodes[0]) / math.sqrt(2.0 * math.pi)
        r = means[..., None] + scales[..., None] * tf.constant(nodes, theta.dtype)
        log_q = self.raw_log_prob(r, theta[..., None, None, :])
        each = tf.reduce_sum(log_q * tf.constant(weights, theta.dtype), axis=-1)
        return -tf.reduce_sum(tf.exp(log_weights) * each, axis=-1)

    def raw_transform(self, omega: tf.Tensor, theta: tf.Tensor) -> Transform:
        log_weights, means, scales = self._parts(theta)
        real = imaginary = tf.zeros_like(omega)
        for j in range(self.components):
            size = tf.exp(log_weights[..., j] - 0.5 * tf.square(omega * scales[..., j]))
            real += size * tf.cos(omega * means[..., j])
            imaginary += size * tf.sin(omega * means[..., j])
        return real, imaginary

    def raw_cdf(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        log_weights, means, scales = self._parts(theta)
        terms = (
            tf.exp(log_weights[..., j]) * normal_cdf((r - means[..., j]) / scales[..., j])
            for j in range(self.components)
        )
        return tf.add_n(list(terms))

    def raw_sample(self, shape: tf.Tensor, theta: tf.Tensor, seed: Seed) -> tf.Tensor:
        log_weights, means, scales = self._parts(theta)
        normals = tfd.Normal(means, scales)
        mixture = tfd.MixtureSameFamily(tfd.Categorical(logits=log_weights), normals)
        n = tf.reduce_prod(shape) // tf.reduce_prod(tf.shape(theta)[:-1])
        return tf.reshape(mixture.sample(n, seed=seed), shape)

    def tail(self, theta: tf.Tensor) -> tf.Tensor:
        """6.5 standard deviations beyond the outermost component, [...]."""
        held = tf.stop_gradient(theta)
        mean, scale = self.raw_moments(held)
        _, means, scales = self._parts(held)
        return tf.reduce_max(tf.abs(means - mean[..., None]) + 6.5 * scales, axis=-1) / scale
