"""Exponential families from a log density."""

from __future__ import annotations

__all__ = ["Belief", "Family", "LogProbFamily", "Natural", "as_float", "as_positive"]

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from gpflow.config import default_float

from ..errors import DataError, ModelError
from ..inputs import as_array, check_whole, is_whole
from ..linalg.conjugate_gradients import conjugate_gradients
from ..probability import tfp
from .densities import Seed

# ---
# The contract of exponential families.


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


# ---
# Products and solves with a Fisher matrix without formula.


# I(lambda) = grad^2 A(lambda) = Cov phi(z), multiplied by a vector u without forming it:
#
# | product | needs | error |
# |---|---|---|
# | `_hessian_product`: grad <grad A, u>, (C61) | second derivatives of A | round-off |
# | `_covariance_product`: mean of c_s <c_s, u>, c = phi - phi_bar, (C62) | S draws | 1 / sqrt(S) |


Product = Callable[[Natural], Natural]
"""The Fisher matrix times a vector of the shapes of lambda."""

_UNSOLVED = 1e-3
"""A solution whose residual exceeds this share of the gradient becomes NaN."""


def _hessian_product(log_partition: Callable[[Natural], tf.Tensor], natural: Natural) -> Product:
    """Return u -> I(lambda) u by second derivatives of A along u, (C61); four evaluations of A
    each.

    A(lambda) [...] is in nats; lambda has one tensor per statistic.
    """

    def product(u: Natural) -> Natural:
        with tf.GradientTape() as outer:
            outer.watch(natural)
            with tf.GradientTape() as inner:
                inner.watch(natural)
                value = tf.reduce_sum(log_partition(natural))
            mu = inner.gradient(value, natural, unconnected_gradients="zero")
            along = tf.add_n([tf.reduce_sum(a * b) for a, b in zip(mu, u)])
        return tuple(outer.gradient(along, natural, unconnected_gradients="zero"))  # (C61)

    return product


def _covariance_product(statistics: Natural, ranks: tuple[int, ...]) -> Product:
    """Return u -> Cov(phi) u with the covariance of draws, (C62); S D for D statistics.

    `statistics` are phi(z_s), one tensor [S, ...] each (Salimans & Knowles 2013).
    """
    centred = tuple(part - tf.reduce_mean(part, axis=0) for part in statistics)

    def product(u: Natural) -> Natural:
        terms = [
            tf.reduce_sum(c * part, list(range(-rank, 0)))
            for c, part, rank in zip(centred, u, ranks)
        ]
        weights = tf.add_n(terms)  # [S, ...]
        return tuple(
            tf.reduce_mean(
                tf.reshape(weights, tf.concat([tf.shape(weights), [1] * rank], 0)) * c, axis=0
            )
            for c, rank in zip(centred, ranks)
        )

    return product


def _scales(statistics: Natural) -> Natural:
    """Variances over draws of statistics [S, ...]; 1 if zero or not finite."""
    variances = [tf.math.reduce_variance(part, axis=0) for part in statistics]
    return tuple(tf.where(tf.math.is_finite(v) & (v > 0.0), v, tf.ones_like(v)) for v in variances)


def _solve(
    product: Product,
    diagonal: Natural,
    gradient: Natural,
    ranks: tuple[int, ...],
    tolerance: float,
    iterations: int,
) -> Natural:
    """Solve I(lambda) x = g by conjugate gradients, with step lengths per member of the batch.

    :param diagonal: a positive estimate of the diagonal, the preconditioner.
    :param iterations: limit; members left with over a thousandth become NaN.
    """
    shapes = [tf.shape(part) for part in gradient]
    rows = tf.reduce_prod(shapes[0][: len(gradient[0].shape) - ranks[0]])
    widths = [
        tf.reduce_prod(shape[len(part.shape) - rank :])
        for shape, part, rank in zip(shapes, gradient, ranks)
    ]

    def flat(parts: Natural) -> tf.Tensor:
        return tf.concat(
            [tf.reshape(part, [rows, width]) for part, width in zip(parts, widths)], axis=1
        )

    def parts_of(vectors: tf.Tensor) -> Natural:
        return tuple(
            tf.reshape(part, shape)
            for part, shape in zip(tf.split(vectors, widths, axis=1), shapes)
        )

    def inner(left: tuple, right: tuple) -> tf.Tensor:
        return tf.reduce_sum(left[0] * right[0], axis=1, keepdims=True)

    def apply(blocks: tuple) -> tuple:
        return (flat(product(parts_of(blocks[0]))),)

    weights, right = flat(diagonal), flat(gradient)
    found = conjugate_gradients(
        apply, lambda r: (r[0] / weights,), (right,), inner, tolerance, iterations
    ).x[0]
    # the recursion's residual drifts, so that solved members are told by a new one
    residual = right - apply((found,))[0]
    left, whole = (
        tf.reduce_sum(part**2 / weights, axis=1, keepdims=True) for part in (residual, right)
    )
    solved = left <= _UNSOLVED**2 * whole
    return parts_of(tf.where(solved, found, tf.constant(np.nan, found.dtype)))


# ---


_ANCHOR = (0, 0)
"""Seed of the point at which the log partition function is read off the density."""
_DRAWS = (0, 1)
"""Seed of the draws for solves, so that solves at the same lambda agree."""
_SCALING = 32
"""Draws for the scales of the statistics, which only precondition."""
_DIGITS = 1e4
"""Tolerance of the solves, in machine epsilons; 1e-6 with draws."""
_ITERATIONS = 500
"""Limit of a solve."""


