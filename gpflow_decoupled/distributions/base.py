"""The base variables of affine-independent inference: independent, standardised, with a shape each.

w = A v + b with independent v_d of mean 0 and variance 1, so that b is the mean of w and A A^T its covariance, and the
parameters theta_d of a base only shape (section 2.1 of the derivations).

| symbol | code | shape |
|---|---|---|
| theta_d, the P numbers that shape dimension d | `theta` | [D, P] |
| log q(v_d) | `Base.log_prob` | like v |
| H_d | `Base.entropy` | [D] |
| phi_d(omega) = E exp(i omega v_d) | `Base.characteristic` | like omega |
| F_d(v) | `Base.cdf` | like v |
| t up to which E exp(t abs(v)) is finite | `Base.exponent` | [D] |
| R with a mass beyond +-R below 1e-8 or so | `Base.tail` | [D] |

All are pure, differentiable functions of theta, elementwise: v or omega [...] broadcasts with the leading axes of
theta [..., P]. So v [N, D] goes with theta [D, P], and frequencies [N, D, T] go with `theta[:, None, :]`, [D, 1, P].
"""

from __future__ import annotations

__all__ = ["Base"]

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from ..errors import DataError
from ..special.gradients import with_slopes

Transform = tuple[tf.Tensor, tf.Tensor | None]
"""Real and imaginary part; None where that is zero."""


class Base(ABC):
    """A family of densities with finite variance, given by its raw form r; v = (r - mean) / sd is what users see.

    Subclasses write the `raw_...` methods in terms of `theta` [..., P], and broadcast it elementwise.
    """

    name: str = ""
    num_shapes: int = 0
    """P"""
    default: tuple[float, ...] = ()
    """A shape [P] that is safe to start at."""
    symmetric: bool = True
    """Whether the characteristic function is real: `characteristic` then returns a real tensor, of half the size."""
    has_cdf: bool = True
    work: int = 12
    """Complex tensors of the size of omega that an expectation and its gradient hold at once, as measured: what a memory
    limit is divided by."""

    @abstractmethod
    def raw_moments(self, theta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and standard deviation of r, [...] each, for theta [..., P]."""

    @abstractmethod
    def raw_log_prob(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        """The log density of r [...]."""

    @abstractmethod
    def raw_entropy(self, theta: tf.Tensor) -> tf.Tensor:
        """The entropy of r in nats, [...] for theta [..., P]."""

    @abstractmethod
    def raw_transform(self, omega: tf.Tensor, theta: tf.Tensor) -> Transform:
        """Real and imaginary part of E exp(i omega r), for omega [...]."""

    def raw_cdf(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        """The cdf of r [...]; its gradient in r need not be right, that in theta must be."""
        raise DataError(f"the base '{self.name}' has no cdf: use the route 'spectral' or 'frequency_sum'.")

    @abstractmethod
    def raw_sample(self, shape: Any, theta: tf.Tensor, seed: Any) -> tf.Tensor:
        """Draws of r of a `shape` [...] that theta broadcasts to."""

    @abstractmethod
    def tail(self, theta: tf.Tensor) -> tf.Tensor:
        """R [...] such that no more than about 1e-8 of the mass lies beyond R standard deviations; not differentiated."""

    def bijector(self, dtype: tf.DType) -> Any:
        """From unconstrained numbers to theta, of a `dtype`, and only to what `check` accepts."""
        return tfp.bijectors.Identity()

    def exponent(self, theta: tf.Tensor) -> tf.Tensor:
        """The supremum [...] of the t for which E exp(t |v|) is finite; not differentiated."""
        return tf.zeros_like(tf.reduce_sum(theta, axis=-1)) + math.inf

    def problem(self, theta: np.ndarray) -> str:
        """What is wrong with theta [..., P], and the fix; "" if nothing is."""
        return ""

    def check(self, theta: Any) -> tf.Tensor:
        """The tensor theta [..., P]. Raises `DataError` for a wrong shape, and for values without finite variance."""
        theta = tf.convert_to_tensor(theta)
        P = self.num_shapes
        if theta.shape.rank is not None and (theta.shape.rank == 0 or theta.shape[-1] not in (P, None)):
            raise DataError(
                f"theta has shape {theta.shape} and the base '{self.name}' needs [D, {P}]: one row a dimension."
            )
        values = tf.get_static_value(theta)
        if values is not None:
            if not np.all(np.isfinite(values)):
                raise DataError(f"theta of the base '{self.name}' is not finite: start at {self.default}.")
            problem = self.problem(values)
            if problem:
                raise DataError(problem)
        return theta

    def start(self, D: int, dtype: Any = tf.float64) -> tf.Tensor:
        """Theta [D, P] at `default`."""
        return tf.tile(tf.constant([self.default], dtype, shape=[1, self.num_shapes]), [D, 1])

    def log_prob(self, v: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        """Log q(v) in nats, of the shape that v and theta [..., P] broadcast to."""
        theta = self.check(theta)
        mean, scale = self.raw_moments(theta)
        return self.raw_log_prob(mean + scale * v, theta) + tf.math.log(scale)

    def entropy(self, theta: tf.Tensor) -> tf.Tensor:
        """H in nats, [...] for theta [..., P]."""
        theta = self.check(theta)
        return self.raw_entropy(theta) - tf.math.log(self.raw_moments(theta)[1])

    def characteristic(self, omega: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        """phi(omega), of the shape that omega and theta [..., P] broadcast to: real if `symmetric`, else complex."""
        theta = self.check(theta)
        mean, scale = self.raw_moments(theta)
        real, imaginary = self.raw_transform(omega / scale, theta)
        if imaginary is None:
            return real
        cos, sin = tf.cos(omega * (mean / scale)), tf.sin(omega * (mean / scale))
        return tf.complex(cos * real + sin * imaginary, cos * imaginary - sin * real)

    def cdf(self, v: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        """F(v), of the shape that v and theta [..., P] broadcast to; v finite. `DataError` where no cdf is known."""
        theta = self.check(theta)
        mean, scale = self.raw_moments(theta)
        r = mean + scale * v
        held = tf.stop_gradient(r)
        density = tf.exp(self.raw_log_prob(held, tf.stop_gradient(theta)))
        return with_slopes(self.raw_cdf(held, theta), (r, density))

    def sample(self, n: int, theta: tf.Tensor, seed: Any = None) -> tf.Tensor:
        """N independent draws of v, [n, ...] for theta [..., P]."""
        theta = self.check(theta)
        mean, scale = self.raw_moments(theta)
        shape = tf.concat([[n], tf.shape(theta)[:-1]], axis=0)
        return (self.raw_sample(shape, theta, seed) - mean) / scale
