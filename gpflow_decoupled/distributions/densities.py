"""Base distributions of affine-independent inference: the contract, and those with formulas.

In w = A v + b the v_d are independent with mean 0 and variance 1, and theta_d only shapes the
density.
"""

# | symbol | code | shape |
# |---|---|---|
# | theta_d, the P shapes of variable d | `theta` | [D, P] |
# | log q(v_d), the log density | `Base.log_prob` | as v |
# | H_d, the entropy | `Base.entropy` | [D] |
# | phi_d(omega) = E exp(i omega v_d), characteristic function | `Base.characteristic` | as omega |
# | F_d(v), cumulative distribution function (cdf) | `Base.cdf` | as v |
# | supremum of the t with E exp(t abs(v)) finite | `Base.exponent` | [D] |
# | R, with about 1e-8 of the mass beyond R standard deviations | `Base.tail` | [D] |
#
# All are differentiable functions of theta and act elementwise: v or omega [...] broadcasts with
# the leading axes of theta [..., P], v [N, D] with theta [D, P], frequencies [N, D, T] with
# `theta[:, None, :]`.

from __future__ import annotations

__all__ = [
    "Base", "GeneralizedNormalBase", "LaplaceBase", "LogisticBase", "NormalBase",
    "NormalMixtureBase", "Seed", "SkewNormalBase", "StudentTBase",
]  # fmt: skip

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ..errors import DataError
from ..probability import tfp
from ..special import (
    hermite_lookup,
    log_normal_cdf,
    normal_cdf,
    owens_t,
    with_slopes,
    x_over_sinh,
)

tfd = tfp.distributions
Transform = tuple[tf.Tensor, tf.Tensor | None]
"""Real and imaginary part of a characteristic function; None for a zero imaginary part."""
Seed: TypeAlias = int | Sequence[int] | tf.Tensor | None
"""A seed of TensorFlow Probability."""


