"""Log densities of observations."""

from __future__ import annotations

__all__ = ["observation_log_density"]

import gpflow.likelihoods as gl
import tensorflow as tf
from gpflow.base import TensorType

from ..expectations.log_means import log_mean_exp


def observation_log_density(
    likelihood: gl.Likelihood, X: TensorType, mean: TensorType, variance: TensorType, Y: TensorType
) -> tf.Tensor:
    """log p(y | N(mean, variance)) [...] in nats, as `predict_log_density`, for any f.

    GPflow's `Poisson`, `Exponential` and `Gamma` take the logarithm of exp(f), which is not a
    number where that is zero or infinite; here f stays. Accurate to 1e-8.

    :param likelihood: any likelihood.
    :param X: inputs [..., D].
    :param mean: of f [..., L].
    :param variance: of f [..., L].
    :param Y: [..., P].

    Example::

        density = observation_log_density(model.likelihood, X, *model.predict_f(X), Y)
    """
    kinds = gl.Poisson, gl.Exponential, gl.Gamma
    if type(likelihood) not in kinds or likelihood.invlink is not tf.exp:
        return likelihood.predict_log_density(X, mean, variance, Y)
    mean = tf.convert_to_tensor(mean)
    Y = tf.cast(Y, mean.dtype)
    one = tf.ones([], mean.dtype)
    if isinstance(likelihood, gl.Poisson):
        size = tf.cast(likelihood.binsize, mean.dtype)
        constant = Y * tf.math.log(size) - tf.math.lgamma(Y + 1.0)
        sign, linear, log_scale = one, Y, tf.math.log(size)
    else:
        shape = likelihood._shape(X) if isinstance(likelihood, gl.Gamma) else one
        constant = (shape - 1.0) * tf.math.log(Y) - tf.math.lgamma(shape)
        sign, linear, log_scale = -one, shape, tf.math.log(Y)

    def log_prob(f: tf.Tensor) -> tf.Tensor:
        return linear * sign * f - tf.exp(sign * f + log_scale)

    # the peak of the density; without counts it falls over a width of one
    weight = tf.where(linear > 0.0, linear, one)
    centre = sign * (tf.math.log(weight) - log_scale)
    found = log_mean_exp(log_prob, mean, variance, centre, tf.math.rsqrt(weight))
    return tf.reduce_sum(found + constant, axis=-1)
