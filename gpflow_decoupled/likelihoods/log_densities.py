"""Log densities of observations."""

from __future__ import annotations

__all__ = ["observation_log_density", "scalar_log_density"]

import copy
from functools import partial
from types import SimpleNamespace

import gpflow.likelihoods as gl
import tensorflow as tf
from gpflow.base import TensorType
from gpflow.likelihoods.utils import inv_probit

from ..expectations.log_means import log_mean_exp

_RATES = (gl.Poisson, gl.Exponential, gl.Gamma)


def scalar_log_density(
    likelihood: gl.ScalarLikelihood,
    X: TensorType,
    mean: TensorType,
    variance: TensorType,
    Y: TensorType,
) -> tf.Tensor:
    """log p(y | N(mean, variance)) [...] of a likelihood with a latent for each label, to 1e-8.

    Arguments as of `observation_log_density`.
    """
    mean = tf.convert_to_tensor(mean)
    Y = tf.cast(Y, mean.dtype)

    def log_prob(f: tf.Tensor) -> tf.Tensor:
        if type(likelihood)._scalar_log_prob is not gl.Beta._scalar_log_prob:
            return likelihood._scalar_log_prob(X, f, Y)
        # GPflow's clips y at 1e-6
        scale = likelihood._scale(X)
        a = scale * likelihood.invlink(f)
        b = scale - a
        normaliser = tf.math.lgamma(scale) - tf.math.lgamma(a) - tf.math.lgamma(b)
        return (a - 1.0) * tf.math.log(Y) + (b - 1.0) * tf.math.log1p(-Y) + normaliser

    return tf.reduce_sum(log_mean_exp(log_prob, mean, variance), axis=-1)


def _has_nodes(likelihood: gl.Likelihood) -> bool:
    """True where a predictive density is GPflow's quadrature of one latent for each label."""
    if not isinstance(likelihood, gl.ScalarLikelihood):
        return False
    own = type(likelihood)._predict_log_density
    by_nodes = own is gl.base.QuadratureLikelihood._predict_log_density
    if getattr(likelihood, "invlink", None) in (None, tf.exp, inv_probit):
        return by_nodes
    # of these GPflow has closed forms for one link
    return by_nodes or any(own is kind._predict_log_density for kind in (gl.Bernoulli, *_RATES))


def _switched(likelihood: gl.SwitchedLikelihood) -> gl.SwitchedLikelihood:
    switched = copy.copy(likelihood)
    parts = [
        SimpleNamespace(predict_log_density=partial(observation_log_density, part))
        for part in likelihood.likelihoods
    ]
    object.__setattr__(switched, "likelihoods", parts)  # past the tracking of tf.Module
    return switched


def observation_log_density(
    likelihood: gl.Likelihood, X: TensorType, mean: TensorType, variance: TensorType, Y: TensorType
) -> tf.Tensor:
    """log p(y | N(mean, variance)) [...] in nats, as `predict_log_density`, for any f.

    Accurate to 1e-8 where each latent has its labels, whatever the likelihood's quadrature; with
    several latents for a label it is the likelihood's. GPflow's `Poisson`, `Exponential` and
    `Gamma` take the logarithm of exp(f), which is not a number where that is zero or infinite; here
    f stays.

    :param likelihood: any likelihood.
    :param X: inputs [..., D].
    :param mean: of f [..., L].
    :param variance: of f [..., L].
    :param Y: [..., P].

    Example::

        density = observation_log_density(model.likelihood, X, *model.predict_f(X), Y)
    """
    mean = tf.convert_to_tensor(mean)
    if isinstance(likelihood, gl.SwitchedLikelihood):
        likelihood = _switched(likelihood)
    if type(likelihood) not in _RATES or likelihood.invlink is not tf.exp:
        if not _has_nodes(likelihood):
            return likelihood.predict_log_density(X, mean, variance, Y)
        return scalar_log_density(likelihood, X, mean, variance, Y)
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