class Base(ABC):
    """A family of densities with finite variance, the base of affine-independent inference.

    A subclass describes a raw r, elementwise in theta [..., P]; users see v = (r - mean) / sd. It
    sets `name`, `num_shapes`, `default` and writes `raw_transform`, `tail` and either `law` or the
    other `raw_...` methods. Only the route "lattice" needs a cdf; only exponential or heavier tails
    need `exponent`.

    Example::

        base = SkewNormalBase()
        theta = tf.constant([[-2.0], [0.5]], tf.float64)  # [D, P] = [2, 1]
        v = base.sample(1000, theta, seed=1)  # [1000, 2], mean 0 and variance 1
        log_q, entropy = base.log_prob(v, theta), base.entropy(theta)  # [1000, 2] and [2]
    """

    name: str = ""
    num_shapes: int = 0
    """P, the number of shapes per variable."""
    num_variables: int | None = None
    """The number of variables, if it is fixed."""
    default: tuple[float, ...] = ()
    """Shapes [P] to start from."""
    symmetric: bool = True
    """The density is symmetric: `characteristic` returns a real tensor, half the size."""
    has_cdf: bool = True
    work: int = 12
    """Measured complex tensors of omega's size that an expectation and its gradient hold at
    once.
    """

    def law(self, theta: tf.Tensor) -> tfp.distributions.Distribution:
        """The TFP distribution of r, of batch shape [...] for theta [..., P]."""
        raise NotImplementedError(f"{type(self).__name__} must define law, or the raw_ methods.")

    def raw_moments(self, theta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and standard deviation of r, [...] each, for theta [..., P]."""
        law = self.law(theta)
        return law.mean(), law.stddev()

    def raw_log_prob(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        """The log density of r [...]."""
        return self.law(theta).log_prob(r)

    def raw_entropy(self, theta: tf.Tensor) -> tf.Tensor:
        """The entropy of r in nats, [...] for theta [..., P]."""
        return self.law(theta).entropy()

    @abstractmethod
    def raw_transform(self, omega: tf.Tensor, theta: tf.Tensor) -> Transform:
        """The real and imaginary part of E exp(i omega r), for omega [...]."""

    def raw_cdf(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        """The cdf of r [...], differentiable in theta; the density replaces its slope in r."""
        return self.law(theta).cdf(r)

    def raw_sample(self, shape: tf.Tensor, theta: tf.Tensor, seed: Seed) -> tf.Tensor:
        """Draw r of a `shape` [...] to which theta broadcasts."""
        n = tf.reduce_prod(shape) // tf.reduce_prod(tf.shape(theta)[:-1])
        return tf.reshape(self.law(theta).sample(n, seed=seed), shape)

    @abstractmethod
    def tail(self, theta: tf.Tensor) -> tf.Tensor:
        """R [...] with at most about 1e-8 of the mass beyond R standard deviations; a constant."""

    def bijector(self, dtype: tf.DType) -> tfp.bijectors.Bijector:
        """The map from unconstrained numbers to valid theta, in a `dtype`."""
        return tfp.bijectors.Identity()

    def exponent(self, theta: tf.Tensor) -> tf.Tensor:
        """Supremum [...] of the t with E exp(t |v|) finite; a constant."""
        return tf.zeros_like(tf.reduce_sum(theta, axis=-1)) + math.inf

    def problem(self, theta: np.ndarray) -> str:
        """Describe the fault of theta [..., P] and its remedy; "" if valid."""
        return ""

    def check(self, theta: tf.Tensor | npt.ArrayLike) -> tf.Tensor:
        """Return theta [..., P] as a tensor."""
        theta = tf.convert_to_tensor(theta)
        P, rank = self.num_shapes, theta.shape.rank
        if rank is not None and (rank == 0 or theta.shape[-1] not in (P, None)):
            raise DataError(
                f"theta has shape {theta.shape} and the base distribution '{self.name}' needs [D,"
                f" {P}], one row per variable."
            )
        values = tf.get_static_value(theta)
        if values is not None:
            if not np.all(np.isfinite(values)):
                raise DataError(
                    f"theta of the base distribution '{self.name}' is not finite: start at its"
                    " default, start(D)."
                )
            problem = self.problem(values)
            if problem:
                raise DataError(problem)
        return theta

    def parts(self, D: int) -> list[tuple[Base, int]]:
        """Pairs of a family and its number of variables, for D variables."""
        return [(self, D)]

    def start(self, D: int, dtype: tf.DType | npt.DTypeLike = tf.float64) -> tf.Tensor:
        """Shapes theta [D, P] of D variables at `default`."""
        return tf.tile(tf.constant([self.default], dtype, shape=[1, self.num_shapes]), [D, 1])

    def log_prob(self, v: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        """Log density of v in nats, of the broadcast shape of v and theta [..., P]."""
        theta = self.check(theta)
        mean, scale = self.raw_moments(theta)
        return self.raw_log_prob(mean + scale * v, theta) + tf.math.log(scale)

    def entropy(self, theta: tf.Tensor) -> tf.Tensor:
        """Entropy of v in nats, [...] for theta [..., P]."""
        theta = self.check(theta)
        return self.raw_entropy(theta) - tf.math.log(self.raw_moments(theta)[1])

    def characteristic(self, omega: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        """phi(omega) = E exp(i omega v), of the broadcast shape of omega and theta [..., P].

        :return: real if the density is `symmetric`, else complex.
        """
        theta = self.check(theta)
        mean, scale = self.raw_moments(theta)
        real, imaginary = self.raw_transform(omega / scale, theta)
        if imaginary is None:
            return real
        cos, sin = tf.cos(omega * (mean / scale)), tf.sin(omega * (mean / scale))
        return tf.complex(cos * real + sin * imaginary, cos * imaginary - sin * real)

    def cdf(self, v: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        """The cdf at finite v, of the broadcast shape of v and theta [..., P]."""
        if not self.has_cdf:
            raise DataError(
                f"The base distribution '{self.name}' has no cdf: use the route 'spectral' or"
                " 'frequency_sum'."
            )
        theta = self.check(theta)
        mean, scale = self.raw_moments(theta)
        r = mean + scale * v
        held = tf.stop_gradient(r)
        density = tf.exp(self.raw_log_prob(held, tf.stop_gradient(theta)))
        return with_slopes(self.raw_cdf(held, theta), (r, density))  # the slope in r is the density

    def sample(self, n: int, theta: tf.Tensor, seed: Seed = None) -> tf.Tensor:
        """Draw `n` independent v, [n, ...] for theta [..., P]."""
        theta = self.check(theta)
        mean, scale = self.raw_moments(theta)
        shape = tf.concat([[n], tf.shape(theta)[:-1]], axis=0)
        return (self.raw_sample(shape, theta, seed) - mean) / scale


# ---
# Without shapes.


class NormalBase(Base):
    """The standard normal density; affine-independent inference becomes Gaussian KL inference.

    Example::

        model = AffineIndependentGP(
            (X, Y), gpflow.kernels.Matern52(), BernoulliLogit(), base=NormalBase()
        )
    """

    name = "normal"

    def law(self, theta: tf.Tensor) -> tfp.distributions.Distribution:
        return tfd.Normal(tf.reduce_sum(theta, axis=-1), tf.ones([], theta.dtype))

    def raw_transform(self, omega: tf.Tensor, theta: tf.Tensor) -> Transform:
        return tf.exp(-0.5 * tf.square(omega)), None

    def tail(self, theta: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(theta, axis=-1) + 6.5


class LaplaceBase(Base):
    """The Laplace density: a kink at zero and exponential tails.

    Example::

        model = AffineIndependentGLM((X, Y), Laplace(0.5), base=LaplaceBase())
    """

    name = "laplace"

    def law(self, theta: tf.Tensor) -> tfp.distributions.Distribution:
        return tfd.Laplace(tf.reduce_sum(theta, axis=-1), tf.ones([], theta.dtype))

    def raw_transform(self, omega: tf.Tensor, theta: tf.Tensor) -> Transform:
        return 1.0 / (1.0 + tf.square(omega)), None

    def exponent(self, theta: tf.Tensor) -> tf.Tensor:
        """sqrt(2), [...]."""
        return self.raw_moments(theta)[1]

    def tail(self, theta: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(theta, axis=-1) + 15.0


class LogisticBase(Base):
    """The logistic density: smooth, with exponential tails.

    Example::

        model = AffineIndependentGP(
            (X, Y), gpflow.kernels.Matern52(), BernoulliLogit(), base=LogisticBase()
        )
    """

    name = "logistic"

    def law(self, theta: tf.Tensor) -> tfp.distributions.Distribution:
        return tfd.Logistic(tf.reduce_sum(theta, axis=-1), tf.ones([], theta.dtype))

    def raw_transform(self, omega: tf.Tensor, theta: tf.Tensor) -> Transform:
        return x_over_sinh(math.pi * omega), None

    def exponent(self, theta: tf.Tensor) -> tf.Tensor:
        """pi / sqrt(3), [...]."""
        return self.raw_moments(theta)[1]

    def tail(self, theta: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(theta, axis=-1) + 14.0


# ---
# Skewed.


_U = np.linspace(-12.0, 12.0, 49)
"""Nodes of the trapezoid rule for (A4), exact to 1e-15."""


class SkewNormalBase(Base):
    """Azzalini's skew-normal density 2 phi(r) Phi(theta r), with one shape theta [..., 1].

    theta = 0 is normal, plus or minus infinity half-normal; the skewness lies in (-0.9953, 0.9953).
    Do not start at theta = 0, where the gradient of the bound vanishes.

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
        gauss = 0.5 * math.log(2.0 / math.pi) - 0.5 * tf.square(r)
        return gauss + log_normal_cdf(theta[..., 0] * r)

    def raw_entropy(self, theta: tf.Tensor) -> tf.Tensor:
        shape, step = theta[..., 0], _U[1] - _U[0]
        u, root = tf.constant(_U, theta.dtype), tf.sqrt(1.0 + tf.square(shape))[..., None]
        v = u / root
        gauss = step / math.sqrt(2.0 * math.pi) * tf.exp(-0.5 * tf.square(v))
        log_cdf = log_normal_cdf(shape[..., None] * v)
        loss = tf.reduce_sum(2.0 * gauss / root * tf.exp(log_cdf) * log_cdf, axis=-1)
        value = 0.5 * math.log(2.0 * math.pi) + 0.5 - math.log(2.0) - loss  # (A4)
        both = step / (2.0 * math.pi) * tf.exp(-0.5 * tf.square(u))  # phi(v) phi(theta v)
        slope = -2.0 * tf.reduce_sum(v / root * both * log_cdf, axis=-1)  # (A4)
        return with_slopes(tf.stop_gradient(value), (shape, slope))

    def raw_transform(self, omega: tf.Tensor, theta: tf.Tensor) -> Transform:
        shape = theta[..., 0]
        narrow = 1.0 / (1.0 + tf.square(shape))  # 1 - delta^2
        dawson = tf.math.special.dawsn(shape * tf.sqrt(narrow) * omega / math.sqrt(2.0))
        imaginary = 2.0 / math.sqrt(math.pi) * tf.exp(-0.5 * narrow * tf.square(omega)) * dawson
        return tf.exp(-0.5 * tf.square(omega)), imaginary  # (A5)

    def raw_cdf(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        """Phi(r) - 2 T(r, theta), with an exact derivative in theta."""
        shape = theta[..., 0] + tf.zeros_like(r)
        r += tf.zeros_like(shape)
        value = tf.maximum(normal_cdf(r) - 2.0 * owens_t(r, shape), 0.0)
        square = 1.0 + tf.square(shape)
        slope = -tf.exp(-0.5 * square * tf.square(r)) / (math.pi * square)
        return with_slopes(tf.stop_gradient(value), (shape, slope))

    def raw_sample(self, shape: tf.Tensor, theta: tf.Tensor, seed: Seed) -> tf.Tensor:
        seeds = tf.unstack(tfp.random.split_seed(seed, n=2, salt="SkewNormal"))
        one, two = (tf.random.stateless_normal(shape, part, dtype=theta.dtype) for part in seeds)
        narrow = tf.math.rsqrt(1.0 + tf.square(theta[..., 0]))
        return narrow * (theta[..., 0] * tf.abs(one) + two)

    def tail(self, theta: tf.Tensor) -> tf.Tensor:
        """6.5 for a normal density to 9.5 for a half-normal one, [...]."""
        mean, scale = self.raw_moments(tf.stop_gradient(theta))
        return (6.5 - tf.abs(mean)) / scale


# ---
# The generalised normal. Its transform and two derivatives are tabulated once per process for 40
# powers, with Chebyshev polynomials in log p between; Hermite interpolation in omega, and beyond
# the grid the series (A7).


_LEAST, _LARGEST = 0.9, 6.0
_LOW, _HIGH = math.log(0.87), math.log(6.2)  # Chebyshev nodes reach a little beyond the powers
_POWERS = 40
_STEP, _LAST = 0.05, 60.0  # grid of omega
_TERMS = 6  # of the series (A7)
_PANEL = 16  # Gauss-Legendre nodes per panel


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
        return tfp.bijectors.Sigmoid(tf.constant(_LEAST, dtype), tf.constant(_LARGEST, dtype))

    def problem(self, theta: np.ndarray) -> str:
        if np.all((theta >= _LEAST) & (theta <= _LARGEST)):
            return ""
        return (
            f"The power of the generalised normal base distribution is {theta.ravel()}; it must lie"
            f" between {_LEAST} and {_LARGEST}: clip it, or use StudentTBase for heavier tails."
        )

    def law(self, theta: tf.Tensor) -> tfp.distributions.Distribution:
        zero = tf.zeros([], theta.dtype)
        return tfd.GeneralizedNormal(zero, 1.0 + zero, theta[..., 0])

    def raw_transform(self, omega: tf.Tensor, theta: tf.Tensor) -> Transform:
        """E cos(omega r), to 1e-9; one table per entry of theta: [D, 1, 1] for omega [N, D, T]."""
        power = theta[..., 0]
        size = tf.abs(omega) + tf.zeros_like(power)
        x = (2.0 * tf.math.log(power) - (_LOW + _HIGH)) / (_HIGH - _LOW)
        angle = tf.acos(tf.clip_by_value(x, -1.0 + 1e-9, 1.0 - 1e-9))[..., None]
        polynomials = tf.cos(angle * tf.range(_POWERS, dtype=power.dtype))
        tables = tf.tensordot(polynomials, tf.constant(_coefficients(), power.dtype), axes=1)
        looked_up = hermite_lookup(tf.unstack(tables, axis=-1), _STEP, tf.minimum(size, _LAST))

        def with_series() -> tf.Tensor:
            return tf.where(size < _LAST, looked_up, _series(tf.maximum(size, _LAST), power))

        # the series costs as much as the table, and is rarely needed
        return tf.cond(tf.reduce_all(size < _LAST), lambda: looked_up, with_series), None

    def raw_cdf(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        """See `Base`; TFP's has no finite gradient at r = 0."""
        power = theta[..., 0] + tf.zeros_like(r)
        size, sign = tf.abs(r) + tf.zeros_like(power), tf.sign(r)
        raised = tf.stop_gradient(tf.pow(size, power))
        value = 0.5 + 0.5 * sign * tf.math.igamma(1.0 / power, raised)
        decay = tf.exp(-raised - tf.math.lgamma(1.0 / power))
        slope = 0.5 * sign * decay * tf.math.xlogy(size, size)  # (A6), the second term
        return with_slopes(value, (power, slope))

    def exponent(self, theta: tf.Tensor) -> tf.Tensor:
        """Infinite for powers above 1, the standard deviation of r at 1, and 0 below, [...]."""
        p, scale = tf.stop_gradient(theta[..., 0]), self.raw_moments(theta)[1]
        at_most_one = tf.where(p < 1.0, tf.zeros_like(p), scale)
        return tf.where(p > 1.0, tf.constant(math.inf, p.dtype), at_most_one)

    def tail(self, theta: tf.Tensor) -> tf.Tensor:
        """30^(1/p) / sd, where the density is e^-30 of its maximum, [...]."""
        held = tf.stop_gradient(theta)
        return tf.pow(tf.constant(30.0, held.dtype), 1.0 / held[..., 0]) / self.raw_moments(held)[1]


def _series(omega: tf.Tensor, power: tf.Tensor) -> tf.Tensor:
    """The expansion (A7) for large omega > 0."""
    total, front = tf.zeros_like(omega), power / tf.exp(tf.math.lgamma(1.0 / power))
    for j in range(1, _TERMS + 1):
        order = j * power + 1.0
        log_size = tf.math.lgamma(order) - math.lgamma(j + 1.0) - order * tf.math.log(omega)
        total -= (-1.0) ** j * tf.sin(0.5 * math.pi * j * power) * tf.exp(log_size)
    return front * total  # (A7)


@cache
def _coefficients() -> np.ndarray:
    angles = np.pi * (np.arange(_POWERS) + 0.5) / _POWERS
    powers = np.exp(0.5 * (_LOW + _HIGH) + 0.5 * (_HIGH - _LOW) * np.cos(angles))
    values = np.stack([_moments_on_the_grid(p) for p in powers])
    to_coefficients = 2.0 / _POWERS * np.cos(np.arange(_POWERS)[:, None] * angles)
    to_coefficients[0] *= 0.5
    return np.tensordot(to_coefficients, values, axes=1)


def _moments_on_the_grid(p: float) -> np.ndarray:
    V = 42.0 ** (1.0 / p)
    panels = int(math.ceil((200 + 1.2 * _LAST * V) / _PANEL))
    nodes, weights = np.polynomial.legendre.leggauss(_PANEL)
    x = ((np.arange(panels)[:, None] + 0.5 * (nodes + 1.0)) / panels).ravel()
    v = V * x**3
    density = p / math.gamma(1.0 / p) * np.exp(-(v**p))
    mass = np.tile(0.5 * weights / panels, panels) * 3.0 * V * x**2 * density
    turn = np.exp(1j * _STEP * v)
    wave, moments = np.ones_like(turn), np.stack([mass, v * mass, v**2 * mass], axis=1)
    result = np.empty([round(_LAST / _STEP) + 1, 3])
    for row in result:  # the waves of the next frequency, by one complex product
        sums = moments.T @ wave
        row[:] = sums[0].real, -sums[1].imag, -sums[2].real
        wave = wave * turn
    return result


# ---
# Student's t, with polynomial tails.


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

    def law(self, theta: tf.Tensor) -> tfp.distributions.Distribution:
        zero = tf.zeros([], theta.dtype)
        return tfd.StudentT(theta[..., 0], zero, 1.0 + zero)

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

    def exponent(self, theta: tf.Tensor) -> tf.Tensor:
        """0, [...]: no exponential moment is finite."""
        return tf.zeros_like(theta[..., 0])

    def tail(self, theta: tf.Tensor) -> tf.Tensor:
        """43 for five degrees of freedom, several hundred for three, [...]."""
        held = tf.stop_gradient(theta)
        nu, scale = held[..., 0], self.raw_moments(held)[1]

        def shortfall(log_r: tf.Tensor) -> tf.Tensor:
            """log 1e-8 minus the log of a bound on the mass beyond r, 2 density / hazard rate."""
            hazard = (nu + 1.0) / (nu * tf.exp(-log_r) + tf.exp(log_r))
            log_density = self.raw_log_prob(tf.exp(log_r), held)
            return math.log(1e-8) - (math.log(2.0) + log_density - tf.math.log(hazard))

        ends = tf.zeros_like(nu) + 1.2, tf.zeros_like(nu) + 20.0
        return tf.exp(tfp.math.find_root_chandrupatla(shortfall, *ends).estimated_root) / scale


def _nodes(a: tf.Tensor) -> tf.Tensor:
    peak, zero = tf.math.log(a), tf.zeros_like(a)

    def fall(distance: tf.Tensor) -> tf.Tensor:
        return a * (tf.exp(distance) - 1.0 - distance) - _DROP

    up = tfp.math.find_root_chandrupatla(fall, zero, zero + 5.0).estimated_root
    down = tfp.math.find_root_chandrupatla(lambda x: fall(-x), zero, _DROP / a + 2.0).estimated_root
    ends = tf.linspace(tf.zeros([], a.dtype), tf.ones([], a.dtype), _NODES)
    return (peak - down)[..., None] + (up + down)[..., None] * ends


# ---
# Mixtures.


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

    def law(self, theta: tf.Tensor) -> tfp.distributions.Distribution:
        logits, means, log_scales = tf.split(theta, 3, axis=-1)
        normals = tfd.Normal(means, tf.exp(log_scales))
        return tfd.MixtureSameFamily(tfd.Categorical(logits=logits), normals)

    def _parts(self, theta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        logits, means, log_scales = tf.split(theta, 3, axis=-1)
        return tf.nn.softmax(logits, axis=-1), means, tf.exp(log_scales)

    def raw_entropy(self, theta: tf.Tensor) -> tf.Tensor:
        shares, means, scales = self._parts(theta)
        nodes = np.linspace(-_REACH, _REACH, _MIXTURE_NODES)
        weights = np.exp(-0.5 * nodes**2) * (nodes[1] - nodes[0]) / math.sqrt(2.0 * math.pi)
        r = means[..., None] + scales[..., None] * tf.constant(nodes, theta.dtype)
        log_q = self.raw_log_prob(r, theta[..., None, None, :])
        each = tf.reduce_sum(log_q * tf.constant(weights, theta.dtype), axis=-1)
        return -tf.reduce_sum(shares * each, axis=-1)

    def raw_transform(self, omega: tf.Tensor, theta: tf.Tensor) -> Transform:
        shares, means, scales = self._parts(theta)
        real = imaginary = tf.zeros_like(omega)
        for j in range(self.components):
            size = shares[..., j] * tf.exp(-0.5 * tf.square(omega * scales[..., j]))
            real += size * tf.cos(omega * means[..., j])
            imaginary += size * tf.sin(omega * means[..., j])
        return real, imaginary

    def tail(self, theta: tf.Tensor) -> tf.Tensor:
        """6.5 standard deviations beyond the outermost component, [...]."""
        held = tf.stop_gradient(theta)
        mean, scale = self.raw_moments(held)
        _, means, scales = self._parts(held)
        return tf.reduce_max(tf.abs(means - mean[..., None]) + 6.5 * scales, axis=-1) / scale
