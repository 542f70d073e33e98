"""Exponential families in their natural and expectation parameters, with Fisher solves in closed form.

q(z) = exp(<phi(z), lambda> - A(lambda)), a density with respect to Lebesgue (or counting) measure.

| symbol | code | shape |
|---|---|---|
| lambda, natural parameters | `natural` | a tuple, one tensor a statistic |
| mu = E phi(z) = grad A(lambda), expectation parameters | `expectation` | as lambda |
| A(lambda) | `Family.log_partition` | [...], the batch |
| I(lambda)^-1 g, I = d mu / d lambda | `Family.fisher_solve` | as lambda |

The gradient in mu of any function of q is I(lambda)^-1 times its gradient in lambda (C1). Families keep no state: every
method is a pure function of tensors, batched over the leading axes.
"""

from __future__ import annotations

__all__ = ["Belief", "Family", "Natural", "as_float", "as_positive"]

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.config import default_float

from ...errors import DataError

Natural = tuple[tf.Tensor, ...]
"""One tensor a statistic: the batch, then the shape of the statistic."""


class Family(ABC):
    """A minimal exponential family (an overcomplete one is said to be); subclasses say how their numbers are called."""

    statistics: tuple[str, ...] = ()
    """What the entries of a natural parameter are the coefficients of."""
    ranks: tuple[int, ...] = ()
    """The number of axes of each statistic: 0 for a number, 1 for a vector, 2 for a matrix."""
    reparameterized: bool = True
    """Whether samples are differentiable in lambda."""

    @abstractmethod
    def natural(self, *parameters: Any, **named: Any) -> Natural:
        """Lambda from the usual parameters, arrays that are checked here: `DataError` outside of the domain."""

    @abstractmethod
    def distribution(self, natural: Natural) -> tfp.distributions.Distribution:
        """The TFP distribution: densities, moments, samples."""

    @abstractmethod
    def log_partition(self, natural: Natural) -> tf.Tensor:
        """A(lambda) [...] in nats."""

    @abstractmethod
    def expectation(self, natural: Natural) -> Natural:
        """Mu = E phi(z), of the shapes of lambda."""

    @abstractmethod
    def natural_from_expectation(self, expectation: Natural) -> Natural:
        """The lambda whose expectation parameters are mu; Newton's method where no closed form is known."""

    @abstractmethod
    def sufficient(self, z: tf.Tensor) -> Natural:
        """Phi(z), for z with any leading axes."""

    @abstractmethod
    def fisher_solve(self, natural: Natural, gradient: Natural) -> Natural:
        """I(lambda)^-1 g: from a gradient in lambda that in mu. No matrix is formed."""

    @abstractmethod
    def in_domain(self, natural: Natural) -> tf.Tensor:
        """Whether q exists, bool [...]. The domain is convex and open."""

    def tangent(self, gradient: Natural) -> Natural:
        """A gradient as an element of the space of lambda: symmetric, where a statistic is."""
        return gradient

    def inner(self, left: Natural, right: Natural) -> tf.Tensor:
        """<left, right> [...], summed over the axes of the statistics."""
        products = [tf.reduce_sum(a * b, axis=list(range(-rank, 0))) for a, b, rank in zip(left, right, self.ranks)]
        return tf.add_n(products)

    def log_prob(self, z: tf.Tensor, natural: Natural) -> tf.Tensor:
        """Log q(z) in nats, of the leading axes of z and the batch."""
        return self.inner(self.sufficient(z), natural) - self.log_partition(natural)

    def entropy(self, natural: Natural) -> tf.Tensor:
        """H [...] in nats."""
        return self.log_partition(natural) - self.inner(self.expectation(natural), natural)

    def kl(self, natural: Natural, other: Natural) -> tf.Tensor:
        """KL[q || p] [...] in nats, of the members of the family at lambda and at `other`."""
        difference = tuple(a - b for a, b in zip(natural, other))
        moments = self.inner(self.expectation(natural), difference)
        return self.log_partition(other) - self.log_partition(natural) + moments

    def sample(self, natural: Natural, n: int, seed: Any = None) -> tf.Tensor:
        """N draws [n, ..., event], differentiable in lambda where `reparameterized`.

        By TFP's implicit reparameterisation, (C36): Figurnov, Mohamed & Mnih 2018 (arXiv:1805.08498).
        """
        return self.distribution(natural).sample(n, seed=seed)

    def belief(self, *parameters: Any, **named: Any) -> Belief:
        """The member of the family with these usual parameters, arrays as for `natural`."""
        return Belief.at(self, self.natural(*parameters, **named))

    @property
    def name(self) -> str:
        """As messages call it."""
        return type(self).__name__


class Belief(NamedTuple):
    """A member of a family: what is believed of a variable."""

    family: Family
    natural: Natural
    expectation: Natural
    """Mu, one tensor a statistic."""

    @staticmethod
    def at(family: Family, natural: Natural) -> Belief:
        """The belief with natural parameters lambda."""
        return Belief(family, natural, family.expectation(natural))

    @property
    def distribution(self) -> tfp.distributions.Distribution:
        """The TFP distribution."""
        return self.family.distribution(self.natural)

    def sample(self, n: int, seed: Any = None) -> tf.Tensor:
        """N draws [n, ..., event]."""
        return self.family.sample(self.natural, n, seed)

    def entropy(self) -> tf.Tensor:
        """H [...] in nats."""
        return self.family.log_partition(self.natural) - self.family.inner(self.expectation, self.natural)


def as_float(name: str, value: Any) -> tf.Tensor:
    """A tensor of GPflow's float type. Raises `DataError` for entries that are not finite."""
    tensor = tf.convert_to_tensor(value) if tf.is_tensor(value) else tf.constant(np.asarray(value), default_float())
    known = tf.get_static_value(tensor)
    if known is not None and not np.all(np.isfinite(known)):
        raise DataError(f"{name} has entries that are not finite: {known}.")
    return tensor


def as_positive(name: str, value: Any) -> tf.Tensor:
    """As `as_float`. Raises `DataError` for entries that are not above 0."""
    tensor = as_float(name, value)
    known = tf.get_static_value(tensor)
    if known is not None and not np.all(known > 0.0):
        raise DataError(f"{name} must be above 0 and its least entry is {np.min(known):.3g}.")
    return tensor
