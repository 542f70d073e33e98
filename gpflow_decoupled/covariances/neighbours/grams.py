"""Covariance matrices of many neighbourhoods at once, with their gradient written out."""

# Each neighbourhood is moved so that its last row is the origin, to keep the digits of distances.

from __future__ import annotations

__all__ = ["neighbourhood_grams"]

import functools

import tensorflow as tf
from gpflow.kernels import Exponential, Kernel, Matern12

from ...compilation import Compiled
from ..centring import covariance, middle_row
from ..profiles import PROFILES, Profile


def neighbourhood_grams(kernel: Kernel, X: tf.Tensor, fused: bool = False) -> tf.Tensor:
    """k(x, x') within each of B neighbourhoods.

    :param kernel: of one latent function.
    :param X: the inputs [B, n, D] of the neighbourhoods.
    :param fused: let XLA compile Matern and squared exponential kernels: half the time, after 0.3 s
        for each shape.
    :return: [B, n, n], without jitter. Cost: B n^2 D. Matern and squared exponential kernels can be
        differentiated once, by symmetric gradients only.
    """
    profile = _PROFILES.get(type(kernel))
    if profile is None:
        return covariance(kernel, X)
    active, _ = kernel.slice(X, None)
    scaled = (active - middle_row(active)) / tf.convert_to_tensor(kernel.lengthscales)
    return _gram(profile, kernel.variance, scaled, fused)


def _gram(profile: Profile, variance: tf.Tensor, scaled: tf.Tensor, fused: bool) -> tf.Tensor:
    @tf.custom_gradient
    def run(variance: tf.Tensor, scaled: tf.Tensor) -> tuple:
        values, slopes = _values_and_slopes(profile, variance, scaled)
        if fused:  # the others are computed for derivatives alone
            values = _compiled(profile, tuple(scaled.shape))(variance, scaled)

        def grad(upstream: tf.Tensor) -> tuple:
            weights, total = upstream * slopes, tf.reduce_sum(upstream * values)
            # sum_j w_ij (a_i - a_j), twice: once as a row and once as a column
            ones = tf.ones_like(scaled[..., :1])
            sums = tf.matmul(weights, tf.concat([ones, scaled], axis=-1))
            return total / variance, 4.0 * (sums[..., :1] * scaled - sums[..., 1:])

        return values, grad

    return run(tf.convert_to_tensor(variance), scaled)


def _values_and_slopes(
    profile: Profile, variance: tf.Tensor, scaled: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    return profile(_square_distances(scaled), variance)


@functools.cache
def _compiled(profile: Profile, shape: tuple) -> Compiled:
    # one for each shape, or TensorFlow would warn of a function that is traced for every data set
    def values(variance: tf.Tensor, scaled: tf.Tensor) -> tf.Tensor:
        return _values_and_slopes(profile, variance, scaled)[0]

    return Compiled(values, jit_compile=True)


def _square_distances(scaled: tf.Tensor) -> tf.Tensor:
    norms = tf.reduce_sum(tf.square(scaled), axis=-1, keepdims=True)
    ones = tf.ones_like(norms)
    left = tf.concat([-2.0 * scaled, norms, ones], axis=-1)
    right = tf.concat([scaled, ones, norms], axis=-1)
    squares = tf.maximum(tf.matmul(left, right, transpose_b=True), 0.0)
    return tf.linalg.set_diag(squares, tf.zeros_like(norms[..., 0]))


def _matern12(squares: tf.Tensor, variance: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """k = variance e^-r and dk/dr2 = -k / (2 r), zero where distances vanish, as it multiplies
    differences.
    """
    distance = tf.sqrt(squares)
    values = variance * tf.exp(-distance)
    return values, tf.math.divide_no_nan(-0.5 * values, distance)


def _exponential(squares: tf.Tensor, variance: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """k = variance e^(-r/2), GPflow's `Exponential`, and dk/dr2 = -k / (4 r)."""
    distance = tf.sqrt(squares)
    values = variance * tf.exp(-0.5 * distance)
    return values, tf.math.divide_no_nan(-0.25 * values, distance)


_PROFILES: dict[type, Profile] = {
    **PROFILES,
    Matern12: _matern12,
    Exponential: _exponential,
}
"""Unlike in `profiles.py`, kernels with a kink at zero: here distances are rounded little."""
