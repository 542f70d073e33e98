"""Gram matrices of GPflow's smooth stationary kernels with a hand-written gradient."""

from __future__ import annotations

__all__ = [
    "ArrayGram", "Gradients", "ISOTROPIC", "PROFILES", "Profile", "Values", "active_columns",
    "array_gram", "augmented_columns", "augmented_rows", "centred", "covariance", "is_centred",
    "middle_row", "profile_of", "reads_scaled_inputs", "stationary_gram", "stationary_gram_product",
    "stationary_norm", "within_reach",
]  # fmt: skip

import functools
import operator
from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.kernels import (
    ChangePoints,
    Constant,
    Cosine,
    Exponential,
    Kernel,
    Linear,
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

from .mixed import MIXED, between_levels, code_columns, radial, without_codes

# ---
# GPflow's smooth stationary kernels as functions of the squared distance.


# k = variance f(r2) with r2 = |x - z|^2 of scaled inputs.
#
# | kernel | k / variance | (dk/dr2) / variance |
# |---|---|---|
# | SquaredExponential | e^(-r2/2) | -1/2 e^(-r2/2) |
# | Matern32, s = sqrt(3 r2) | (1 + s) e^-s | -3/2 e^-s |
# | Matern52, s = sqrt(5 r2) | (1 + s + s^2/3) e^-s | -5/6 (1 + s) e^-s |
#
# Matern12 has none: its slope at zero depends on rounding of distances.


Profile = Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
"""(squared distances [M, N], variance []) -> k and dk/dr2, both [M, N]."""


def augmented_rows(left: tf.Tensor) -> tf.Tensor:
    """(-2 a, |a|^2, 1) [M, D + 2] for a [M, D]; times `augmented_columns` it gives |a - b|^2."""
    norm = tf.reduce_sum(tf.square(left), axis=-1, keepdims=True)
    return tf.concat([-2.0 * left, norm, tf.ones_like(norm)], axis=1)


def augmented_columns(right: tf.Tensor) -> tf.Tensor:
    """(b, 1, |b|^2) [N, D + 2] for inputs b [N, D]; see `augmented_rows`."""
    norm = tf.reduce_sum(tf.square(right), axis=-1, keepdims=True)
    return tf.concat([right, tf.ones_like(norm), norm], axis=1)


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


PROFILES: dict[type, Profile] = {
    SquaredExponential: _squared_exponential,
    Matern32: _matern32,
    Matern52: _matern52,
}
"""The kernels of the table. Subclasses are not looked up: they may override the kernel."""


def profile_of(kernel: Kernel) -> Profile | None:
    """The profile of a kernel, over categories too, where `between_levels` adds to r2."""
    return PROFILES.get(radial(kernel))


# ---
# Covariances whose accuracy does not depend on the origin of the inputs.


# |x|^2 - 2 x z + |z|^2 loses all digits far from the origin, so a point of the data is subtracted
# first: never one of other inputs of a call, which may be anywhere. The data are the first inputs
# of every function that centres: the training inputs, or the inducing points.


_DECAYING = {Exponential, Matern12, Matern32, Matern52, SquaredExponential, *MIXED.values()}
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
    if type(kernel) in MIXED.values():  # codes are never scaled
        return True
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


# ---


# TensorFlow's passes over the matrix some thirty times; this one needs k and dk/dr2, and two
# products with D columns.


_ROWS, _MOST = 256, 8
"""Rows of a block, which stays in the processor's cache, and most blocks along a side: each adds
operations to the graph."""


def stationary_gram(kernel: Kernel, X: tf.Tensor, Z: tf.Tensor | None = None) -> tf.Tensor | None:
    """k(X, Z) [N, M], or None for kernels without a profile.

    :param X: the data [N, D], see `centred`.
    :param Z: inputs [M, D]; None for X.
    """
    profile, same = profile_of(kernel), Z is None
    if profile is None:
        return None

    @tf.custom_gradient
    def run(variance: tf.Tensor, left: tf.Tensor, right: tf.Tensor, *levels: tf.Tensor) -> tuple:
        squares = tf.add_n([_square_distances(left, right, same), *levels])
        values, slopes = profile(squares, variance)

        def grad(upstream: tf.Tensor) -> tuple:
            weights, total = upstream * slopes, tf.reduce_sum(upstream * values)
            to_left = tf.reduce_sum(weights, axis=1)[:, None] * left - tf.matmul(weights, right)
            to_right = tf.reduce_sum(weights, axis=0)[:, None] * right - tf.matmul(
                weights, left, transpose_a=True
            )
            return total / variance, 2.0 * to_left, 2.0 * to_right, *(weights for _ in levels)

        return values, grad

    levels = between_levels(kernel, *kernel.slice(X, Z))
    return run(tf.convert_to_tensor(kernel.variance), *_scaled(kernel, X, Z), *levels)


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
    active = kernel.slice(X, Z)
    X, Z = centred(*(one if one is None else without_codes(kernel, one) for one in active))
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


# ---
# Gram matrices of arrays with gradients, without a graph.


# For few rows a compiled graph costs more to trace than all its calls; and operations on Parameters
# one by one cost more than those on matrices.


Values: TypeAlias = Callable[[Parameter], np.ndarray]
"""The value of a Parameter."""
Gradients: TypeAlias = list[tuple[Parameter, np.ndarray]]
"""By Parameters, at their values; one may come several times, and the sum counts."""
Back: TypeAlias = Callable[[np.ndarray], Gradients]
"""From the gradient [N, N], symmetric, by the Gram matrix."""
ArrayGram: TypeAlias = Callable[[Values], tuple[np.ndarray, Back]]
"""Values -> k(X, X) [N, N] and its gradients."""


def array_gram(kernel: Kernel, X: np.ndarray) -> ArrayGram | None:
    """Return k(X, X) as a function of the Parameters' values; None for unknown kernels.

    Known: `PROFILES`, over categories too, `Constant`, `White`, `Linear`, sums and products.

    :param kernel: its Parameters are keys, their values are not read.
    :param X: inputs [N, D].
    """
    kind = type(kernel)
    if kind in (Sum, Product):
        parts = [array_gram(part, X) for part in kernel.kernels]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        return _sum(known) if kind is Sum else _product(known)
    if profile_of(kernel) is not None:
        return _stationary(kernel, np.asarray(kernel.slice(X)[0]))
    if kind is Linear:
        return _linear(kernel, np.asarray(kernel.slice(X)[0]))
    if kind in (Constant, White):
        return _static(kernel, np.eye(len(X)) if kind is White else np.ones((len(X), len(X))))
    return None


def _stationary(kernel: Stationary, X: np.ndarray) -> ArrayGram:
    profile, numbers = PROFILES[radial(kernel)], np.asarray(without_codes(kernel, X))
    centred, places = numbers - np.median(numbers, axis=0), code_columns(kernel)
    differ = [X[:, place, None] != X[:, place] for place in places]

    def evaluate(values: Values) -> tuple[np.ndarray, Back]:
        variance, lengths = values(kernel.variance), values(kernel.lengthscales)
        scaled = centred / lengths
        norms = np.sum(np.square(scaled), axis=1)
        squares = np.maximum(norms[:, None] + norms - 2.0 * scaled @ scaled.T, 0.0)
        np.fill_diagonal(squares, 0.0)
        each = 2.0 / np.square(np.broadcast_to(lengths, X.shape[1:])[places])
        for square, differs in zip(each, differ):
            squares += square * differs
        K, slopes = (part.numpy() for part in profile(tf.constant(squares), tf.constant(variance)))

        def back(upstream: np.ndarray) -> Gradients:
            weights = upstream * slopes
            # sum_ij w_ij (x_i - x_j)^2 of scaled columns, [D]
            moments = 2.0 * np.sum(weights, axis=1) @ np.square(scaled)
            moments -= 2.0 * np.sum(scaled * (weights @ scaled), axis=0)
            moments[places] += [s * np.vdot(weights, d) for s, d in zip(each, differ)]
            moments = moments if lengths.ndim else np.sum(moments)
            of_variance = np.vdot(upstream, K) / variance
            return [(kernel.variance, of_variance), (kernel.lengthscales, -2.0 * moments / lengths)]

        return K, back

    return evaluate


def _static(kernel: Kernel, ones: np.ndarray) -> ArrayGram:
    def evaluate(values: Values) -> tuple[np.ndarray, Back]:
        K = values(kernel.variance) * ones
        return K, lambda upstream: [(kernel.variance, np.asarray(np.vdot(upstream, ones)))]

    return evaluate


def _linear(kernel: Linear, X: np.ndarray) -> ArrayGram:
    def evaluate(values: Values) -> tuple[np.ndarray, Back]:
        variance = values(kernel.variance)

        def back(upstream: np.ndarray) -> Gradients:
            found = np.sum(X * (upstream @ X), axis=0)
            return [(kernel.variance, found if variance.ndim else np.sum(found))]

        return (X * variance) @ X.T, back

    return evaluate


def _sum(parts: list[ArrayGram]) -> ArrayGram:
    def evaluate(values: Values) -> tuple[np.ndarray, Back]:
        grams, backs = zip(*(part(values) for part in parts))
        return sum(grams[1:], grams[0]), lambda upstream: [
            one for back in backs for one in back(upstream)
        ]

    return evaluate


def _product(parts: list[ArrayGram]) -> ArrayGram:
    def evaluate(values: Values) -> tuple[np.ndarray, Back]:
        grams, backs = zip(*(part(values) for part in parts))

        def back(upstream: np.ndarray) -> Gradients:
            found: Gradients = []
            for place, one in enumerate(backs):
                others = [gram for other, gram in enumerate(grams) if other != place]
                found += one(np.prod(others, axis=0) * upstream)
            return found

        return np.prod(grams, axis=0), back

    return evaluate
