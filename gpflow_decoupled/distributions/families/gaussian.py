"""The multivariate Gaussian family."""

from __future__ import annotations

__all__ = ["Gaussian"]

import math

import numpy.typing as npt
import tensorflow as tf

from ...errors import DataError
from ...linalg.cholesky import cholesky
from ...linalg.gaussians import root_from_precision
from ...linalg.triangular import inverse, lower_gram, lower_root_gram, solve
from ...probability import tfp
from .family import Family, Natural, as_float

_ASYMMETRY = 1e-5
"""Relative asymmetry of a covariance that counts as round-off."""


class Gaussian(Family):
    """Normal densities N(m, V) in M dimensions: lambda = (V^-1 m [..., M], -V^-1 / 2 [..., M, M]).

    The expectation parameters are mu = (m, V + m m^T). Methods cost M^3 per member of the batch.

    Example::

        natural = Gaussian().natural(mean=[0.0, 1.0], covariance=[[2.0, 0.5], [0.5, 1.0]])
        m, second_moment = Gaussian().expectation(natural)           # [2] and [2, 2]
    """

    statistics = ("z", "z z^T")
    ranks = (1, 2)

    def natural(self, mean: npt.ArrayLike, covariance: npt.ArrayLike) -> Natural:
        """Natural parameters of `mean` [..., M], positive definite `covariance` [..., M, M]."""
        m, V = (
            as_float("the mean of a Gaussian", mean),
            as_float("the covariance of a Gaussian", covariance),
        )
        if m.shape.rank < 1 or V.shape.rank < 2 or not V.shape[-1] == V.shape[-2] == m.shape[-1]:
            raise DataError(
                "a Gaussian has a mean [..., M] and a covariance [..., M, M]; here they have"
                f" shapes {tuple(m.shape)} and {tuple(V.shape)}. A number is a vector with M = 1."
            )
        gap, size = (
            tf.reduce_max(tf.abs(A), axis=[-2, -1]) for A in (V - tf.linalg.matrix_transpose(V), V)
        )
        if tf.executing_eagerly() and tf.reduce_any(gap > _ASYMMETRY * size):
            raise DataError(
                "the covariance of a Gaussian is not symmetric; pass 0.5 * (V + V.T) if that is"
                " what was meant."
            )
        factor = cholesky(V)
        if tf.executing_eagerly() and not factor.ok:
            raise DataError(
                "the covariance of a Gaussian is not positive definite; add to its diagonal."
            )
        precision = lower_root_gram(inverse(factor.chol))
        return tf.linalg.matvec(precision, m), -0.5 * precision + tf.zeros_like(m)[..., None]

    def mean_and_covariance(self, natural: Natural) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean m [..., M] and covariance V [..., M, M]."""
        mean, root = self._mean_and_root(natural)
        return mean, lower_gram(root)

    def distribution(self, natural: Natural) -> tfp.distributions.Distribution:
        return tfp.distributions.MultivariateNormalTriL(*self._mean_and_root(natural))

    def log_partition(self, natural: Natural) -> tf.Tensor:
        chol = cholesky(-2.0 * natural[1]).chol
        half = solve(chol, natural[0][..., None])[..., 0]
        log_diagonal = tf.math.log(tf.linalg.diag_part(chol))
        return tf.reduce_sum(
            0.5 * tf.square(half) - log_diagonal + 0.5 * math.log(2.0 * math.pi), axis=-1
        )

    def expectation(self, natural: Natural) -> Natural:
        """(m [..., M], V + m m^T [..., M, M])."""
        mean, covariance = self.mean_and_covariance(natural)
        return mean, covariance + mean[..., :, None] * mean[..., None, :]

    def sufficient(self, z: tf.Tensor) -> Natural:
        """(z, z z^T) for z [..., M]."""
        return z, z[..., :, None] * z[..., None, :]

    def fisher_solve(self, natural: Natural, gradient: Natural) -> Natural:
        """I(lambda)^-1 g, [..., M] and [..., M, M]: derivative of lambda along mu + t g."""
        precision = -2.0 * natural[1]
        mean = self._mean_and_root(natural)[0]
        g_1, g_2 = self.tangent(gradient)
        cross = g_1[..., :, None] * mean[..., None, :]
        dV = g_2 - cross - tf.linalg.matrix_transpose(cross)
        dP = -tf.matmul(precision, tf.matmul(dV, precision))
        return tf.linalg.matvec(dP, mean) + tf.linalg.matvec(precision, g_1), -0.5 * dP

    def tangent(self, gradient: Natural) -> Natural:
        return gradient[0], 0.5 * (gradient[1] + tf.linalg.matrix_transpose(gradient[1]))

    def in_domain(self, natural: Natural) -> tf.Tensor:
        return tf.reduce_all(
            tf.math.is_finite(tf.linalg.diag_part(cholesky(-2.0 * natural[1]).chol)), axis=-1
        )

    @staticmethod
    def _mean_and_root(natural: Natural) -> tuple[tf.Tensor, tf.Tensor]:
        root = root_from_precision(-2.0 * natural[1]).chol
        return tf.linalg.matvec(root, tf.linalg.matvec(root, natural[0], transpose_a=True)), root
