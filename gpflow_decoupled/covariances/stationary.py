"""Gram matrices of GPflow's smooth stationary kernels with their gradient written out.

Differentiated operation by operation (distance, root, exponential, product), TensorFlow's gradient reads and writes the whole
matrix some thirty times. Written out it needs k and dk/dr2 of `profiles.py`, which share their exponential, and two products
of the matrix with D columns.
"""

from __future__ import annotations

__all__ = ["stationary_gram"]

import tensorflow as tf
from gpflow.kernels import Kernel

from .profiles import PROFILES, Profile, augmented_columns, augmented_rows


def stationary_gram(kernel: Kernel, Z: tf.Tensor, X: tf.Tensor | None = None) -> tf.Tensor | None:
    """k(Z, X) [M, N] for Z [M, D] and X [N, D] (or Z itself), or None for kernels that have no profile; N M."""
    profile = PROFILES.get(type(kernel))
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
    """Squared distances [M, N]; exactly zero on the diagonal where both are the same."""
    squares = tf.maximum(tf.matmul(augmented_rows(left), augmented_columns(right), transpose_b=True), 0.0)
    return tf.linalg.set_diag(squares, tf.zeros_like(left[:, 0])) if same else squares
