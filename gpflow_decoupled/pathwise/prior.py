"""Draws from a GP prior."""

# F draws of omega from a stationary kernel's spectral density give 2 F random features (Rahimi &
# Recht 2007)
#
#   phi(x) = sqrt(variance / F) (cos omega_1^T x, ..., cos omega_F^T x, sin omega_1^T x, ...)
#
# For x in units of the lengthscales and z ~ N(0, I),
#
# | kernel | omega |
# |---|---|
# | SquaredExponential | z |
# | Matern, smoothness nu | z / sqrt(c / 2 nu), c ~ chi^2 with 2 nu degrees of freedom |
# | RationalQuadratic, alpha | z sqrt(s), s ~ Gamma(alpha, 1 / alpha) |
#
# Linear (one feature per column) and constant kernels are exact; a sum has the features of its
# terms.

from __future__ import annotations

__all__ = ["PriorDraws", "draw_prior"]

from collections.abc import Callable

import numpy as np
import tensorflow as tf
from gpflow.kernels import (
    Constant,
    Kernel,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    RationalQuadratic,
    SquaredExponential,
    Sum,
)

from ..errors import DataError

Features = Callable[[tf.Tensor], tf.Tensor]
"""X [N, D] -> phi(X) [N, K]."""
_DEGREES = {Matern12: 1, Matern32: 3, Matern52: 5}
"""2 nu."""
_KNOWN = (
    "SquaredExponential, Matern12, Matern32, Matern52, RationalQuadratic, Linear, Constant and sums"
    " of them"
)


class PriorDraws:
    """S functions drawn from the priors GP(0, k_l) of L latents, made by `draw_prior`.

    :param features: phi of each latent; latents with the same kernel share it.
    :param weights: w of each latent, [S, K].

    Example::

        prior = draw_prior([gpflow.kernels.Matern52()], 2, 10, 1000, np.random.default_rng(0))
        values = prior(X)  # [10, 1, N]
    """

    def __init__(self, features: list[Features], weights: list[tf.Tensor]) -> None:
        self.features, self.weights = features, weights

    @property
    def num_samples(self) -> int:
        """The number of functions S."""
        return int(self.weights[0].shape[0])

    def __call__(self, X: list[tf.Tensor] | tf.Tensor, own: bool = False) -> tf.Tensor:
        """Evaluate the functions; cost S N K per latent.

        :param X: inputs [N, D], or a list with one array per latent.
        :param own: X is [S N, D], N inputs for each draw.
        :return: [S, L, N].
        """
        inputs = X if isinstance(X, list) else [X] * len(self.features)
        values = []
        for phi, w, x in zip(self.features, self.weights, inputs):
            if own:
                values.append(
                    tf.einsum("snk,sk->sn", tf.reshape(phi(x), [w.shape[0], -1, w.shape[1]]), w)
                )
            else:
                values.append(tf.matmul(w, phi(x), transpose_b=True))
        return tf.stack(values, axis=1)


def draw_prior(
    kernels: list[Kernel],
    num_dims: int,
    num_samples: int,
    num_frequencies: int,
    rng: np.random.Generator,
) -> PriorDraws:
    """Draw functions from the priors of several latents.

    :param kernels: per latent: SquaredExponential, Matern, RationalQuadratic, Linear, Constant or
        sums of them. Latents with the same kernel object share features, not weights.
    :param num_dims: columns of the inputs.
    :param num_samples: S, the number of draws.
    :param num_frequencies: F random frequencies per stationary kernel; covariance error about
        variance / sqrt(F).
    :param rng: the source of the draws.
    :raises DataError: for a kernel whose spectral density is not known here.

    Example::

        prior = draw_prior([gpflow.kernels.Matern52()], 2, 10, 1000, np.random.default_rng(0))
    """
    made = {id(kernel): _features(kernel, num_dims, num_frequencies, rng) for kernel in kernels}
    features = [made[id(kernel)] for kernel in kernels]
    probe = tf.zeros([1, num_dims], kernels[0].parameters[0].dtype)
    weights = [
        tf.constant(rng.standard_normal((num_samples, phi(probe).shape[1])), probe.dtype)
        for phi in features
    ]
    return PriorDraws(features, weights)


def _features(kernel: Kernel, num_dims: int, count: int, rng: np.random.Generator) -> Features:
    if type(kernel) is Sum:
        parts = [_features(part, num_dims, count, rng) for part in kernel.kernels]
        return lambda X: tf.concat([phi(X) for phi in parts], axis=1)
    if type(kernel) is Constant:
        return lambda X: tf.sqrt(kernel.variance) * tf.ones_like(X[:, :1])
    if type(kernel) is Linear:
        return lambda X: tf.sqrt(kernel.variance) * kernel.slice(X, None)[0]
    columns = kernel.slice(tf.zeros([1, num_dims]), None)[0].shape[1]
    omega = tf.constant(_frequencies(kernel, (columns, count), rng), kernel.parameters[0].dtype)

    def stationary(X: tf.Tensor) -> tf.Tensor:
        angles = tf.matmul(kernel.scale(kernel.slice(X, None)[0]), omega)
        return tf.sqrt(kernel.variance / count) * tf.concat(
            [tf.cos(angles), tf.sin(angles)], axis=1
        )

    return stationary


def _frequencies(kernel: Kernel, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    z = rng.normal(size=shape)
    if type(kernel) is SquaredExponential:
        return z
    if type(kernel) in _DEGREES:
        degrees = _DEGREES[type(kernel)]
        return z / np.sqrt(rng.chisquare(degrees, shape[1]) / degrees)
    if type(kernel) is RationalQuadratic:
        alpha = float(tf.convert_to_tensor(kernel.alpha))
        return z * np.sqrt(rng.gamma(alpha, 1.0 / alpha, shape[1]))
    raise DataError(
        f"Functions cannot be drawn from the prior of {type(kernel).__name__}, because its spectral"
        f" density is not known here. They can be drawn for {_KNOWN}. For draws at given inputs use"
        " predict_f_samples."
    )
