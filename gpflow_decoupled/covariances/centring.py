"""Covariances whose accuracy does not depend on the origin of the inputs."""

# |x|^2 - 2 x z + |z|^2 loses all digits far from the origin, so a point of the data is subtracted
# first.

from __future__ import annotations

__all__ = ["centred", "covariance", "is_centred"]

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


def centred(X: tf.Tensor, Z: tf.Tensor | None) -> tuple[tf.Tensor, tf.Tensor | None]:
    """Subtract the first row of Z (or X if Z is None) from X [..., N, D] and Z [..., M, D]."""
    # A mean would overflow for inputs of order 1e308.
    of = X if Z is None else Z
    origin = tf.stop_gradient(tf.reduce_sum(of[..., :1, :], axis=-2, keepdims=True))
    if Z is not None and origin.shape.rank != 2:  # each of several batches of X meets all of Z
        return X, Z
    return X - origin, None if Z is None else Z - origin


def covariance(kernel: Kernel, X: tf.Tensor, Z: tf.Tensor | None = None) -> tf.Tensor:
    """k(X, Z) [N, M], or k(X, X), for X [..., N, D] and Z [M, D], from centred inputs."""
    # Parts of sums and products that are not stationary get the inputs unchanged.
    if type(kernel) in _COMBINED:
        parts = (covariance(part, X, Z) for part in kernel.kernels)
        return functools.reduce(_COMBINED[type(kernel)], parts)
    return kernel(*centred(X, Z)) if type(kernel) in _STATIONARY else kernel(X, Z)
