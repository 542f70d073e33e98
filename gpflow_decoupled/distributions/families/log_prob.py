"""Exponential families from a log density."""

from __future__ import annotations

__all__ = ["LogProbFamily"]

import functools
from abc import abstractmethod

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ...errors import DataError, ModelError
from ...inputs import check_rate, check_whole, is_whole
from ...probability import tfp
from ..base_density import Seed
from .family import Family, Natural, as_float
from .fisher import covariance_product, hessian_product, scales, solve

_ANCHOR = (0, 0)
"""Seed of the point at which the log partition function is read off the density."""
_DRAWS = (0, 1)
"""Seed of the draws for solves, so that solves at the same lambda agree."""
_SCALING = 32
"""Draws for the scales of the statistics, which only precondition."""
_DIGITS = 1e4
"""Tolerance of the solves, in machine epsilons."""


class LogProbFamily(Family):
    """A family from `log_prob`, `sample`, `sufficient`, `statistics`, `ranks` of a subclass.

    The density must be q(z) = exp(<phi(z), lambda> - A(lambda)), without a factor of z alone: A
    follows from one density at `anchor`, its derivatives automatically, and the Fisher matrix is
    solved by conjugate gradients. A symmetric matrix statistic also needs `tangent`. If `log_prob`
    cannot be differentiated twice, the covariance of `draws` replaces the Fisher matrix, with error
    O(1 / sqrt(draws)).

    :param draws: draws of a solve; None uses second derivatives of `log_prob`.
    :param iterations: limit per solve; members not solved to a thousandth become NaN.
    :param tolerance: relative residual; default 1e4 machine epsilons, or 1e-6 with `draws`.

    Example, angles with a von Mises density::

        class VonMises(LogProbFamily):
            statistics, ranks = ("cos z", "sin z"), (0, 0)

            # and `log_prob` and `sample`: the page "A basis, a likelihood ..." has all

            def sufficient(self, z):
                return tf.cos(z), tf.sin(z)

        belief = VonMises().belief(2.0, 0.5)  # lambda itself
    """

    def __init__(
        self, draws: int | None = None, *, iterations: int = 500, tolerance: float | None = None
    ) -> None:
        if draws is not None:
            check_whole(2, draws=draws)
        check_whole(1, iterations=iterations)
        if tolerance is not None:
            check_rate(1.0, tolerance=tolerance)
        self._draws, self._iterations, self._tolerance = draws, iterations, tolerance

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
            product = hessian_product(lambda at: self._log_partition_at(z, at), natural)
            tolerance = _DIGITS * float(np.finfo(natural[0].dtype.as_numpy_dtype).eps)
        else:
            self._check_draws(natural)
            product, tolerance = covariance_product(drawn, self.ranks), 1e-6
        tolerance = tolerance if self._tolerance is None else self._tolerance
        return solve(
            lambda u: self.tangent(product(self.tangent(u))),
            scales(drawn),
            self.tangent(gradient),
            self.ranks,
            tolerance,
            self._iterations,
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
