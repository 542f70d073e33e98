"""Covariances whose accuracy does not depend on the origin of the inputs."""

# |x|^2 - 2 x z + |z|^2 loses all digits far from the origin, so a point of the data is subtracted
# first: never one of other inputs of a call, which may be anywhere. The data are the first inputs
# of every function that centres: the training inputs, or the inducing points.

from __future__ import annotations

__all__ = ["centred", "covariance", "is_centred", "middle_row"]

import functools
import operator

import tensorflow as tf
from gpflow.kernels import (
    Constant,
    Cosine,
    Exponential,
    Kernel,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    Product,
    RationalQuadratic,
    SquaredExponential,
    Sum,
    White,
)

_STATIONARY = {
    Constant,
    Cosine,
    Exponential,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    RationalQuadratic,
    SquaredExponential,
    White,
}
"""Derived classes are not looked up, because they may read more than differences of inputs."""
_COMBINED = {Sum: operator.add, Product: operator.mul}


def is_centred(kernel: Kernel) -> bool:
    """True for kernels that `covariance` computes from centred inputs, at least in a part."""
    return type(kernel) in _STATIONARY or type(kernel) in _COMBINED


def middle_row(X: tf.Tensor) -> tf.Tensor:
    """A point [..., 1, D] amid rows [..., N, D], also where one of them is far away; no gradient.

    The median of three rows for each column; zeros without rows.
    """
    # a mean would be far from all rows then, and overflow for inputs of order 1e308
    half = (tf.shape(X)[-2] if X.shape[-2] is None else X.shape[-2]) // 2
    first, middle, last = X[..., :1, :], X[..., half : half + 1, :], X[..., -1:, :]
    low, high = tf.minimum(first, middle), tf.maximum(first, middle)
    median = tf.maximum(low, tf.minimum(high, last))
    return tf.stop_gradient(tf.reduce_sum(median, axis=-2, keepdims=True))


def centred(X: tf.Tensor, Z: tf.Tensor | None) -> tuple[tf.Tensor, tf.Tensor | None]:
    """Subtract the middle row of the data X [..., N, D] from them and from inputs Z [..., M, D]."""
    origin = middle_row(X)
    if Z is not None and origin.shape.rank != 2:  # each of several batches meets all other rows
        return X, Z
    return X - origin, None if Z is None else Z - origin


def covariance(kernel: Kernel, X: tf.Tensor, Z: tf.Tensor | None = None) -> tf.Tensor:
    """k(X, Z) [N, M], or k(X, X), for the data X [..., N, D] and inputs Z [M, D], both centred."""
    # Parts of sums and products that are not stationary get the inputs unchanged.
    if type(kernel) in _COMBINED:
        parts = (covariance(part, X, Z) for part in kernel.kernels)
        return functools.reduce(_COMBINED[type(kernel)], parts)
    if type(kernel) not in _STATIONARY:
        return kernel(X, Z)
    return kernel(*centred(X, Z))
