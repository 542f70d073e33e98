"""Azzalini's skew-normal distribution."""

from __future__ import annotations

__all__ = [
    "GeneralizedNormal", "LARGEST_POWER", "LEAST_POWER", "SkewNormal", "generalized_normal_cdf",
    "generalized_normal_transform", "skew_normal_cdf", "skew_normal_entropy",
    "skew_normal_transform",
]  # fmt: skip

import math
from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ..probability import tfp
from ..special import hermite_lookup, log_normal_cdf, normal_cdf, owens_t, with_slopes
from .base_density import Seed

# ---
# The generalised normal's characteristic function.


# phi and two derivatives are tabulated once per process for 40 powers, with Chebyshev polynomials
# in log p between; Hermite interpolation in omega, and beyond the grid the series (A7).


LEAST_POWER, LARGEST_POWER = 0.9, 6.0
_LOW, _HIGH = math.log(0.87), math.log(6.2)  # Chebyshev nodes reach a little beyond the powers
_POWERS = 40
_STEP, _LAST = 0.05, 60.0  # grid of omega; beyond its end, the series (A7)
_TERMS = 6  # of the series (A7)
_PANEL = 16  # Gauss-Legendre nodes per panel


def generalized_normal_transform(omega: tf.Tensor, power: tf.Tensor) -> tf.Tensor:
    """E cos(omega v) for a density ~ exp(-|v|^power), 0.9 <= power <= 6; shapes [...] broadcast.

    One table per entry of `power`: use [D, 1] for power and [N, D, T] for omega.
    """
    size = tf.abs(omega) + tf.zeros_like(power)
    inside = tf.minimum(size, _LAST)
    looked_up = hermite_lookup(_tables_of(power), _STEP, inside)

    def with_series() -> tf.Tensor:
        return tf.where(size < _LAST, looked_up, _series(tf.maximum(size, _LAST), power))

    # the series costs as much as the table, and is rarely needed
    return tf.cond(tf.reduce_all(size < _LAST), lambda: looked_up, with_series)


def _tables_of(power: tf.Tensor) -> list[tf.Tensor]:
    x = (2.0 * tf.math.log(power) - (_LOW + _HIGH)) / (_HIGH - _LOW)
    angle = tf.acos(tf.clip_by_value(x, -1.0 + 1e-9, 1.0 - 1e-9))[..., None]
    polynomials = tf.cos(angle * tf.range(_POWERS, dtype=power.dtype))
    coefficients = tf.constant(_coefficients(), power.dtype)
    return tf.unstack(tf.tensordot(polynomials, coefficients, axes=1), num=3, axis=-1)


def _series(omega: tf.Tensor, power: tf.Tensor) -> tf.Tensor:
    """The expansion (A7) for large omega > 0."""
    total, front = tf.zeros_like(omega), power / tf.exp(tf.math.lgamma(1.0 / power))
    for j in range(1, _TERMS + 1):
        size = tf.exp(
            tf.math.lgamma(j * power + 1.0)
            - math.lgamma(j + 1.0)
            - (j * power + 1.0) * tf.math.log(omega)
        )
        total += (-1.0) ** (j + 1) * tf.sin(0.5 * math.pi * j * power) * size
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
    mass = (
        np.tile(0.5 * weights / panels, panels)
        * 3.0
        * V
        * x**2
        * p
        / math.gamma(1.0 / p)
        * np.exp(-(v**p))
    )
    turn = np.exp(1j * _STEP * v)
    wave, moments = np.ones_like(turn), np.stack([mass, v * mass, v**2 * mass], axis=1)
    result = np.empty([round(_LAST / _STEP) + 1, 3])
    for row in result:  # the waves of the next frequency, by one complex product
        sums = moments.T @ wave
        row[:] = sums[0].real, -sums[1].imag, -sums[2].real
        wave = wave * turn
    return result


# ---
# The generalised normal distribution.


def generalized_normal_cdf(v: tf.Tensor, power: tf.Tensor) -> tf.Tensor:
    """The cdf at scale 1, shapes [...] broadcast; exact first derivatives (A6), also at v = 0."""
    v, power = v + tf.zeros_like(power), power + tf.zeros_like(v)
    held, size = tf.stop_gradient(v), tf.abs(tf.stop_gradient(v))
    raised = tf.stop_gradient(tf.pow(size, power))
    share = tf.math.igamma(1.0 / power, raised)
    decay = tf.exp(-raised - tf.math.lgamma(1.0 / power))
    value = 0.5 + 0.5 * tf.sign(held) * share
    d_power = 0.5 * tf.sign(held) * decay * tf.math.xlogy(size, size)  # (A6), the second term
    return with_slopes(value, (v, 0.5 * power * decay), (power, d_power))


