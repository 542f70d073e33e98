"""Exponential families that are given by a log density, draws and sufficient statistics, without
any formula of their own.
"""

from __future__ import annotations

__all__ = ["LogProbFamily"]

import functools
from abc import abstractmethod

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tensorflow_probability as tfp

from ...errors import DataError, ModelError
from ...inputs import check_rate, check_whole, is_whole
from ..base import Seed
from .base import Family, Natural, as_float
from .fisher import covariance_product, hessian_product, scales, solve

_ANCHOR = (0, 0)
"""The seed of the point at which the log partition function is read off the density."""
_DRAWS = (0, 1)
"""The seed of the draws for solves, so that two solves at the same lambda agree."""
_SCALING = 32
"""Draws for the scales of the statistics, which only precondition."""
_DIGITS = 1e4
"""Tolerance of the solves, as a multiple of the machine epsilon."""


class LogProbFamily(Family):
    """A family of one's own: a subclass defines `log_prob`, `sample` and `sufficient`, and says
    `statistics` and `ranks`.

    The rest follows. The density must be q(z) = exp(<phi(z), lambda> - A(lambda)), normalised,
    without a factor that depends on z alone. Then at any point z of the support

    | what | by | cost |
    |---|---|---|
    | A(lambda) = <phi(z), lambda> - log q(z), (C60) | one density at `anchor` | one density |
    | mu = grad A | automatic differentiation | about three densities |
    | I(lambda)^-1 g | conjugate gradients, with I u = grad <grad A, u> (C61) | about four densities per iteration |

    No D x D matrix is formed for D statistics. A statistic that is a symmetric matrix needs
    `tangent` too. Where `log_prob` cannot be differentiated twice, `draws` is the number of draws
    whose covariance of statistics takes the place of the Fisher matrix in solves (C62), with an
    error of order 1 / sqrt(draws) and a bias of order D / draws.

    :param draws: of the covariance in solves; None for second derivatives of `log_prob`.
    :param iterations: most iterations of conjugate gradients per solve. A member of the batch that
        is not solved to a thousandth by then is NaN, which optimizers report.
    :param tolerance: of the residual in solves, relative to the gradient; 1e4 machine epsilons by
        default, or with `draws` 1e-6.
    :raises DataError: for a number that counts nothing.

    Example, angles with a von Mises density::

        class VonMises(LogProbFamily):
            statistics, ranks = ("cos z", "sin z"), (0, 0)

            def log_prob(self, z, natural):
                a, b = natural
                return tfd.VonMises(tf.atan2(b, a), tf.sqrt(a**2 + b**2)).log_prob(z)

            def sample(self, natural, n, seed=None):
                a, b = natural
                return tfd.VonMises(tf.atan2(b, a), tf.sqrt(a**2 + b**2)).sample(n, seed=seed)

            def sufficient(self, z):
                return tf.cos(z), tf.sin(z)

        belief = VonMises().belief(2.0, 0.5)                         # lambda itself
    """  # noqa: E501

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
        """The log density of z [..., event] in nats at lambda, normalised, of the leading axes of z
        and the batch.
        """

    @abstractmethod
    def sample(self, natural: Natural, n: int, seed: Seed = None) -> tf.Tensor:
        """Draws [n, ..., event], differentiable in lambda where the family says that it is
        `reparameterized`.
        """

    def natural(self, *parameters: npt.ArrayLike) -> Natural:
        """The natural parameters themselves, one array for each of `statistics`.

        A subclass may take the usual parameters of the family instead, and return lambda.

        :raises DataError: for another number of arrays, and entries that are not finite.
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
        """None is known; a subclass that has a TFP distribution may return it.

        :raises ModelError: always.
        """
        raise ModelError(
            f"{self.name} has no TFP distribution: use its log_prob and sample, or define"
            " distribution."
        )

    def anchor(self, natural: Natural) -> tf.Tensor:
        """A point [..., event] of the support, by default a draw that is the same at the same
        lambda.

        A subclass may return any other point, for example the mode. Its statistics and density must
        be finite.
        """
        return tf.stop_gradient(self.sample(natural, 1, seed=tf.constant(_ANCHOR, tf.int32))[0])

    def log_partition(self, natural: Natural) -> tf.Tensor:
        """A(lambda) in nats, [...], from the density at the anchor."""
        return self._log_partition_at(self.anchor(natural), natural)

    def expectation(self, natural: Natural) -> Natural:
        """mu = grad A(lambda), of the shapes of lambda, by automatic differentiation."""
        z = self.anchor(natural)
        with tf.GradientTape() as tape:
            tape.watch(natural)
            value = tf.reduce_sum(self._log_partition_at(z, natural))
        return self.tangent(tuple(tape.gradient(value, natural, unconnected_gradients="zero")))

    def fisher_solve(self, natural: Natural, gradient: Natural) -> Natural:
        """I(lambda)^-1 g by conjugate gradients, of the shapes of lambda; NaN for members that are
        not solved.

        :raises DataError: for fewer draws than statistics, whose covariance would be singular.
        """
        drawn = self.sufficient(
            self.sample(natural, self._draws or _SCALING, seed=tf.constant(_DRAWS, tf.int32))
        )
        drawn = tuple(tf.stop_gradient(part) for part in drawn)
        if self._draws is None:
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
        """Whether density and statistics at the anchor are finite, [...].

        A subclass whose `log_prob` has finite values outside of the domain defines a test of its
        own.
        """
        z = self.anchor(natural)
        finite = tf.math.is_finite(self._log_partition_at(z, natural))
        for part, rank in zip(self.sufficient(z), self.ranks):
            finite &= tf.reduce_all(tf.math.is_finite(part), axis=list(range(-rank, 0)))
        return finite

    def _log_partition_at(self, z: tf.Tensor, natural: Natural) -> tf.Tensor:
        """A(lambda) [...] by the density at z: the same number at every z of the support."""
        return self.inner(self.sufficient(z), natural) - self.log_prob(z, natural)  # (C60)

    def _check_draws(self, natural: Natural) -> None:
        """Raise `DataError` for fewer draws than statistics, where their number is known."""
        shapes = [part.shape[len(part.shape) - rank :] for part, rank in zip(natural, self.ranks)]
        size = sum(shape.num_elements() or 0 for shape in shapes)
        if not is_whole(self._draws, size + 1):
            raise DataError(
                f"draws={self._draws} of {self.name} give a singular covariance of {size}"
                f" statistics; use many more than {size}, or draws=None if log_prob can be"
                " differentiated twice."
            )
