"""Draws from a GP prior as functions g(x) = phi(x)^T w, w ~ N(0, I): features of the kernel, random where it is stationary.

A stationary kernel is variance E cos(omega^T (x - z)) over its spectral density (Bochner), so that F draws of omega give the
2 F features sqrt(variance / F) (cos omega^T x, sin omega^T x) (Rahimi & Recht 2007). With x in units of lengthscales

| kernel | omega, z ~ N(0, I) |
|---|---|
| SquaredExponential | z |
| Matern nu | z / sqrt(c / 2 nu), c ~ chi^2 with 2 nu degrees of freedom: Student's t |
| RationalQuadratic alpha | z sqrt(s), s ~ Gamma(alpha, 1 / alpha): a mixture of squared exponentials |

Linear and constant kernels have one feature an input, and one, without approximation; those of a sum stand side by side.
"""

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
_KNOWN = "SquaredExponential, Matern12, Matern32, Matern52, RationalQuadratic, Linear, Constant and sums of them"


class PriorDraws:
    """S functions g ~ GP(0, k_l) for each of L latents.

    :param features: one function a latent, shared where kernels are. :param weights: for each latent, w [S, K].
    """

    def __init__(self, features: list[Features], weights: list[tf.Tensor]) -> None:
        self.features, self.weights = features, weights

    def __call__(self, X: list[tf.Tensor] | tf.Tensor, own: bool = False) -> tf.Tensor:
        """The values [S, L, N] at X [N, D], the same for all latents or one array each; S N K a latent.

        With `own` X [S N, D] holds N inputs for each draw, which is not evaluated at the others'.
        """
        inputs = X if isinstance(X, list) else [X] * len(self.features)
        values = []
        for phi, w, x in zip(self.features, self.weights, inputs):
            if own:
                values.append(tf.einsum("snk,sk->sn", tf.reshape(phi(x), [w.shape[0], -1, w.shape[1]]), w))
            else:
                values.append(tf.matmul(w, phi(x), transpose_b=True))
        return tf.stack(values, axis=1)


def draw_prior(
    kernels: list[Kernel], num_dims: int, num_samples: int, num_frequencies: int, rng: np.random.Generator
) -> PriorDraws:
    """S draws from the prior of each kernel on inputs of `num_dims` columns; F = `num_frequencies` where it is stationary.

    Raises `DataError` for a kernel whose spectral density is not known here.
    """
    made = {id(kernel): _features(kernel, num_dims, num_frequencies, rng) for kernel in kernels}
    features = [made[id(kernel)] for kernel in kernels]
    probe = tf.zeros([1, num_dims], kernels[0].parameters[0].dtype)
    weights = [tf.constant(rng.standard_normal((num_samples, phi(probe).shape[1])), probe.dtype) for phi in features]
    return PriorDraws(features, weights)


def _features(kernel: Kernel, num_dims: int, count: int, rng: np.random.Generator) -> Features:
    if isinstance(kernel, Sum):
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
        return tf.sqrt(kernel.variance / count) * tf.concat([tf.cos(angles), tf.sin(angles)], axis=1)

    return stationary


def _frequencies(kernel: Kernel, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """[D, F] draws from the spectral density for inputs in units of lengthscales."""
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
        f"Draws from the prior of {type(kernel).__name__} as functions are not known; there are those of {_KNOWN}. Use "
        "predict_f_samples for draws at given inputs."
    )