class GeneralizedNormal(tfp.distributions.GeneralizedNormal):
    """`tfp.distributions.GeneralizedNormal` with an exact gradient of the cdf at `loc`.

    Adds the characteristic function, for powers from 0.9 to 6. The density is proportional to
    exp(-(|x - loc| / scale)^power).

    :param loc: the centre; all three broadcast to the batch shape [...].
    :param scale: above 0.
    :param power: above 0.

    Example::

        q = GeneralizedNormal(np.float64(0.0), np.float64(1.0), np.float64(1.5))
        q.cdf(0.3), q.characteristic(tf.constant([0.5, 1.0], tf.float64))
    """

    def _cdf(self, x: tf.Tensor) -> tf.Tensor:
        return generalized_normal_cdf((x - self.loc) / self.scale, tf.convert_to_tensor(self.power))

    def _survival_function(self, x: tf.Tensor) -> tf.Tensor:
        return generalized_normal_cdf((self.loc - x) / self.scale, tf.convert_to_tensor(self.power))

    def characteristic(self, omega: tf.Tensor) -> tf.Tensor:
        """E exp(i omega x), complex, omega [...] broadcasts with the batch; absolute error 1e-9."""
        size = generalized_normal_transform(omega * self.scale, tf.convert_to_tensor(self.power))
        phase = omega * self.loc
        return tf.complex(size * tf.cos(phase), size * tf.sin(phase))


# ---


TensorLike: TypeAlias = tf.Tensor | tf.Variable | npt.ArrayLike
_HALF_LOG_2_PI = 0.5 * math.log(2.0 * math.pi)
_U = np.linspace(-12.0, 12.0, 49)
"""Nodes of the trapezoid rule for (A4)."""


