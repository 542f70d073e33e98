"""The site of an observation, or of a weight with a prior of its own, for affine-independent inference."""

from __future__ import annotations

__all__ = ["is_logit", "likelihood_site", "prior_site"]

import copy
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow import likelihoods as gl
from gpflow.config import default_float

from ...errors import DataError
from ...expectations.projections import Site
from ..bernoulli_logit import BernoulliLogit
from ..laplace import Laplace
from ..parameters import constant_parameter
from .fourier_sites import gaussian_site, laplace_site, logistic_site, student_t_site

tfd = tfp.distributions


def is_logit(likelihood: gl.Likelihood) -> bool:
    """Whether the likelihood is a Bernoulli one with a logistic link."""
    return isinstance(likelihood, BernoulliLogit) or (
        type(likelihood) is gl.Bernoulli and likelihood.invlink is tf.sigmoid
    )


def likelihood_site(likelihood: gl.Likelihood, Y: tf.Tensor) -> Site:
    """The site log p(y_n | f_n) for labels Y [N]: with a transform for the logit, Laplace, Student-t and Gaussian noise.

    Any other likelihood with one latent an observation has a site for the routes "spectral" and "lattice". Raises
    `DataError` for likelihoods with more latents, and for parameters that are functions of the inputs.
    """
    if not isinstance(likelihood, gl.ScalarLikelihood) or isinstance(likelihood, gl.SwitchedLikelihood):
        raise DataError(
            f"{type(likelihood).__name__} has more to it than one latent an observation: it is no product of sites."
        )
    Y = tf.convert_to_tensor(Y)
    if is_logit(likelihood):
        return logistic_site(2.0 * Y - 1.0)
    if type(likelihood) is Laplace:
        return laplace_site(Y, _per_site(likelihood.scale, "The noise scale", Y))
    if type(likelihood) is gl.StudentT:
        return student_t_site(Y, _per_site(likelihood.scale, "The noise scale", Y), Y * 0.0 + float(likelihood.df))
    if type(likelihood) is gl.Gaussian:
        if likelihood.variance is not None:
            scale = tf.sqrt(_per_site(likelihood.variance, "The noise variance", Y))
        else:
            scale = _per_site(likelihood.scale, "The noise scale", Y)
        return gaussian_site(Y, scale)
    return _any_likelihood(likelihood, Y)


def prior_site(prior: Any, count: int) -> Site:
    """The site log p(w_d) of `count` = p weights under independent priors: a scalar TFP distribution of batch shape [] or [p].

    Laplace, Student-t and normal priors have closed transforms; others need the route "spectral" or "lattice" and a batch
    shape of [].
    """

    def rows(*parts: Any) -> tuple[tf.Tensor, ...]:
        return tuple(tf.cast(part, default_float()) + tf.zeros([count], default_float()) for part in parts)

    if isinstance(prior, tfd.Laplace):
        return laplace_site(*rows(prior.loc, prior.scale))
    if isinstance(prior, tfd.StudentT):
        return student_t_site(*rows(prior.loc, prior.scale, prior.df))
    if isinstance(prior, tfd.Normal):
        return gaussian_site(*rows(prior.loc, prior.scale))
    if prior.batch_shape.rank != 0:
        raise DataError(
            f"the prior {prior.name} has batch shape {prior.batch_shape}: give one distribution for all weights, of batch "
            "shape [], or a Laplace, StudentT or Normal."
        )
    return Site(smooth=lambda y: tf.cast(prior.log_prob(tf.cast(y, prior.dtype)), y.dtype))


def _per_site(parameter: Any, name: str, like: tf.Tensor) -> tf.Tensor:
    """[N], for a parameter of shape [], [1], [N] or [N, 1]."""
    value = tf.cast(constant_parameter(parameter, name, positive=True), like.dtype)
    return tf.reshape(value, [-1]) + tf.zeros_like(like)


def _any_likelihood(likelihood: gl.ScalarLikelihood, Y: tf.Tensor) -> Site:
    """By the likelihood's own density; its scalar Parameters are passed as columns, so that gradients reach them."""
    found = {name: value for name, value in vars(likelihood).items() if isinstance(value, Parameter)}
    scalars = {name: value for name, value in found.items() if int(np.prod(value.shape)) == 1}

    def smooth(y: tf.Tensor, label: tf.Tensor, *columns: tf.Tensor) -> tf.Tensor:
        held = copy.copy(likelihood)
        for name, column in zip(scalars, columns):
            object.__setattr__(held, name, column)
        return held._scalar_log_prob(None, y, label)

    rows = tuple(tf.reshape(tf.convert_to_tensor(value), [-1]) + tf.zeros_like(Y) for value in scalars.values())
    return Site(smooth=smooth, parameters=(Y, *rows))
