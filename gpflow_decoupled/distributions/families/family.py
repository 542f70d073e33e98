"""The contract of exponential families."""

# A member is q(z) = exp(<phi(z), lambda> - A(lambda)) with respect to Lebesgue or counting measure.
#
# | symbol | code | shape |
# |---|---|---|
# | phi(z), the sufficient statistics | `Family.sufficient` | a tuple, one tensor per statistic |
# | lambda, the natural parameters | `natural` | as phi(z) |
# | mu = E phi(z) = grad A(lambda), the expectation parameters | `expectation` | as lambda |
# | A(lambda), the log partition function | `Family.log_partition` | [...], the batch |
# | I(lambda)^-1 g, with the Fisher matrix I = d mu / d lambda | `Family.fisher_solve` | as lambda |
#
# The natural gradient is the gradient in mu, I(lambda)^-1 times the gradient in lambda, (C1).
# Methods are pure functions, batched over leading axes.

from __future__ import annotations

__all__ = ["Belief", "Family", "Natural", "as_float", "as_positive"]

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from gpflow.config import default_float

from ...errors import DataError
from ...inputs import as_array
from ...probability import tfp
from ..base_density import Seed

Natural = tuple[tf.Tensor, ...]
"""One tensor per statistic: batch axes, then axes of the statistic."""


class Family(ABC):
    """An exponential family; `natural` takes its usual parameters.

    lambda is unique unless they say otherwise.

    Example::

        family = Gamma()
        natural = family.natural(shape=[2.0, 3.0], rate=1.0)         # lambda, two tensors [2]
        log_mean, mean = family.expectation(natural)                 # mu = (E log z, E z)
        family.kl(natural, family.natural(shape=[1.0, 1.0], rate=1.0))   # [2], in nats
    """

    statistics: tuple[str, ...] = ()
    """The sufficient statistics phi(z), as text; one tensor of lambda each."""
    ranks: tuple[int, ...] = ()
    """Number of axes of each statistic: 0 for a number, 1 for a vector, 2 for a matrix."""
    reparameterized: bool = True
    """Samples are differentiable in lambda."""

    @abstractmethod
    def natural(
        self, *parameters: Any, **named: Any
    ) -> Natural:  # only with Any may subclasses name theirs
        """Natural parameters from the usual parameters, arrays that each family names."""

    @abstractmethod
    def distribution(self, natural: Natural) -> tfp.distributions.Distribution:
        """The TFP distribution, for densities, moments and samples."""

    @abstractmethod
    def log_partition(self, natural: Natural) -> tf.Tensor:
        """A(lambda) in nats, [...]."""

    @abstractmethod
    def expectation(self, natural: Natural) -> Natural:
        """Expectation parameters mu = E phi(z), of the shapes of lambda."""

    @abstractmethod
    def sufficient(self, z: tf.Tensor) -> Natural:
        """Sufficient statistics phi(z), for z with any leading axes."""

    @abstractmethod
    def fisher_solve(self, natural: Natural, gradient: Natural) -> Natural:
        """I(lambda)^-1 g, the gradient in mu from the gradient g in lambda, without forming I."""

    @abstractmethod
    def in_domain(self, natural: Natural) -> tf.Tensor:
        """True where lambda is a member of the family, [...]; the domain is convex and open."""

    def tangent(self, gradient: Natural) -> Natural:
        """Project a gradient to the space of lambda: symmetrise where a statistic is symmetric."""
        return gradient

    def inner(self, left: Natural, right: Natural) -> tf.Tensor:
        """<left, right> [...], summed over statistics and their axes."""
        products = [
            tf.reduce_sum(a * b, axis=list(range(-rank, 0)))
            for a, b, rank in zip(left, right, self.ranks)
        ]
        return tf.add_n(products)

    def log_prob(self, z: tf.Tensor, natural: Natural) -> tf.Tensor:
        """Log density of z in nats, with the leading axes of z and the batch; edges by limit."""
        # at the edge a statistic is infinite, and does not count where its coefficient is zero;
        # outside it is NaN, and does
        statistics = [
            tf.where(tf.math.is_inf(t) & (coefficient == 0.0), tf.zeros_like(t), t)
            for t, coefficient in zip(self.sufficient(z), natural)
        ]
        return self.inner(tuple(statistics), natural) - self.log_partition(natural)

    def entropy(self, natural: Natural) -> tf.Tensor:
        """The entropy in nats, [...]."""
        return self.log_partition(natural) - self.inner(self.expectation(natural), natural)

    def kl(self, natural: Natural, other: Natural) -> tf.Tensor:
        """KL[q || p] in nats, [...], for q at `natural` and p at `other`."""
        difference = tuple(a - b for a, b in zip(natural, other))
        moments = self.inner(self.expectation(natural), difference)
        return self.log_partition(other) - self.log_partition(natural) + moments

    def sample(self, natural: Natural, n: int, seed: Seed = None) -> tf.Tensor:
        """Draws [n, ..., event], differentiable in lambda if `reparameterized`.

        Gradients: Figurnov et al. 2018 (arXiv:1805.08498).
        """
        # (C36)
        return self.distribution(natural).sample(n, seed=seed)

    def belief(self, *parameters: npt.ArrayLike, **named: npt.ArrayLike) -> Belief:
        """The member with these usual parameters, named as in `natural`."""
        return Belief.at(self, self.natural(*parameters, **named))

    @property
    def name(self) -> str:
        """The name in messages."""
        return type(self).__name__


class Belief(NamedTuple):
    """A member of a family: prior or posterior of one variable of a factor graph.

    Example::

        prior = Gamma().belief(shape=2.0, rate=1.0)
        prior.entropy(), prior.distribution.mean(), prior.sample(5, seed=1)
    """

    family: Family
    """The family that it belongs to."""
    natural: Natural
    """Natural parameters lambda, one tensor per statistic."""
    expectation: Natural
    """Expectation parameters mu, one tensor per statistic."""

    @staticmethod
    def at(family: Family, natural: Natural) -> Belief:
        """The belief with natural parameters lambda."""
        return Belief(family, natural, family.expectation(natural))

    @property
    def distribution(self) -> tfp.distributions.Distribution:
        """The TFP distribution."""
        return self.family.distribution(self.natural)

    def sample(self, n: int, seed: Seed = None) -> tf.Tensor:
        """Draws [n, ..., event]."""
        return self.family.sample(self.natural, n, seed)

    def entropy(self) -> tf.Tensor:
        """The entropy in nats, [...]."""
        return self.family.log_partition(self.natural) - self.family.inner(
            self.expectation, self.natural
        )


def as_float(name: str, value: tf.Tensor | npt.ArrayLike) -> tf.Tensor:
    """Return a tensor [...] of GPflow's float type unless it is one already."""
    array = as_array(value, name)
    tensor = (
        tf.convert_to_tensor(array) if tf.is_tensor(array) else tf.constant(array, default_float())
    )
    known = tf.get_static_value(tensor)
    if known is not None and not np.all(np.isfinite(known)):
        value = np.ravel(known)[~np.isfinite(np.ravel(known))][0]
        raise DataError(
            f"{name} has entries that are not finite, {value} first; remove or impute them."
        )
    return tensor


def as_positive(name: str, value: tf.Tensor | npt.ArrayLike) -> tf.Tensor:
    """Return `as_float` [...] for entries above 0."""
    tensor = as_float(name, value)
    known = tf.get_static_value(tensor)
    if known is not None and not np.all(known > 0.0):
        raise DataError(f"{name} must be above 0 and its least entry is {np.min(known):.3g}.")
    return tensor
