"""Mean and variance of observations."""

from __future__ import annotations

__all__ = ["moments_of_trials", "observation_moments"]

import gpflow.likelihoods as gl
import numpy as np
import tensorflow as tf
from gpflow.base import MeanAndVariance, TensorType

from ...expectations.peaked import peaked_mean
from ..counts import BetaBinomial
from ..row_likelihood import RowLikelihood


def observation_moments(
    likelihood: gl.Likelihood, X: TensorType, mean: TensorType, variance: TensorType
) -> MeanAndVariance:
    """E y and Var y [..., P], as `predict_mean_and_var` without its cancellation.

    GPflow subtracts (E y)^2 from E y^2. With nodes, here Var y = E[Var(y | f) + (E[y | f] - c)^2] -
    (E y - c)^2 with c = E[y | f = E f].

    :param likelihood: any likelihood.
    :param X: inputs [..., D].
    :param mean: of f [..., L].
    :param variance: of f [..., L].

    Example::

        mean, variance = observation_moments(model.likelihood, Xnew, *model.predict_f(Xnew))
    """
    if isinstance(likelihood, RowLikelihood):
        likelihood = likelihood.likelihood
    by_nodes = gl.base.QuadratureLikelihood
    if not isinstance(likelihood, by_nodes) or (
        type(likelihood)._predict_mean_and_var is not by_nodes._predict_mean_and_var
    ):
        return likelihood.predict_mean_and_var(X, mean, variance)

    def deviation(F: tf.Tensor, X_: tf.Tensor, c_: tf.Tensor) -> tf.Tensor:
        return likelihood.conditional_mean(X_, F) - c_

    def square(F: tf.Tensor, X_: tf.Tensor, c_: tf.Tensor) -> tf.Tensor:
        return likelihood.conditional_variance(X_, F) + tf.square(deviation(F, X_, c_))

    def expected(F: tf.Tensor, X_: tf.Tensor, c_: tf.Tensor) -> tf.Tensor:
        return likelihood.conditional_mean(X_, F)

    c = likelihood.conditional_mean(X, mean)
    first, second, plain = likelihood.quadrature(
        [deviation, square, expected], mean, variance, X_=X, c_=c
    )
    # moments of exp(f) may be beyond the range of floats: they are infinite then, and not the
    # difference of two infinities
    finite, infinity = tf.math.is_finite(c) & tf.math.is_finite(first), tf.cast(np.inf, first.dtype)
    variance = tf.where(tf.math.is_finite(second), second - tf.square(first), infinity)
    return tf.where(finite, c + first, plain), variance


def moments_of_trials(
    likelihood: gl.ScalarLikelihood,
    X: TensorType,
    mean: tf.Tensor,
    variance: tf.Tensor,
    trials: tf.Tensor,
) -> MeanAndVariance:
    """E y and Var y [N, P] of y successes in some trials [N, 1]; other arguments as above.

    :param likelihood: of labels, `Binomial` or `BetaBinomial`.
    """
    # Var y = t E[p (1 - p)] (1 + (t - 1) / (c + 1)) + t^2 Var p, p the probability given f
    p, _ = likelihood.predict_mean_and_var(X, mean, variance)
    width = tf.constant(np.pi, mean.dtype)
    spread = peaked_mean(
        lambda f: tf.square(likelihood._conditional_mean(X, f) - p),
        mean, tf.sqrt(variance), tf.zeros_like(mean), width,
    )  # fmt: skip
    alike = 0.0
    if isinstance(likelihood, BetaBinomial):
        alike = (trials - 1.0) / (likelihood.concentration + 1.0)
    own = trials * (p * (1.0 - p) - spread) * (1.0 + alike)
    return trials * p, own + tf.square(trials) * spread
