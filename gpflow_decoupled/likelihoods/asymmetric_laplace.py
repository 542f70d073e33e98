"""Noise under which f is a quantile of y."""

from __future__ import annotations

__all__ = ["AsymmetricLaplace"]

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods import ScalarLikelihood

from ..errors import DataError
from ..inputs import is_number
from ..summaries import short_repr
from .laplace import LEAST_DEVIATION, expected_laplace_loss, log_side
from .parameters import positive_parameter


class AsymmetricLaplace(ScalarLikelihood):
    """p(y | f) = q (1 - q) / b exp(-rho(y - f) / b), rho(u) = u (q - [u < 0]): f is the q-quantile.

    Minus log p is the loss of quantile regression (Yu & Moyeed, 2001). Log-concave; expectations
    and predictions are closed forms. `predict_f` is of the quantile; `predict_y` has this noise,
    which is right near the quantile only.

    :param quantile: q, above 0 and below 1.
    :param scale: b, above 0.
    :param kwargs: of `gpflow.likelihoods.ScalarLikelihood`.

    Example::

        model = gd.build(X, y, AsymmetricLaplace(0.9))
        gd.fit(model)
        ninth_decile, _ = model.predict_f(Xnew)
    """

    def __init__(self, quantile: float = 0.5, scale: npt.ArrayLike = 1.0, **kwargs: object) -> None:
        super().__init__(**kwargs)
        if not is_number(quantile) or not 0.0 < quantile < 1.0:
            raise DataError(
                f"quantile={short_repr(quantile)} must be a number above 0 and below 1, for example"
                " 0.9."
            )
        self.quantile = float(quantile)
        self.scale: Parameter = positive_parameter(scale, "scale")

    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        scale, q = tf.convert_to_tensor(self.scale), self.quantile
        residual = (Y - tf.convert_to_tensor(F)) / scale
        return tf.math.log(q * (1.0 - q) / scale) - tf.maximum(q * residual, (q - 1.0) * residual)

    def _shift(self) -> float:
        return (1.0 - 2.0 * self.quantile) / (self.quantile * (1.0 - self.quantile))

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return F + self._shift() * self.scale

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        # the variance of a difference of exponentials of means 1 / q and 1 / (1 - q)
        squares = self.quantile**-2.0 + (1.0 - self.quantile) ** -2.0
        return squares * tf.square(self.scale) + tf.zeros_like(F)

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        return self._conditional_mean(X, Fmu), Fvar + self._conditional_variance(X, Fmu)

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        # one term for each side of the kink, as `Laplace`
        scale, q = tf.convert_to_tensor(self.scale), self.quantile
        sigma = tf.sqrt(tf.maximum(Fvar, LEAST_DEVIATION**2))
        t, ratio = (Y - Fmu) / sigma, sigma / scale
        above, below = log_side(-t, q * ratio), log_side(t, (1.0 - q) * ratio)
        density = tf.reduce_logsumexp(tf.stack([above, below]), axis=0)
        return tf.reduce_sum(density + tf.math.log(q * (1.0 - q) / scale), axis=-1)

    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        sigma = tf.sqrt(tf.maximum(Fvar, LEAST_DEVIATION**2))
        scale = tf.convert_to_tensor(self.scale)
        # rho(u) / b = |u| / (2 b) + (q - 1/2) u / b
        even = expected_laplace_loss(Fmu - Y, sigma, 2.0 * scale)
        odd = (self.quantile - 0.5) * (Y - Fmu) / scale
        return tf.reduce_sum(self.log_excess() - even - odd, axis=-1)

    def log_excess(self) -> float:
        """log 4 q (1 - q), by which a Laplace density of scale 2 b is larger at the kink."""
        return float(np.log(4.0 * self.quantile * (1.0 - self.quantile)))
