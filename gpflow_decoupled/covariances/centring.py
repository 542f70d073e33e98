"""Covariances whose accuracy does not depend on the origin of the inputs."""

# |x|^2 - 2 x z + |z|^2 loses all digits far from the origin, so a point of the data is subtracted
# first: never one of other inputs of a call, which may be anywhere. The data are the first inputs
# of every function that centres: the training inputs, or the inducing points.

from __future__ import annotations

__all__ = [
    "ISOTROPIC", "active_columns", "centred", "covariance", "is_centred", "middle_row",
    "reads_scaled_inputs", "within_reach",
]  # fmt: skip

import functools
import operator
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from gpflow.kernels import (
    ChangePoints,
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
    Stationary,
    Sum,
    White,
)
from gpflow.kernels.categorical import Categorical

_DECAYING = {Exponential, Matern12, Matern32, Matern52, SquaredExponential}
"""Whose covariance is zero in floats beyond a thousand lengthscales."""
ISOTROPIC = {*_DECAYING, RationalQuadratic}
"""They fall with the distance of inputs divided by lengthscales. Here and below derived classes are
not looked up: they may have another distance, or read more than differences of inputs."""
_STATIONARY = {*ISOTROPIC, Constant, Cosine, Periodic, White}
_REACH = {tf.float64: 1e77, tf.float32: 1e16}
"""Lengthscales, whose square and cube no arithmetic loses."""
_COMBINED = {Sum: operator.add, Product: operator.mul}


def reads_scaled_inputs(kernel: Kernel) -> bool:
    """True for a stationary kernel of inputs divided by lengthscales, in the units of its columns.

    False for a derived class with another distance, on a sphere say.
    """
    if not isinstance(kernel, Stationary):
        return False
    theirs = next(one for one in type(kernel).__mro__ if one.__module__.startswith("gpflow."))
    distances = "scaled_squared_euclid_dist", "scaled_difference_matrix"
    return all(
        getattr(type(kernel), one, None) is getattr(theirs, one, None)
        for one in ("__call__", "K", "scale", "slice", *distances)
    )


def is_centred(kernel: Kernel) -> bool:
    """True for kernels that `covariance` computes from centred inputs, at least in a part."""
    return type(kernel) in {*_STATIONARY, *_COMBINED, ChangePoints, Categorical}


def active_columns(kernel: Kernel, num_dims: int) -> tuple[int, ...]:
    """The columns of inputs of which a kernel is a function, or more."""
    if type(kernel) in _COMBINED:
        parts = [part for part in kernel.kernels if type(part) not in (Constant, White)]
        return tuple(sorted({one for part in parts for one in active_columns(part, num_dims)}))
    dims = kernel.active_dims
    return tuple(range(num_dims)[dims] if isinstance(dims, slice) else map(int, dims))


def middle_row(X: tf.Tensor) -> tf.Tensor:
    """A point [..., 1, D] amid rows [..., N, D], also where one is far away; no gradient."""
    # the median of three rows for each column, zeros without rows;
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


def within_reach(kernel: Kernel, X: tf.Tensor) -> tf.Tensor:
    """Move inputs X [..., D] that are too far for squares of distances to where those are known.

    Both are so far from all data that their covariance with them is zero, but between such inputs
    it may be another. Columns that other kernels read too stay.
    """
    if X.shape[-1] is None:
        return X
    D = int(X.shape[-1])
    limits, others = tf.fill([D], tf.constant(np.inf, X.dtype)), set[int]()
    for part in _leaves(kernel):
        dims = part.active_dims
        columns = list(range(D)[dims] if isinstance(dims, slice) else map(int, dims))
        if type(part) in _DECAYING:
            reach = _REACH[X.dtype] * tf.cast(part.lengthscales, X.dtype)
            reach = tf.broadcast_to(tf.stop_gradient(reach), [len(columns)])
            limits = tf.tensor_scatter_nd_min(limits, [[one] for one in columns], reach)
        elif type(part) not in (Constant, White):
            others.update(columns)
    if len(others) == D:
        return X
    stay = tf.constant([column in others for column in range(D)])
    limits = tf.where(stay, tf.constant(np.inf, X.dtype), limits)
    return tf.clip_by_value(X, -limits, limits)


def _leaves(kernel: Kernel) -> Iterator[Kernel]:
    parts = kernel.kernels if hasattr(kernel, "kernels") else getattr(kernel, "latent_kernels", ())
    for part in parts if type(kernel) not in (ChangePoints, Categorical) else ():
        yield from _leaves(part)
    if not parts or type(kernel) in (ChangePoints, Categorical):
        yield kernel


def covariance(kernel: Kernel, X: tf.Tensor, Z: tf.Tensor | None = None) -> tf.Tensor:
    """k(X, Z) [N, M], or k(X, X), for the data X [..., N, D] and inputs Z [M, D], both centred."""
    # Parts of sums and products that are not stationary get the inputs unchanged.
    if type(kernel) in _COMBINED:
        parts = (covariance(part, X, Z) for part in kernel.kernels)
        return functools.reduce(_COMBINED[type(kernel)], parts)
    if type(kernel) is ChangePoints and X.shape[-1] == 1:
        return _between_changes(kernel, X, Z)
    if type(kernel) is Categorical:
        inside = kernel.wrapped_kernel
        if all(type(part) in _STATIONARY for part in inside.kernels):
            labelled = (x if x is None else _labelled(kernel, x) for x in kernel.slice(X, Z))
            # by K, as GPflow does: both kernels read all columns, whatever their active_dims
            return inside.K(*centred(*labelled))
    if type(kernel) not in _STATIONARY:
        return kernel(X, Z)
    return kernel(*centred(X, Z))


def _between_changes(kernel: ChangePoints, X: tf.Tensor, Z: tf.Tensor | None) -> tf.Tensor:
    left = _shares(kernel, X)
    right = left if Z is None else _shares(kernel, Z)
    total = 0.0
    for i, part in enumerate(kernel.kernels):
        K = covariance(part, X, Z)
        total += left[..., :, i, None] * K * right[..., None, :, i]
    return total


def _shares(kernel: ChangePoints, X: tf.Tensor) -> tf.Tensor:
    begun = tf.sigmoid(kernel.steepness * (X - tf.sort(kernel.locations)))
    ones = tf.ones_like(begun[..., :1])
    return tf.concat([ones, begun], axis=-1) * tf.concat([1.0 - begun, ones], axis=-1)


def _labelled(kernel: Categorical, X: tf.Tensor) -> tf.Tensor:
    X = tf.convert_to_tensor(X)
    values = tf.gather(tf.convert_to_tensor(kernel.Z), tf.cast(X[..., -1], tf.int32))
    return tf.concat([X[..., :-1], values], axis=-1)
