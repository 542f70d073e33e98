"""Gram matrices of GPflow's smooth stationary kernels with a hand-written gradient."""

# TensorFlow's passes over the matrix some thirty times; this one needs k and dk/dr2, and two
# products with D columns.

from __future__ import annotations

__all__ = ["stationary_gram", "stationary_gram_product", "stationary_norm"]

import tensorflow as tf
from gpflow.kernels import Kernel

from .centring import centred
from .profiles import PROFILES, Profile, augmented_columns, augmented_rows

_ROWS, _MOST = 256, 8
"""Rows of a block, which stays in the processor's cache, and most blocks along a side: each adds
operations to the graph."""


def stationary_gram(kernel: Kernel, X: tf.Tensor, Z: tf.Tensor | None = None) -> tf.Tensor | None:
    """k(X, Z) [N, M], or None for kernels without a profile.

    :param X: the data [N, D], see `centred`.
    :param Z: inputs [M, D]; None for X.
    """
    profile, same = PROFILES.get(type(kernel)), Z is None
    if profile is None:
        return None

    @tf.custom_gradient
    def run(variance: tf.Tensor, left: tf.Tensor, right: tf.Tensor) -> tuple:
        values, slopes = profile(_square_distances(left, right, same), variance)

        def grad(upstream: tf.Tensor) -> tuple:
            weights, total = upstream * slopes, tf.reduce_sum(upstream * values)
            to_left = tf.reduce_sum(weights, axis=1)[:, None] * left - tf.matmul(weights, right)
            to_right = tf.reduce_sum(weights, axis=0)[:, None] * right - tf.matmul(
                weights, left, transpose_a=True
            )
            return total / variance, 2.0 * to_left, 2.0 * to_right

        return values, grad

    return run(tf.convert_to_tensor(kernel.variance), *_scaled(kernel, X, Z))


def stationary_gram_product(
    kernel: Kernel, X: tf.Tensor, a: tf.Tensor, Z: tf.Tensor | None = None
) -> tf.Tensor | None:
    """k(Z, X) a [M, 1], or None for kernels without a profile.

    :param X: the data [N, D], see `centred`.
    :param a: [N, 1].
    :param Z: inputs [M, D]; None for X.
    """
    # Takes four fifths of the time of `stationary_gram` and a product, gradient included.
    profile, same = PROFILES.get(type(kernel)), Z is None
    if profile is None:
        return None

    @tf.custom_gradient
    def run(variance: tf.Tensor, a: tf.Tensor, left: tf.Tensor, right: tf.Tensor) -> tuple:
        values, slopes = profile(_square_distances(left, right, same), variance)
        product = tf.matmul(values, a)

        def grad(upstream: tf.Tensor) -> tuple:
            # sum_j w_ij (l_i - r_j), w_ij = u_i (dk/dr2)_ij a_j, from two thin products; and for r
            # likewise
            of_right = tf.matmul(slopes, tf.concat([a, a * right], axis=1))
            of_left = tf.matmul(
                slopes, tf.concat([upstream, upstream * left], axis=1), transpose_a=True
            )
            to_left = 2.0 * upstream * (of_right[:, :1] * left - of_right[:, 1:])
            to_right = 2.0 * a * (of_left[:, :1] * right - of_left[:, 1:])
            to_a = tf.matmul(values, upstream, transpose_a=True)
            return tf.reduce_sum(upstream * product) / variance, to_a, to_left, to_right

        return product, grad

    right, left = _scaled(kernel, X, Z)
    return run(tf.convert_to_tensor(kernel.variance), a, left, right)


def stationary_norm(kernel: Kernel, Z: tf.Tensor, a: tf.Tensor) -> tf.Tensor | None:
    """a^T k(Z, Z) a for Z [M, D] and a [M, 1]; None without a profile, or if M is unknown or 0.

    One sweep over the blocks above the diagonal gives value and gradient, in half of the time of
    `stationary_gram_product`.
    """
    profile = PROFILES.get(type(kernel))
    if profile is None or not Z.shape[0]:
        return None

    @tf.custom_gradient
    def run(variance: tf.Tensor, a: tf.Tensor, inputs: tf.Tensor) -> tuple:
        product, of_slopes = _symmetric_products(profile, variance, a, inputs)
        value = tf.reduce_sum(a * product)

        def grad(upstream: tf.Tensor) -> tuple:
            # sum_j w_ij (x_i - x_j) with w_ij = a_i (dk/dr2)_ij a_j; each x stands in a row and a
            # column
            to_inputs = 4.0 * upstream * a * (of_slopes[:, :1] * inputs - of_slopes[:, 1:])
            return upstream * value / variance, 2.0 * upstream * product, to_inputs

        return value, grad

    return run(tf.convert_to_tensor(kernel.variance), a, _scaled(kernel, Z, None)[0])


def _scaled(kernel: Kernel, X: tf.Tensor, Z: tf.Tensor | None) -> tuple[tf.Tensor, tf.Tensor]:
    X, Z = centred(*kernel.slice(X, Z))
    # read once: to read a Parameter takes some ten calls with its gradient
    lengthscales = tf.convert_to_tensor(kernel.lengthscales)
    scaled = X / lengthscales
    return scaled, scaled if Z is None else Z / lengthscales


def _symmetric_products(
    profile: Profile, variance: tf.Tensor, a: tf.Tensor, inputs: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    M = int(inputs.shape[0])
    size = max(_ROWS, -(-M // _MOST))
    places = [slice(first, min(M, first + size)) for first in range(0, M, size)]
    rows, columns = augmented_rows(inputs), augmented_columns(inputs)
    right = tf.concat([a, a * inputs], axis=1)
    products: list[list[tf.Tensor]] = [[] for _ in places]
    of_slopes: list[list[tf.Tensor]] = [[] for _ in places]
    for i, one in enumerate(places):
        for j, other in enumerate(places[i:], start=i):
            squares = tf.maximum(tf.matmul(rows[one], columns[other], transpose_b=True), 0.0)
            if i == j:
                squares = tf.linalg.set_diag(squares, tf.zeros_like(squares[:, 0]))
            values, slopes = profile(squares, variance)
            products[i].append(tf.matmul(values, a[other]))
            of_slopes[i].append(tf.matmul(slopes, right[other]))
            if i != j:
                products[j].append(tf.matmul(values, a[one], transpose_a=True))
                of_slopes[j].append(tf.matmul(slopes, right[one], transpose_a=True))
    return tf.concat(list(map(tf.add_n, products)), 0), tf.concat(list(map(tf.add_n, of_slopes)), 0)


def _square_distances(left: tf.Tensor, right: tf.Tensor, same: bool) -> tf.Tensor:
    squares = tf.maximum(
        tf.matmul(augmented_rows(left), augmented_columns(right), transpose_b=True), 0.0
    )
    return tf.linalg.set_diag(squares, tf.zeros_like(left[:, 0])) if same else squares
