"""Any smooth distribution of TensorFlow Probability as a base: moments, entropy and transform on a grid."""

from __future__ import annotations

__all__ = ["TabulatedBase"]

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from ..errors import DataError
from ..special.hermite import hermite_lookup
from .base import Base, Transform

_TAIL = 1e-8
_PADDING = 16
"""Frequencies a grid of the transform, for each that the grid of the density resolves."""


class TabulatedBase(Base):
    """A base from `make`, which takes theta [..., P] and returns a distribution of batch shape [...] and of theta's dtype.

    The density must be smooth, with a finite variance; it is tabulated with a regular step on `support`, which is found
    from the density at `default` where it is not given, with a factor of two to spare for other shapes. Where theta moves
    the mass out of it, values are wrong: `check` complains where the mass on the grid is not one. The transform costs one
    FFT of 16 `points` a shape and its error is 1e-8 or so.
    """

    symmetric = False
    has_cdf = False
    work = 60

    def __init__(
        self,
        make: Callable[[tf.Tensor], tfp.distributions.Distribution],
        default: tuple[float, ...] = (),
        support: tuple[float, float] | None = None,
        points: int = 4096,
        name: str = "tabulated",
    ) -> None:
        if points < 2 or points & (points - 1):
            raise DataError(f"points={points}: the length of the table must be a power of two, for example 4096.")
        self.make, self.default, self.num_shapes, self.name = make, tuple(default), len(default), name
        self.points = points
        theta = np.array([self.default]).reshape(1, self.num_shapes)
        low, high = support if support is not None else _support(make, tf.constant(theta, tf.float64), name)
        self._low, self._step = low, (high - low) / (points - 1)
        self._refuse(theta)

    def problem(self, theta: np.ndarray) -> str:
        """Mass that is not on the grid, for theta [..., P]."""
        with tf.init_scope():  # theta is known, also while a function is traced
            mass = tf.reduce_sum(self._masses(tf.constant(theta)), axis=-1).numpy()
        limit = 1e-6 if theta.dtype == np.float64 else 1e-4
        if np.all(np.abs(mass - 1.0) < limit):
            return ""
        return (
            f"the density of the base '{self.name}' has mass {mass.ravel()} on the table from {self._low:.4g} to "
            f"{self._low + self._step * (self.points - 1):.4g} with {self.points} points: give a wider support=(low, high), "
            "more points, or a smoother density."
        )

    def _refuse(self, theta: np.ndarray) -> None:
        problem = self.problem(theta)
        if problem:
            raise DataError(problem)

    def _grid(self, dtype: Any) -> tf.Tensor:
        return tf.constant(self._low + self._step * np.arange(self.points), dtype)

    def _log_density(self, theta: tf.Tensor) -> tf.Tensor:
        """[..., points]."""
        return self.make(theta[..., None, :]).log_prob(self._grid(theta.dtype))

    def _masses(self, theta: tf.Tensor) -> tf.Tensor:
        """[..., points], which sum to one."""
        return tf.exp(self._log_density(theta)) * self._step

    def raw_moments(self, theta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """[...] each."""
        masses, grid = self._masses(theta), self._grid(theta.dtype)
        mean = tf.reduce_sum(masses * grid, axis=-1)
        return mean, tf.sqrt(tf.reduce_sum(masses * tf.square(grid - mean[..., None]), axis=-1))

    def raw_log_prob(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        """Of r [...]."""
        return self.make(theta).log_prob(r)

    def raw_entropy(self, theta: tf.Tensor) -> tf.Tensor:
        """[...]."""
        log_q = self._log_density(theta)
        finite = tf.where(tf.math.is_inf(log_q), tf.zeros_like(log_q), log_q)
        return -tf.reduce_sum(tf.exp(log_q) * finite, axis=-1) * self._step

    def raw_transform(self, omega: tf.Tensor, theta: tf.Tensor) -> Transform:
        """Of omega [...]; 0 beyond what the grid resolves. Tables of both parts about the mean, by two FFTs."""
        masses, grid = self._masses(theta), self._grid(theta.dtype)
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
            [tf.math.real(tables[0]), -tf.math.imag(tables[1]), tf.math.real(tables[2])], step, tf.abs(omega)
        )
        imaginary = hermite_lookup(
            [tf.math.imag(tables[0]), tf.math.real(tables[1]), tf.math.imag(tables[2])], step, tf.abs(omega)
        )
        known = tf.cast(tf.abs(omega) < math.pi / self._step, omega.dtype)
        real, imaginary = known * real, known * tf.sign(omega) * imaginary
        angle = omega * centre[..., 0]
        cos, sin = tf.cos(angle), tf.sin(angle)
        return cos * real - sin * imaginary, cos * imaginary + sin * real

    def raw_sample(self, shape: Any, theta: tf.Tensor, seed: Any) -> tf.Tensor:
        """Draws [...], by the distribution's own sampler."""
        n = tf.reduce_prod(shape) // tf.reduce_prod(tf.shape(theta)[:-1])
        return tf.reshape(self.make(theta).sample(n, seed=seed), shape)

    def tail(self, theta: tf.Tensor) -> tf.Tensor:
        """[...], to the outermost point of the grid with more than 1e-8 of the mass beyond."""
        masses = tf.stop_gradient(self._masses(theta))
        mean, scale = (tf.stop_gradient(part) for part in self.raw_moments(theta))
        distance = tf.abs(self._grid(theta.dtype) - mean[..., None])
        left, right = tf.cumsum(masses, axis=-1), tf.cumsum(masses, axis=-1, reverse=True)
        outside = tf.minimum(left, right) < 0.5 * _TAIL
        return (tf.reduce_max(tf.where(outside, tf.zeros_like(distance), distance), axis=-1) + self._step) / scale


def _support(make: Callable, theta: tf.Tensor, name: str) -> tuple[float, float]:
    """A range with all but 1e-12 of the mass, and as much again: found on a logarithmic grid from the centre outwards."""
    centre = _centre(make, theta)
    s = np.arange(-25.0, 16.0, 0.01)
    r = np.exp(s)
    both = [np.exp(_values(make, theta, centre + sign * r)) * r * 0.01 for sign in (-1.0, 1.0)]
    mass = both[0] + both[1]
    second, total = mass * r**2, float(np.sum(mass))
    if not np.isfinite(total) or abs(total - 1.0) > 1e-3:
        raise DataError(f"the density of the base '{name}' integrates to {total:.4g}: pass support=(low, high).")
    if np.sum(second[-200:]) > 1e-3 * np.sum(second):
        raise DataError(
            f"the base '{name}' has no finite variance: its second moment grows without end. Use a distribution with "
            "lighter tails, for example StudentT with df=3."
        )
    share = np.cumsum(second[::-1])[::-1]
    reach = float(r[np.argmax(share < 1e-9 * share[0])])
    return centre - 2.0 * reach, centre + 2.0 * reach


def _centre(make: Callable, theta: tf.Tensor) -> float:
    """A point among the mass: where the density is highest on a wide grid, refined."""
    points = np.concatenate([-np.exp(np.arange(12.0, -12.0, -0.05)), [0.0], np.exp(np.arange(-12.0, 12.0, 0.05))])
    values = _values(make, theta, points)
    return float(points[np.nanargmax(values)])


def _values(make: Callable, theta: tf.Tensor, points: np.ndarray) -> np.ndarray:
    values = make(theta[..., None, :]).log_prob(tf.constant(points, theta.dtype))
    return np.nan_to_num(np.reshape(values.numpy(), [-1]), nan=-np.inf)
