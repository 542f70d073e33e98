"""The contract of base distributions: standardised densities of one variable, whose shapes are
learned.

Affine-independent inference works with w = A v + b, where the v_d are independent with mean 0 and
variance 1. Then b is the mean of w and A A^T its covariance, and the parameters theta_d of the base
distribution only change the shape of its density.

| symbol | code | shape |
|---|---|---|
| theta_d, the P numbers that shape variable d | `theta` | [D, P] |
| log q(v_d), the log density | `Base.log_prob` | as v |
| H_d, the entropy | `Base.entropy` | [D] |
| phi_d(omega) = E exp(i omega v_d), the characteristic function | `Base.characteristic` | as omega |
| F_d(v), the cumulative distribution function (cdf) | `Base.cdf` | as v |
| the supremum of the t for which E exp(t abs(v)) is finite | `Base.exponent` | [D] |
| R, such that about 1e-8 of the mass lies beyond R standard deviations | `Base.tail` | [D] |

All of these are pure, differentiable functions of theta and act elementwise: v or omega [...]
broadcasts with the leading axes of theta [..., P]. So v [N, D] goes with theta [D, P], and
frequencies [N, D, T] go with `theta[:, None, :]`, [D, 1, P].
"""  # noqa: E501

from __future__ import annotations

__all__ = ["Base", "Seed"]

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tensorflow_probability as tfp

from ..errors import DataError
from ..special.gradients import with_slopes

Transform = tuple[tf.Tensor, tf.Tensor | None]
"""Real and imaginary part of a characteristic function; None where the imaginary part is zero."""
Seed: TypeAlias = int | Sequence[int] | tf.Tensor | None
"""A seed of TensorFlow Probability."""


class Base(ABC):
    """A family of densities with finite variance, as the base distribution of affine-independent
    inference.

    A subclass gives a raw form r of any mean and variance; v = (r - mean) / sd is what users of the
    class see. It writes the `raw_...` methods and `tail` as functions of theta [..., P],
    elementwise, and sets `name`, `num_shapes` and `default`. `raw_cdf` is needed only for the route
    "lattice", and `exponent` only where a tail is exponential or heavier.

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
    """The number of variables that it is for; None for any number."""
    default: tuple[float, ...] = ()
    """Shapes [P] that inference can start from."""
    symmetric: bool = True
    """Whether the density is symmetric: then `characteristic` returns a real tensor, of half the
    size.
    """
    has_cdf: bool = True
    work: int = 12
    """How many complex tensors of the size of omega an expectation and its gradient need at the
    same time, as measured. A memory limit is divided by this number."""

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
        """The cdf of r [...]. Its gradient in theta must be right; that in r is replaced by the
        density.
        """
        raise DataError(
            f"The base distribution '{self.name}' has no cdf: use the route 'spectral' or"
            " 'frequency_sum'."
        )

    @abstractmethod
    def raw_sample(self, shape: tf.Tensor, theta: tf.Tensor, seed: Seed) -> tf.Tensor:
        """Draws of r of a `shape` [...] that theta broadcasts to."""

    @abstractmethod
    def tail(self, theta: tf.Tensor) -> tf.Tensor:
        """R [...] such that at most about 1e-8 of the mass lies beyond R standard deviations; not
        differentiated.
        """

    def bijector(self, dtype: tf.DType) -> tfp.bijectors.Bijector:
        """The map from unconstrained numbers to theta, in a `dtype`; its range is what `check`
        accepts.
        """
        return tfp.bijectors.Identity()

    def exponent(self, theta: tf.Tensor) -> tf.Tensor:
        """The supremum [...] of the t for which E exp(t |v|) is finite; not differentiated."""
        return tf.zeros_like(tf.reduce_sum(theta, axis=-1)) + math.inf

    def problem(self, theta: np.ndarray) -> str:
        """What is wrong with theta [..., P] and how to repair it; "" if nothing is wrong."""
        return ""

    def check(self, theta: tf.Tensor | npt.ArrayLike) -> tf.Tensor:
        """The tensor theta [..., P].

        :raises DataError: if it has a wrong shape, is not finite, or has no finite variance.
        """
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
        """The families of D variables, and how many of the variables have each: all of them this
        one.
        """
        return [(self, D)]

    def start(self, D: int, dtype: tf.DType | npt.DTypeLike = tf.float64) -> tf.Tensor:
        """The shapes theta [D, P] of D variables at `default`."""
        return tf.tile(tf.constant([self.default], dtype, shape=[1, self.num_shapes]), [D, 1])

    def log_prob(self, v: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        """The log density of v in nats, of the shape that v and theta [..., P] broadcast to."""
        theta = self.check(theta)
        mean, scale = self.raw_moments(theta)
        return self.raw_log_prob(mean + scale * v, theta) + tf.math.log(scale)

    def entropy(self, theta: tf.Tensor) -> tf.Tensor:
        """The entropy of v in nats, [...] for theta [..., P]."""
        theta = self.check(theta)
        return self.raw_entropy(theta) - tf.math.log(self.raw_moments(theta)[1])

    def characteristic(self, omega: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        """phi(omega) = E exp(i omega v), of the shape that omega and theta [..., P] broadcast to.

        :return: a real tensor if the density is `symmetric`, else a complex one.
        """
        theta = self.check(theta)
        mean, scale = self.raw_moments(theta)
        real, imaginary = self.raw_transform(omega / scale, theta)
        if imaginary is None:
            return real
        cos, sin = tf.cos(omega * (mean / scale)), tf.sin(omega * (mean / scale))
        return tf.complex(cos * real + sin * imaginary, cos * imaginary - sin * real)

    def cdf(self, v: tf.Tensor, theta: tf.Tensor) -> tf.Tensor:
        """The cdf at v, finite, of the shape that v and theta [..., P] broadcast to.

        :raises DataError: if no cdf is known.
        """
        theta = self.check(theta)
        mean, scale = self.raw_moments(theta)
        r = mean + scale * v
        held = tf.stop_gradient(r)
        density = tf.exp(self.raw_log_prob(held, tf.stop_gradient(theta)))
        return with_slopes(self.raw_cdf(held, theta), (r, density))  # the slope in r is the density

    def sample(self, n: int, theta: tf.Tensor, seed: Seed = None) -> tf.Tensor:
        """`n` independent draws of v, [n, ...] for theta [..., P]."""
        theta = self.check(theta)
        mean, scale = self.raw_moments(theta)
        shape = tf.concat([[n], tf.shape(theta)[:-1]], axis=0)
        return (self.raw_sample(shape, theta, seed) - mean) / scale
