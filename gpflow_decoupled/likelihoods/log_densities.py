"""Log densities of observations, and their expectations."""

from __future__ import annotations

__all__ = [
    "expected_log_densities", "has_nodes", "observation_log_density", "scalar_expectations",
    "scalar_log_density",
]  # fmt: skip

import copy
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import TypeAlias

import gpflow.likelihoods as gl
import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import TensorType
from gpflow.likelihoods.utils import inv_probit

from ..expectations.log_means import log_mean_exp
from ..expectations.means import adaptive_mean
from ..expectations.peaked import peaked_mean

Rule: TypeAlias = Callable[..., tf.Tensor]
"""likelihood, X, mean, variance, Y -> nats [...]."""
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
        return _log_prob(likelihood, X, f, Y)

    return tf.reduce_sum(log_mean_exp(log_prob, mean, variance), axis=-1)


def _log_prob(
    likelihood: gl.ScalarLikelihood, X: TensorType, f: tf.Tensor, Y: TensorType
) -> tf.Tensor:
    own = type(likelihood)._scalar_log_prob
    if own is gl.Bernoulli._scalar_log_prob and likelihood.invlink is tf.sigmoid:
        return -tf.nn.softplus((1.0 - 2.0 * Y) * f)  # GPflow's overflows beyond 37
    if own is not gl.Beta._scalar_log_prob:
        return likelihood._scalar_log_prob(X, f, Y)
    # GPflow's clips y at 1e-6
    scale = likelihood._scale(X)
    a = scale * likelihood.invlink(f)
    b = scale - a
    normaliser = tf.math.lgamma(scale) - tf.math.lgamma(a) - tf.math.lgamma(b)
    return (a - 1.0) * tf.math.log(Y) + (b - 1.0) * tf.math.log1p(-Y) + normaliser


def scalar_expectations(
    likelihood: gl.ScalarLikelihood,
    X: TensorType,
    mean: TensorType,
    variance: TensorType,
    Y: TensorType,
) -> tf.Tensor:
    """E log p(y | f) [...] of a likelihood with a latent for each label, to 1e-8; see
    `adaptive_mean`. Arguments as of `expected_log_densities`.
    """
    mean = tf.convert_to_tensor(mean)
    mean += tf.zeros_like(variance)
    lead, parts = tf.shape(mean)[:-1], (X, mean, variance, tf.cast(Y, mean.dtype))
    if len(mean.shape) != 2:
        parts = tuple(_in_rows(tf.convert_to_tensor(part), lead) for part in parts)
    X, mean, variance, Y = parts
    if type(likelihood)._scalar_log_prob is gl.StudentT._scalar_log_prob:
        # narrow beside f in all rows where it matters
        floor = tf.constant(np.finfo(mean.dtype.as_numpy_dtype).tiny, mean.dtype)
        deviation, width = tf.sqrt(tf.maximum(variance, floor)), likelihood.df**0.5
        found = peaked_mean(
            lambda f: likelihood._scalar_log_prob(X, f, Y),
            mean, deviation, Y, likelihood._scale(X) * width + tf.zeros_like(Y), 20,
        )  # fmt: skip
    else:
        found = adaptive_mean(
            lambda f, X, Y: _log_prob(likelihood, X, f, Y),
            mean, variance, X, Y, alike=not any(_knows_rows(one) for one in likelihood.parameters),
        )  # fmt: skip
    return tf.reshape(tf.reduce_sum(found, axis=-1), lead)


def _in_rows(part: tf.Tensor, lead: tf.Tensor) -> tf.Tensor:
    columns = part.shape[-1]
    return tf.reshape(tf.broadcast_to(part, tf.concat([lead, [columns]], axis=0)), [-1, columns])


def _knows_rows(parameter: Parameter) -> bool:
    """True for a parameter of each observation [N, 1]."""
    return len(parameter.shape) > 1 and parameter.shape[0] != 1


def has_nodes(likelihood: gl.Likelihood, method: str = "_variational_expectations") -> bool:
    """True where `method` is GPflow's quadrature of one latent for each label."""
    if not isinstance(likelihood, gl.ScalarLikelihood):
        return False
    own = getattr(type(likelihood), method)
    by_nodes = own is getattr(gl.base.QuadratureLikelihood, method)
    if getattr(likelihood, "invlink", None) in (None, tf.exp, inv_probit):
        return by_nodes
    # of these GPflow has closed forms for one link
    return by_nodes or any(own is getattr(kind, method) for kind in (gl.Bernoulli, *_RATES))


def _switched(likelihood: gl.SwitchedLikelihood, method: str, rule: Rule) -> gl.SwitchedLikelihood:
    switched = copy.copy(likelihood)
    parts = [SimpleNamespace(**{method: partial(rule, part)}) for part in likelihood.likelihoods]
    object.__setattr__(switched, "likelihoods", parts)  # past the tracking of tf.Module
    return switched


def expected_log_densities(
    likelihood: gl.Likelihood, X: TensorType, mean: TensorType, variance: TensorType, Y: TensorType
) -> tf.Tensor:
    """E log p(y | f) [...] in nats, f ~ N(mean, variance), as `variational_expectations`.

    Accurate to 1e-8 where each latent has its labels, however wide f is beside the likelihood and
    whatever the likelihood's quadrature; with several latents for a label it is the likelihood's.

    :param likelihood: any likelihood.
    :param X: inputs [..., D].
    :param mean: of f [..., L].
    :param variance: of f [..., L].
    :param Y: [..., P].

    Example::

        values = expected_log_densities(model.likelihood, X, *model.predict_f(X), Y)
    """
    if isinstance(likelihood, gl.SwitchedLikelihood):
        likelihood = _switched(likelihood, "variational_expectations", expected_log_densities)
    if has_nodes(likelihood):
        return scalar_expectations(likelihood, X, mean, variance, Y)
    if type(likelihood) is gl.Poisson:  # by exp, of which GPflow's form is taken in double
        mean, dtype = tf.convert_to_tensor(mean), tf.convert_to_tensor(mean).dtype
        f, v, y, size = (
            tf.cast(one, tf.float64) for one in (mean, variance, Y, likelihood.binsize)
        )
        # terms of 1e7 for counts of 1e6, whose sum is a few nats
        found = y * (f + tf.math.log(size)) - size * tf.exp(f + 0.5 * v) - tf.math.lgamma(y + 1.0)
        return tf.cast(tf.reduce_sum(found, axis=-1), dtype)
    return likelihood.variational_expectations(X, mean, variance, Y)


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
        likelihood = _switched(likelihood, "predict_log_density", observation_log_density)
    if type(likelihood) not in _RATES or likelihood.invlink is not tf.exp:
        if not has_nodes(likelihood, "_predict_log_density"):
            return likelihood.predict_log_density(X, mean, variance, Y)
        return scalar_log_density(likelihood, X, mean, variance, Y)
    dtype = mean.dtype
    if isinstance(likelihood, gl.Poisson):  # terms of 1e7 for counts of 1e6
        mean, variance = tf.cast(mean, tf.float64), tf.cast(variance, tf.float64)
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
    return tf.cast(tf.reduce_sum(found + constant, axis=-1), dtype)