def skew_normal_cdf(z: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
    """Phi(z) - 2 T(z, theta), shapes [...] broadcast; exact first derivatives in z and theta."""
    z, theta = z + tf.zeros_like(theta), theta + tf.zeros_like(z)
    value = tf.maximum(normal_cdf(z) - 2.0 * owens_t(z, theta), 0.0)
    gauss = tf.exp(-0.5 * tf.square(z))
    d_z = gauss * normal_cdf(theta * z) * math.sqrt(2.0 / math.pi)
    d_theta = -gauss * tf.exp(-0.5 * tf.square(theta * z)) / (math.pi * (1.0 + tf.square(theta)))
    return with_slopes(tf.stop_gradient(value), (z, d_z), (theta, d_theta))


def skew_normal_entropy(theta: tf.Tensor) -> tf.Tensor:
    """Entropy in nats, of the shape of theta, by (A4) with 49 nodes; error 1e-15."""
    u = tf.constant(_U, theta.dtype)
    root = tf.sqrt(1.0 + tf.square(theta))[..., None]
    v, gauss = (
        u / root,
        (_U[1] - _U[0]) / math.sqrt(2.0 * math.pi) * tf.exp(-0.5 * tf.square(u / root)),
    )
    log_cdf = log_normal_cdf(theta[..., None] * v)
    loss = tf.reduce_sum(2.0 * gauss / root * tf.exp(log_cdf) * log_cdf, axis=-1)
    value = _HALF_LOG_2_PI + 0.5 - math.log(2.0) - loss  # (A4)
    both = (_U[1] - _U[0]) / (2.0 * math.pi) * tf.exp(-0.5 * tf.square(u))  # phi(v) phi(theta v)
    slope = -2.0 * tf.reduce_sum(v / root * both * log_cdf, axis=-1)  # (A4)
    return with_slopes(tf.stop_gradient(value), (theta, slope))


def skew_normal_transform(omega: tf.Tensor, theta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Real and imaginary part of E exp(i omega z), shapes [...] broadcast: (A5)."""
    square = tf.square(omega)
    narrow = 1.0 / (1.0 + tf.square(theta))  # 1 - delta^2
    delta = theta * tf.sqrt(narrow)
    imaginary = (
        2.0
        / math.sqrt(math.pi)
        * tf.exp(-0.5 * narrow * square)
        * tf.math.special.dawsn(delta * omega / math.sqrt(2.0))
    )
    return tf.exp(-0.5 * square), imaginary  # (A5)


class SkewNormal(tfp.distributions.Distribution):
    """The skew normal, density 2 / scale phi(z) Phi(theta z), z = (x - loc) / scale.

    theta = 0 is normal; the skewness lies in (-0.9953, 0.9953). Differentiable in all parameters,
    which broadcast to the batch shape [...].

    :param loc: the location, the mean only for theta = 0.
    :param scale: the scale, above 0.
    :param theta: the shape, with the sign of the skewness.
    :param name: this and the two before as in TFP.

    Example::

        q = SkewNormal(np.float64(0.0), np.float64(1.0), np.float64([-2.0, 0.0, 4.0]))
        q.mean(), q.stddev(), q.skewness(), q.entropy()              # [3] each
        q.sample(1000, seed=1)                                       # [1000, 3]
    """

    def __init__(
        self,
        loc: TensorLike,
        scale: TensorLike,
        theta: TensorLike,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "SkewNormal",
    ) -> None:
        parameters = dict(locals())
        with tf.name_scope(name) as name:
            known = next((p.dtype for p in (loc, scale, theta) if hasattr(p, "dtype")), tf.float32)
            self._loc, self._scale, self._theta = (
                part if isinstance(part, tf.Variable) else tf.convert_to_tensor(part, dtype=known)
                for part in (loc, scale, theta)
            )
            super().__init__(
                dtype=tf.as_dtype(known),
                reparameterization_type=tfp.distributions.FULLY_REPARAMETERIZED,
                validate_args=validate_args,
                allow_nan_stats=allow_nan_stats,
                parameters=parameters,
                name=name,
            )

    @classmethod
    def _parameter_properties(
        cls, dtype: tf.DType, num_classes: int | None = None
    ) -> dict[str, tfp.util.ParameterProperties]:
        properties = tfp.util.ParameterProperties
        positive = properties(default_constraining_bijector_fn=tfp.bijectors.Softplus)
        return {"loc": properties(), "scale": positive, "theta": properties()}

    @property
    def loc(self) -> tf.Tensor:
        """The location [...], not the mean."""
        return self._loc

    @property
    def scale(self) -> tf.Tensor:
        """The scale [...], not the standard deviation."""
        return self._scale

    @property
    def theta(self) -> tf.Tensor:
        """The shape [...], with the sign of the skewness."""
        return self._theta

    def _event_shape(self) -> tf.TensorShape:
        return tf.TensorShape([])

    def _event_shape_tensor(self) -> tf.Tensor:
        return tf.constant([], tf.int32)

    def _z(self, x: tf.Tensor) -> tf.Tensor:
        return (x - self.loc) / self.scale

    @property
    def _delta(self) -> tf.Tensor:
        return self.theta / tf.sqrt(1.0 + tf.square(self.theta))

    def _log_prob(self, x: tf.Tensor) -> tf.Tensor:
        z = self._z(x)
        gauss = math.log(2.0) - _HALF_LOG_2_PI - 0.5 * tf.square(z)
        return gauss + log_normal_cdf(self.theta * z) - tf.math.log(self.scale)

    def _cdf(self, x: tf.Tensor) -> tf.Tensor:
        return skew_normal_cdf(self._z(x), tf.convert_to_tensor(self.theta))

    def _survival_function(self, x: tf.Tensor) -> tf.Tensor:
        return skew_normal_cdf(-self._z(x), -tf.convert_to_tensor(self.theta))

    def _entropy(self) -> tf.Tensor:
        value = skew_normal_entropy(tf.convert_to_tensor(self.theta)) + tf.math.log(self.scale)
        return tf.broadcast_to(value, self.batch_shape_tensor())

    def _mean(self) -> tf.Tensor:
        value = self.loc + self.scale * self._delta * math.sqrt(2.0 / math.pi)
        return tf.broadcast_to(value, self.batch_shape_tensor())

    def _variance(self) -> tf.Tensor:
        value = tf.square(self.scale) * (1.0 - 2.0 / math.pi * tf.square(self._delta))
        return tf.broadcast_to(value, self.batch_shape_tensor())

    def _stddev(self) -> tf.Tensor:
        return tf.sqrt(self._variance())

    def skewness(self) -> tf.Tensor:
        """The third standardised moment, of the batch shape."""
        mean = self._delta * math.sqrt(2.0 / math.pi)
        value = 0.5 * (4.0 - math.pi) * mean**3 / (1.0 - tf.square(mean)) ** 1.5
        return tf.broadcast_to(value, self.batch_shape_tensor())

    def _sample_n(self, n: int, seed: Seed = None) -> tf.Tensor:
        shape = tf.concat([[n], self.batch_shape_tensor()], axis=0)
        first, second = tf.unstack(tfp.random.split_seed(seed, n=2, salt="SkewNormal"))
        z_1 = tf.abs(tf.random.stateless_normal(shape, first, dtype=self.dtype))
        z_2 = tf.random.stateless_normal(shape, second, dtype=self.dtype)
        narrow = tf.math.rsqrt(1.0 + tf.square(self.theta))
        return self.loc + self.scale * (self._delta * z_1 + narrow * z_2)

    def _default_event_space_bijector(self) -> tfp.bijectors.Bijector:
        return tfp.bijectors.Identity(validate_args=self.validate_args)

    def characteristic(self, omega: tf.Tensor) -> tf.Tensor:
        """E exp(i omega x), complex, omega [...] broadcasts with the batch shape."""
        real, imaginary = skew_normal_transform(
            omega * self.scale, tf.convert_to_tensor(self.theta)
        )
        phase = omega * self.loc
        rotation = tf.complex(tf.cos(phase), tf.sin(phase))
        return rotation * tf.complex(real + tf.zeros_like(imaginary), imaginary)
