"""A TFP distribution as base distribution."""

from __future__ import annotations

__all__ = ["TabulatedBase"]

import math
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from ..errors import DataError
from ..probability import tfp
from ..special.hermite import hermite_lookup
from .base_density import Base, Seed, Transform

Maker = Callable[[tf.Tensor], tfp.distributions.Distribution]
"""theta [..., P] -> a distribution of batch shape [...]."""
_TAIL = 1e-8  # mass beyond `tail`
_PADDING = 16
"""Refinement of the frequency grid beyond the density's Nyquist grid: accuracy for FFT length."""


class TabulatedBase(Base):
    """A base distribution tabulated on a regular grid from a TFP distribution.

    For smooth densities; there is no cdf.

    :param make: theta [..., P] -> a distribution of batch shape [...] in the dtype of theta.
    :param default: the shapes [P] to start from; empty if there is nothing to learn.
    :param support: the ends of the grid; by default twice the range of the mass at `default`.
    :param points: length of the grid, a power of two.
    :param name: the name in messages and results.

    Example::

        def make(theta):  # a skewed density with one shape
            return tfp.distributions.SinhArcsinh(
                tf.zeros_like(theta[..., 0]), 1.0, skewness=theta[..., 0]
            )

        base = TabulatedBase(make, default=(0.3,), name="sinh-arcsinh")
    """

    symmetric = False
    has_cdf = False
    work = 60

    def __init__(
        self,
        make: Maker,
        default: tuple[float, ...] = (),
        support: tuple[float, float] | None = None,
        points: int = 4096,
        name: str = "tabulated",
    ) -> None:
        if points < 2 or points & (points - 1):
            raise DataError(
                f"points={points}: the length of the table must be a power of two, for example"
                " 4096."
            )
        self.make, self.default, self.num_shapes, self.name = (
            make,
            tuple(default),
            len(default),
            name,
        )
        self.points = points
        theta = np.array([self.default]).reshape(1, self.num_shapes)
        low, high = (
            support if support is not None else _support(make, tf.constant(theta, tf.float64), name)
        )
        self._low, self._step = low, (high - low) / (points - 1)
        problem = self.problem(theta)
        if problem:
            raise DataError(problem)

    def problem(self, theta: np.ndarray) -> str:
        with tf.init_scope():  # theta is known here, also while a function is traced
            mass = tf.reduce_sum(self._masses(tf.constant(theta)), axis=-1).numpy()
        limit = 1e-6 if theta.dtype == np.float64 else 1e-4
        if np.all(np.abs(mass - 1.0) < limit):
            return ""
        return (
            f"The density of the base distribution '{self.name}' has mass {mass.ravel()} on the"
            f" table from {self._low:.4g} to {self._low + self._step * (self.points - 1):.4g} with"
            f" {self.points} points: give a wider support=(low, high), more points, or a smoother"
            " density."
        )

    def _grid(self, dtype: tf.DType) -> tf.Tensor:
        return tf.constant(self._low + self._step * np.arange(self.points), dtype)

    def _log_density(self, theta: tf.Tensor) -> tf.Tensor:
        return self.make(theta[..., None, :]).log_prob(self._grid(theta.dtype))

    def _masses(self, theta: tf.Tensor) -> tf.Tensor:
        return tf.exp(self._log_density(theta)) * self._step

    def raw_moments(self, theta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        masses, grid = self._masses(theta), self._grid(theta.dtype)
        mean = tf.reduce_sum(masses * grid, axis=-1)
        return mean, tf.sqrt(tf.reduce_sum(masses * tf.square(grid - mean[..., None]), axis=-1))

    def raw_log_prob(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        return self.make(theta).log_prob(r)

    def raw_entropy(self, theta: tf.Tensor) -> tf.Tensor:
        log_q = self._log_density(theta)
        finite = tf.where(tf.math.is_inf(log_q), tf.zeros_like(log_q), log_q)
        return -tf.reduce_sum(tf.exp(log_q) * finite, axis=-1) * self._step

    def raw_transform(self, omega: tf.Tensor, theta: tf.Tensor) -> Transform:
        """Real and imaginary part of E exp(i omega r), omega [...]; 0 beyond the resolution."""
        # FFTs of the masses times 1, u and u^2, u = r - mean, tabulate it for Hermite
        # interpolation.
        masses, grid = self._masses(theta), self._grid(theta.dtype)
        # about its mean the transform is smooth enough for the table; the last line turns it back
        centre = tf.stop_gradient(tf.reduce_sum(masses * grid, axis=-1, keepdims=True))
        u = grid - centre
        length = self.points * _PADDING
        step = 2.0 * math.pi / (length * self._step)
        phase = step * tf.range(length // 2 + 1, dtype=theta.dtype) * (self._low - centre)
        turn = tf.complex(tf.cos(phase), tf.sin(phase))
        tables = []
        for moment in (masses, masses * u, -masses * tf.square(u)):
            waves = tf.math.conj(tf.signal.rfft(moment, fft_length=[length])) * turn
            tables.append(waves)
        real = hermite_lookup(
            [tf.math.real(tables[0]), -tf.math.imag(tables[1]), tf.math.real(tables[2])],
            step,
            tf.abs(omega),
        )
        imaginary = hermite_lookup(
            [tf.math.imag(tables[0]), tf.math.real(tables[1]), tf.math.imag(tables[2])],
            step,
            tf.abs(omega),
        )
        known = tf.cast(tf.abs(omega) < math.pi / self._step, omega.dtype)
        real, imaginary = known * real, known * tf.sign(omega) * imaginary
        angle = omega * centre[..., 0]
        cos, sin = tf.cos(angle), tf.sin(angle)
        return cos * real - sin * imaginary, cos * imaginary + sin * real

    def raw_sample(self, shape: tf.Tensor, theta: tf.Tensor, seed: Seed) -> tf.Tensor:
        n = tf.reduce_prod(shape) // tf.reduce_prod(tf.shape(theta)[:-1])
        return tf.reshape(self.make(theta).sample(n, seed=seed), shape)

    def tail(self, theta: tf.Tensor) -> tf.Tensor:
        """Distance to the outermost grid point with over 1e-8 of the mass beyond it, [...]."""
        masses = tf.stop_gradient(self._masses(theta))
        mean, scale = (tf.stop_gradient(part) for part in self.raw_moments(theta))
        distance = tf.abs(self._grid(theta.dtype) - mean[..., None])
        left, right = tf.cumsum(masses, axis=-1), tf.cumsum(masses, axis=-1, reverse=True)
        outside = tf.minimum(left, right) < 0.5 * _TAIL
        return (
            tf.reduce_max(tf.where(outside, tf.zeros_like(distance), distance), axis=-1)
            + self._step
        ) / scale


def _support(make: Maker, theta: tf.Tensor, name: str) -> tuple[float, float]:
    centre = _centre(make, theta)
    s = np.arange(-25.0, 16.0, 0.01)
    r = np.exp(s)
    both = [np.exp(_values(make, theta, centre + sign * r)) * r * 0.01 for sign in (-1.0, 1.0)]
    mass = both[0] + both[1]
    second, total = mass * r**2, float(np.sum(mass))
    if not np.isfinite(total) or abs(total - 1.0) > 1e-3:
        raise DataError(
            f"The density of the base distribution '{name}' integrates to {total:.4g}: pass"
            " support=(low, high)."
        )
    if np.sum(second[-200:]) > 1e-3 * np.sum(second):
        raise DataError(
            f"The base distribution '{name}' has no finite variance: its second moment diverges."
            " Use a distribution with lighter tails, for example StudentT with df=3."
        )
    share = np.cumsum(second[::-1])[::-1]
    reach = float(r[np.argmax(share < 1e-9 * share[0])])
    return centre - 2.0 * reach, centre + 2.0 * reach


def _centre(make: Maker, theta: tf.Tensor) -> float:
    points = np.concatenate(
        [-np.exp(np.arange(12.0, -12.0, -0.05)), [0.0], np.exp(np.arange(-12.0, 12.0, 0.05))]
    )
    values = _values(make, theta, points)
    return float(points[np.nanargmax(values)])


def _values(make: Maker, theta: tf.Tensor, points: np.ndarray) -> np.ndarray:
    values = make(theta[..., None, :]).log_prob(tf.constant(points, theta.dtype))
    return np.nan_to_num(np.reshape(values.numpy(), [-1]), nan=-np.inf)