class LogProbFamily(Family):
    """A family from `log_prob`, `sample`, `sufficient`, `statistics`, `ranks` of a subclass.

    The density must be q(z) = exp(<phi(z), lambda> - A(lambda)), without a factor of z alone: A
    follows from one density at `anchor`, its derivatives automatically, and the Fisher matrix is
    solved by conjugate gradients. A symmetric matrix statistic also needs `tangent`. If `log_prob`
    cannot be differentiated twice, the covariance of `draws` replaces the Fisher matrix, with error
    O(1 / sqrt(draws)).

    :param draws: draws of a solve; None uses second derivatives of `log_prob`. Members of a batch
        that are not solved to a thousandth become NaN.

    Example, angles with a von Mises density::

        class VonMises(LogProbFamily):
            statistics, ranks = ("cos z", "sin z"), (0, 0)

            # and `log_prob` and `sample`: the page "A basis, a likelihood ..." has all

            def sufficient(self, z):
                return tf.cos(z), tf.sin(z)

        belief = VonMises().belief(2.0, 0.5)  # lambda itself
    """

    def __init__(self, draws: int | None = None) -> None:
        if draws is not None:
            check_whole(2, draws=draws)
        self._draws = draws

    @abstractmethod
    def log_prob(self, z: tf.Tensor, natural: Natural) -> tf.Tensor:
        """Normalised log density of z [..., event] in nats, of the axes of z and the batch."""

    @abstractmethod
    def sample(self, natural: Natural, n: int, seed: Seed = None) -> tf.Tensor:
        """Draws [n, ..., event], differentiable in lambda if `reparameterized`."""

    def natural(self, *parameters: npt.ArrayLike) -> Natural:
        """Return the natural parameters, one array per statistic; a subclass may take usual
        parameters.
        """
        if len(parameters) != len(self.ranks):
            raise DataError(
                f"{self.name} has {len(self.ranks)} natural parameters and got {len(parameters)};"
                f" pass the coefficients of {', '.join(self.statistics)}."
            )
        parts = [
            as_float(f"the coefficient of {name}", part)
            for name, part in zip(self.statistics, parameters)
        ]
        for part, rank, name in zip(parts, self.ranks, self.statistics):
            if part.shape.rank < rank:
                raise DataError(
                    f"the coefficient of {name} has {part.shape.rank} axes and needs {rank}, those"
                    f" of {name}."
                )
        cuts = [part.shape.rank - rank for part, rank in zip(parts, self.ranks)]
        batch = functools.reduce(
            tf.broadcast_static_shape, [part.shape[:cut] for part, cut in zip(parts, cuts)]
        )
        return tuple(
            tf.broadcast_to(part, batch + part.shape[cut:]) for part, cut in zip(parts, cuts)
        )

    def distribution(self, natural: Natural) -> tfp.distributions.Distribution:
        """Refuse; a subclass may return it."""
        raise ModelError(
            f"{self.name} has no TFP distribution: use its log_prob and sample, or define"
            " distribution."
        )

    def anchor(self, natural: Natural) -> tf.Tensor:
        """A point [..., event] of the support; by default a draw that is a function of lambda."""
        return tf.stop_gradient(self.sample(natural, 1, seed=tf.constant(_ANCHOR, tf.int32))[0])

    def log_partition(self, natural: Natural) -> tf.Tensor:
        return self._log_partition_at(self.anchor(natural), natural)

    def expectation(self, natural: Natural) -> Natural:
        z = self.anchor(natural)
        with tf.GradientTape() as tape:
            tape.watch(natural)
            value = tf.reduce_sum(self._log_partition_at(z, natural))
        return self.tangent(tuple(tape.gradient(value, natural, unconnected_gradients="zero")))

    def fisher_solve(self, natural: Natural, gradient: Natural) -> Natural:
        drawn = self.sufficient(
            self.sample(natural, self._draws or _SCALING, seed=tf.constant(_DRAWS, tf.int32))
        )
        drawn = tuple(tf.stop_gradient(part) for part in drawn)
        if self._draws is None:  # (C61), else (C62)
            z = self.anchor(natural)
            product = _hessian_product(lambda at: self._log_partition_at(z, at), natural)
            tolerance = _DIGITS * float(np.finfo(natural[0].dtype.as_numpy_dtype).eps)
        else:
            self._check_draws(natural)
            product, tolerance = _covariance_product(drawn, self.ranks), 1e-6
        return _solve(
            lambda u: self.tangent(product(self.tangent(u))),
            _scales(drawn),
            self.tangent(gradient),
            self.ranks,
            tolerance,
            _ITERATIONS,
        )

    def in_domain(self, natural: Natural) -> tf.Tensor:
        """True where density and statistics are finite at the anchor, [...].

        Override it if `log_prob` is finite outside of the domain.
        """
        z = self.anchor(natural)
        finite = tf.math.is_finite(self._log_partition_at(z, natural))
        for part, rank in zip(self.sufficient(z), self.ranks):
            finite &= tf.reduce_all(tf.math.is_finite(part), axis=list(range(-rank, 0)))
        return finite

    def _log_partition_at(self, z: tf.Tensor, natural: Natural) -> tf.Tensor:
        return self.inner(self.sufficient(z), natural) - self.log_prob(z, natural)  # (C60)

    def _check_draws(self, natural: Natural) -> None:
        shapes = [part.shape[len(part.shape) - rank :] for part, rank in zip(natural, self.ranks)]
        size = sum(shape.num_elements() or 0 for shape in shapes)
        if not is_whole(self._draws, size + 1):
            raise DataError(
                f"draws={self._draws} of {self.name} give a singular covariance of {size}"
                f" statistics; use many more than {size}, or draws=None if log_prob can be"
                " differentiated twice."
            )
