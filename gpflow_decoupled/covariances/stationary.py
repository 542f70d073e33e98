"""Gram matrices of GPflow's smooth stationary kernels with their gradient written out.

k = variance f(r2) with r2 = |x - z|^2 of scaled inputs. Differentiated operation by operation (distance, root, exponential,
product), TensorFlow's gradient reads and writes the whole matrix some thirty times. Written out it needs k and dk/dr2, which
share their exponential, and two products of the matrix with D columns.

| kernel | k / variance | (dk/dr2) / variance |
|---|---|---|
| SquaredExponential | e^(-r2/2) | -1/2 e^(-r2/2) |
| Matern32, s = sqrt(3 r2) | (1 + s) e^-s | -3/2 e^-s |
| Matern52, s = sqrt(5 r2) | (1 + s + s^2/3) e^-s | -5/6 (1 + s) e^-s |

Matern12 is left to GPflow: its slope at zero distance is not zero, so that its values depend on how distances are rounded.
"""

from __future__ import annotations

__all__ = ["stationary_gram"]

from collections.abc import Callable

import tensorflow as tf
from gpflow.kernels import Kernel, Matern32, Matern52, SquaredExponential

Profile = Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
"""(squared distances [M, N], variance []) -> k and dk/dr2, both [M, N]."""


def stationary_gram(kernel: Kernel, Z: tf.Tensor, X: tf.Tensor | None = None) -> tf.Tensor | None:
    """k(Z, X) [M, N] for Z [M, D] and X [N, D] (or Z itself), or None for kernels that are not listed above; N M."""
    profile = _PROFILES.get(type(kernel))
    if profile is None:
        return None
    Z, X = kernel.slice(Z, X)
    left = kernel.scale(Z)
    right = left if X is None else kernel.scale(X)
    return _gram(profile, kernel.variance, left, right, X is None)


def _gram(profile: Profile, variance: tf.Tensor, left: tf.Tensor, right: tf.Tensor, same: bool) -> tf.Tensor:
    """The matrix variance * f(|left_i - right_j|^2) [M, N] for scaled inputs [M, D] and [N, D]."""

    @tf.custom_gradient
    def run(variance: tf.Tensor, left: tf.Tensor, right: tf.Tensor) -> tuple:
        squares = _square_distances(left, right, same)
        values, slopes = profile(squares, variance)

        def grad(upstream: tf.Tensor) -> tuple:
            weights, total = upstream * slopes, tf.reduce_sum(upstream * values)
            to_left = tf.reduce_sum(weights, axis=1)[:, None] * left - tf.matmul(weights, right)
            to_right = tf.reduce_sum(weights, axis=0)[:, None] * right - tf.matmul(weights, left, transpose_a=True)
            return total / variance, 2.0 * to_left, 2.0 * to_right

        return values, grad

    return run(tf.convert_to_tensor(variance), left, right)


def _square_distances(left: tf.Tensor, right: tf.Tensor, same: bool) -> tf.Tensor:
    """Squared distances [M, N] by one product: |a - b|^2 = (-2 a, |a|^2, 1) . (b, 1, |b|^2)."""
    left_norm = tf.reduce_sum(tf.square(left), axis=-1, keepdims=True)
    right_norm = tf.reduce_sum(tf.square(right), axis=-1, keepdims=True)
    rows = tf.concat([-2.0 * left, left_norm, tf.ones_like(left_norm)], axis=1)
    columns = tf.concat([right, tf.ones_like(right_norm), right_norm], axis=1)
    squares = tf.maximum(tf.matmul(rows, columns, transpose_b=True), 0.0)
    return tf.linalg.set_diag(squares, tf.zeros_like(left_norm[:, 0])) if same else squares


def _squared_exponential(squares: tf.Tensor, variance: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    values = variance * tf.exp(-0.5 * squares)
    return values, -0.5 * values


def _matern32(squares: tf.Tensor, variance: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    distance = tf.sqrt(3.0 * squares)
    decay = variance * tf.exp(-distance)
    return (1.0 + distance) * decay, -1.5 * decay


def _matern52(squares: tf.Tensor, variance: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    distance = tf.sqrt(5.0 * squares)
    decay = variance * tf.exp(-distance)
    linear = (1.0 + distance) * decay
    return linear + (5.0 / 3.0) * squares * decay, (-5.0 / 6.0) * linear


_PROFILES: dict[type, Profile] = {
    SquaredExponential: _squared_exponential,
    Matern32: _matern32,
    Matern52: _matern52,
}
