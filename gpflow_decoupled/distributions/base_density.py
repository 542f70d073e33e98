"""The contract of base distributions."""

# In w = A v + b the v_d are independent with mean 0 and variance 1, and theta_d only shapes the
# density.
#
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

__all__ = ["Base", "Seed"]

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ..errors import DataError
from ..probability import tfp
from ..special import with_slopes

Transform = tuple[tf.Tensor, tf.Tensor | None]
"""Real and imaginary part of a characteristic function; None for a zero imaginary part."""
Seed: TypeAlias = int | Sequence[int] | tf.Tensor | None
"""A seed of TensorFlow Probability."""


class Base(ABC):
    """A family of densities with finite variance, the base of affine-independent inference.

    A subclass writes `raw_...` methods and `tail` of a raw r, elementwise in theta [..., P], and
    sets `name`, `num_shapes`, `default`; users see v = (r - mean) / sd. Only the route "lattice"
    needs `raw_cdf`; only exponential or heavier tails need `exponent`.

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
        """The real and imaginary part of E exp(i omega r), for omega [...]."""

    def raw_cdf(self, r: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        """The cdf of r [...], differentiable in theta; the density replaces its slope in r."""
        raise DataError(
            f"The base distribution '{self.name}' has no cdf: use the route 'spectral' or"
            " 'frequency_sum'."
        )

    @abstractmethod
    def raw_sample(self, shape: tf.Tensor, theta: tf.Tensor, seed: Seed) -> tf.Tensor:
        """Draw r of a `shape` [...] to which theta broadcasts."""

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
        P = self.num_shapes
        if theta.shape.rank is not None and (
            theta.shape.rank == 0 or theta.shape[-1] not in (P, None)
        ):
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
