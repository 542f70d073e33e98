"""Observations with limits."""

from __future__ import annotations

__all__ = ["CensoredLikelihood"]

import abc
from typing import ClassVar

import tensorflow as tf
from gpflow.base import TensorType

from ..counts.binomial import deviation_of
from ..numbered import NumberedLikelihood


class CensoredLikelihood(NumberedLikelihood):
    """y, or log y, is f plus noise of a scale s; Y [N, P + 1] ends with a column of codes.

    The code is 0 where y was observed, 1 where the true value is above y (right-censored), -1 where
    below. With z = (y - f) / s, or (log y - f) / s, its terms are log p(z) - log s, log P(Z > z)
    and log P(Z < z). Log-concave. `predict_y` is of the true value, not censored.

    Example::

        Y = np.hstack([values, np.where(above_limit, 1.0, 0.0)])
        model = CVIGP((X, Y), gpflow.kernels.Matern52(), CensoredNormal())
    """

    number = "censored"
    of_logarithms: ClassVar[bool] = False
    """Whether log y is f plus noise, and y is above 0."""

    @abc.abstractmethod
    def noise_scale(self) -> tf.Tensor:
        """s, a positive tensor."""

    @abc.abstractmethod
    def log_terms(self, z: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """log p(z), log P(Z > z) and log P(Z < z) of the noise in nats, of the shape of z."""

    @abc.abstractmethod
    def mean_terms(self, z: tf.Tensor, spread: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """The means of `log_terms` over z + spread N(0, 1), of the shape of z."""

    def transformed(self, y: tf.Tensor) -> tf.Tensor:
        """y or log y."""
        return tf.math.log(y) if self.of_logarithms else y

    def expected_log_prob(self, mean: tf.Tensor, spread: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        """E log p(y | f), f ~ N(mean, spread^2), in nats [..., P]; spread of either sign."""
        y, code = self.split(Y)
        scale = self.noise_scale()
        like = tf.zeros_like(mean + spread)
        z = (self.transformed(y) - mean) / scale + like
        return self._chosen(y, code, self.mean_terms(z, spread / scale + like))

    def _chosen(
        self, y: tf.Tensor, code: tf.Tensor, terms: tuple[tf.Tensor, tf.Tensor, tf.Tensor]
    ) -> tf.Tensor:
        density, above, below = terms
        density -= tf.math.log(self.noise_scale())
        if self.of_logarithms:
            density -= tf.math.log(y)
        return tf.where(code == 0.0, density, tf.where(code > 0.0, above, below))

    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        y, code = self.split(Y)
        z = (self.transformed(y) - tf.convert_to_tensor(F)) / self.noise_scale()
        return self._chosen(y, code, self.log_terms(z))

    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        mean = tf.convert_to_tensor(Fmu)
        return tf.reduce_sum(self.expected_log_prob(mean, deviation_of(Fvar), Y), axis=-1)
