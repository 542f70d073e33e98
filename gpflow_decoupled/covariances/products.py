"""Products K(X, Z) V with a kernel matrix that is never stored.

The matrix is computed block by block, and only the sums that a product needs are kept. So memory is linear in N and M, and a
block stays in the processor's cache from the squared distance to the product. The gradient computes the blocks once more.

1. `kernel_product` chooses: the Gram matrix for small problems, blocks of a profile (`profiles.py`) for the smooth stationary
   kernels, and strips (`strips.py`) for every other kernel.
2. `_block` is what one block adds to the sums, in the product and in its gradient.
3. `_sums` runs the loop of `blocks.py` over all blocks: compiled with XLA, in chunks and in threads where it is executed
   eagerly, and as a loop of the graph inside a `tf.function`.
"""

from __future__ import annotations

__all__ = ["gram_product", "kernel_product"]

import functools
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf
from gpflow.covariances import Kuf, Kuu
from gpflow.inducing_variables import InducingPoints, InducingVariables
from gpflow.kernels import Kernel

from ..errors import DataError
from .blocks import Chunk, chunks, in_chunks, number_of_threads, split, sweep, unsplit, xla_works
from .latents import split_latents
from .profiles import PROFILES, Profile, augmented_columns, augmented_rows
from .stationary import stationary_gram
from .strips import strip_product

_SMALL = 1_000_000
"""Entries of a matrix that is computed faster than its blocks."""
_BLOCKS = {tf.float32: (512, 512), tf.float64: (256, 256)}
"""Rows and columns of a block, by dtype: half a megabyte, which stays in a core's cache."""

Progress = Callable[[float], None]


def kernel_product(
    kernel: Kernel,
    X: tf.Tensor,
    Z: tf.Tensor | None,
    V: tf.Tensor,
    *,
    dtype: tf.DType | None = None,
    block: tuple[int, int] | None = None,
    progress: Progress | None = None,
    xla: bool | None = None,
) -> tf.Tensor:
    """K(X, Z) V [N, R] in the dtype of V, without the matrix: N M (D + R) operations, memory (N + M) (D + R) and a block.

    It can be differentiated once, with respect to the kernel's parameters, X, Z and V; that takes about two and a half times
    as long as the product. Where it is executed eagerly, an interrupt (Ctrl-C) ends it after some tenths of a second.

    :param kernel: any kernel of GPflow. SquaredExponential, Matern32 and Matern52 have fused blocks; other kernels, sums and
        products of kernels are called on strips of rows, in their own dtype.
    :param X: [N, D].
    :param Z: [M, D], or None for X itself: then every pair of blocks is computed once, and k(x, x) is exact.
    :param V: [M, R].
    :param dtype: tf.float32 computes the blocks of a stationary kernel in float32, two to three times faster, and adds them up
        in the dtype of V; the relative error is about 1e-6. By default the dtype of X. Small matrices keep that of X.
    :param block: rows and columns of a block, with Z = None the rows alone. By default what was measured fastest, and the
        stored matrix below a million entries.
    :param progress: called with the share of the product that is done, in (0, 1], where it is executed eagerly.
    :param xla: compile the blocks with XLA. By default where it is executed eagerly and XLA is available. Inside a
        `tf.function` the default, False, gives a graph that any TensorFlow can load; True is faster there.
    :raises DataError: if the number of rows of V is not that of Z.

    Example::

        K_v = kernel_product(gpflow.kernels.Matern32(), X, None, v[:, None], dtype=tf.float32)
    """
    X, V = tf.convert_to_tensor(X), tf.convert_to_tensor(V)
    Z = None if Z is None else tf.convert_to_tensor(Z)
    right = X if Z is None else Z
    if V.shape.rank != 2 or not V.shape[:1].is_compatible_with(right.shape[:1]):
        raise DataError(
            f"V has shape {V.shape} for a kernel matrix with {right.shape[0]} columns; pass V of shape [M, R], "
            "with a row for each row of Z (of X, where Z is None)."
        )
    sizes = X.shape[0], right.shape[0]
    if block is None and None not in sizes and sizes[0] * sizes[1] <= _SMALL:
        gram = stationary_gram(kernel, X, Z)
        return tf.matmul(tf.cast(kernel(X, Z) if gram is None else gram, V.dtype), V)
    profile = PROFILES.get(type(kernel))
    if profile is None:
        rows, columns = block or _BLOCKS[tf.float64]
        return strip_product(kernel, X, Z, V, 16 * rows * columns if block is None else rows * columns, progress)
    how = _How(profile, X.dtype if dtype is None else tf.as_dtype(dtype), block, progress, xla)
    left, other = kernel.slice(X, Z)
    scaled = kernel.scale(left), *(() if other is None else (kernel.scale(other),))
    # Squared distances by products of large numbers lose digits, and the point of reference does not matter to them. It is
    # differentiated, too, so that the gradient of lengthscales is a sum over small numbers.
    centre = tf.reduce_mean(scaled[-1], axis=0)
    return _stationary(how, kernel.variance, V, *(one - centre for one in scaled))


def gram_product(
    kernel: Kernel,
    points: InducingVariables,
    X: tf.Tensor | InducingVariables | None,
    a: tf.Tensor,
    *,
    dtype: tf.DType | None = None,
    block: tuple[int, int] | None = None,
    progress: Progress | None = None,
) -> tf.Tensor:
    """k(X, points) a [N, L], one column per latent function; the matrices of plain points are not stored.

    One kernel and one set of points for all latents take one product with L columns, else there is one product per latent.

    :param kernel: of one or more latents.
    :param points: M inducing variables. Those that are not plain points fall back to GPflow's covariance [M, N].
    :param X: [N, D], or N inducing points, or None for `points` themselves.
    :param a: [M, L].
    :param dtype: as of `kernel_product`, and so are `block` and `progress`.
    :raises NotImplementedError: where GPflow has no covariance, between two inducing variables that are not plain points.

    Example::

        mean = gram_product(kernel, gamma, X, a_gamma)
    """
    variables = (points, X) if isinstance(X, InducingVariables) else (points,)
    latents = split_latents(kernel, *variables)
    columns = [a] if len(latents) == 1 else tf.split(a, len(latents), axis=1)
    results = []
    for index, ((one, left, *right), column) in enumerate(zip(latents, columns)):
        other = right[0] if right else X
        report = None if progress is None else functools.partial(_share, progress, index, len(latents))
        if type(left) is InducingPoints and (other is None or _plain(other) is not None):
            rows, Z = (tf.convert_to_tensor(left.Z), None) if other is None else (_plain(other), left.Z)
            results.append(kernel_product(one, rows, Z, column, dtype=dtype, block=block, progress=report))
        else:
            results.append(tf.matmul(_stored(one, left, other), column))
    return tf.concat(results, axis=1)


def _share(progress: Progress, index: int, count: int, share: float) -> None:
    progress((index + share) / count)


def _plain(X: tf.Tensor | InducingVariables) -> tf.Tensor | None:
    """The points [N, D], or None for inducing variables that are more than points."""
    if isinstance(X, InducingVariables):
        return tf.convert_to_tensor(X.Z) if type(X) is InducingPoints else None
    return tf.convert_to_tensor(X)


def _stored(kernel: Kernel, points: InducingVariables, X: tf.Tensor | InducingVariables | None) -> tf.Tensor:
    """k(X, points) [N, M] by GPflow's dispatch."""
    if X is None:
        return Kuu(points, kernel)
    plain = _plain(X)
    if plain is not None:
        return tf.linalg.matrix_transpose(Kuf(points, kernel, plain))
    if type(points) is InducingPoints:
        return Kuf(X, kernel, points.Z)
    raise NotImplementedError(
        f"GPflow has no covariance between {type(X).__name__} and {type(points).__name__}; make one of them plain points."
    )


class _How(NamedTuple):
    """How the blocks of a product are computed."""

    profile: Profile
    dtype: tf.DType
    block: tuple[int, int] | None
    progress: Progress | None
    xla: bool | None


class _Task(NamedTuple):
    """What is constant in a compiled loop."""

    profile: Profile
    inputs: int
    """D"""
    backward: bool
    same: bool
    right: int
    """R"""
    dtype: tf.DType
    """of the sums"""

    @property
    def widths(self) -> tuple[int, int]:
        """Columns of the sums of rows and of columns."""
        if not self.backward:
            return self.right, self.right if self.same else 0
        return self.inputs + 1 + (self.right if self.same else 0), self.inputs + 2 + self.right


def _stationary(how: _How, variance: tf.Tensor, V: tf.Tensor, *scaled: tf.Tensor) -> tf.Tensor:
    """variance * f(|x_i - z_j|^2) V for scaled and centred inputs (x [N, D], z [M, D]), or (x,) for both."""
    same, R = len(scaled) == 1, V.shape[1]

    @tf.custom_gradient
    def run(variance: tf.Tensor, V: tf.Tensor, *scaled: tf.Tensor) -> tuple:
        left, right = (tf.cast(one, how.dtype) for one in (scaled[0], scaled[-1]))
        D, rows, columns = left.shape[1], augmented_rows(left), augmented_columns(right)
        task = _Task(how.profile, D, False, same, max(R, 2) if same else R, V.dtype)
        wide = _widened(tf.cast(V, how.dtype), task.right)
        value, other = _sums(
            how, task, variance, tf.concat([rows, wide], 1) if same else rows, tf.concat([columns, wide], 1)
        )
        value = (value + other if same else value)[:, :R]

        def grad(upstream: tf.Tensor) -> tuple:
            task = _Task(how.profile, D, True, same, max(R, 2), V.dtype)
            U, W = (_widened(tf.cast(one, how.dtype), task.right) for one in (upstream, V))
            both = [rows, U, W], [columns, W, U]
            to_row, to_column = _sums(how, task, variance, *(tf.concat(part if same else part[:2], 1) for part in both))
            # sum_j w_ij (x_i - z_j), w = (dk/dr2) U V^T, from sum_j w_ij z_j and sum_j w_ij; and for z from -2 sum_i w_ij x_i
            to_V = to_column[:, D + 2 : D + 2 + R]
            means, totals = to_row[:, :D], to_row[:, D : D + 1]
            other_means, other_totals = -0.5 * to_column[:, :D], to_column[:, D + 1 : D + 2]
            if same:
                to_V = to_V + to_row[:, D + 1 : D + 1 + R]
                pairs = [(left, means + other_means, totals + other_totals)]
            else:
                pairs = [(left, means, totals), (right, other_means, other_totals)]
            to_inputs = [
                tf.cast(2.0 * (total * tf.cast(x, V.dtype) - mean), scaled[0].dtype) for x, mean, total in pairs
            ]
            to_variance = tf.cast(tf.reduce_sum(upstream * value), variance.dtype) / variance
            return to_variance, to_V, *to_inputs

        return value, grad

    return run(tf.convert_to_tensor(variance), V, *scaled)


def _widened(V: tf.Tensor, columns: int) -> tf.Tensor:
    """V with columns of zeros up to so many. XLA's product of one column and a matrix is slower than that of two."""
    return tf.pad(V, [[0, 0], [0, columns - V.shape[1]]])


def _block(
    task: _Task, variance: tf.Tensor, row: tf.Tensor, turned: tf.Tensor, column: tf.Tensor, diagonal: bool
) -> tuple:
    """What one block adds to its rows [B, p] and its columns [q, C].

    `row` has (-2 x, |x|^2, 1, U, V) and `column` (z, 1, |z|^2, V, U); the last only where both are the same points, and no U
    in the product itself; `turned` is the transpose of `row`.
    """
    A, R = task.inputs + 2, task.right
    squares = tf.maximum(tf.matmul(row[:, :A], column[:, :A], transpose_b=True), 0.0)
    if diagonal:
        squares = tf.linalg.set_diag(squares, tf.zeros_like(row[:, 0]))
    values, slopes = task.profile(squares, variance)
    if not task.backward:
        return tf.matmul(values, column[:, A:]), tf.matmul(turned[A:], values) if task.same else None
    weights = slopes * tf.matmul(row[:, A:], column[:, A:], transpose_b=True)
    to_row = [tf.matmul(weights, column[:, : A - 1])]
    if task.same:
        to_row.append(tf.matmul(values, column[:, A + R :]))
    to_column = [tf.matmul(turned[:A], weights), tf.matmul(turned[A : A + R], values)]
    return tf.concat(to_row, 1), tf.concat(to_column, 0)


def _loop(task: _Task, variance: tf.Tensor, rows: tf.Tensor, columns: tf.Tensor, *bounds: tf.Tensor) -> tuple:
    visit = functools.partial(_block, task, variance)
    return sweep(visit, rows, columns, bounds, task.same, task.widths, task.dtype)


@functools.cache
def _compiled(task: _Task, xla: bool) -> tf.types.experimental.PolymorphicFunction:
    return tf.function(functools.partial(_loop, task), jit_compile=xla, autograph=False)


def _sums(
    how: _How, task: _Task, variance: tf.Tensor, rows: tf.Tensor, columns: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The sums over all blocks, [N, p] and [M, q], for the data of rows [N, P] and of columns [M, Q]."""
    variance = tf.cast(variance, how.dtype)
    if tf.executing_eagerly():
        return _eager_sums(how, task, variance, rows, columns)
    counts, data = zip(*(split(one, size) for one, size in zip((rows, columns), _sizes(how, task))))
    loop = _compiled(task, True) if how.xla else functools.partial(_loop, task)
    found = loop(variance, *data, tf.zeros([], tf.int32), *counts)
    return unsplit(found[0], tf.shape(rows)[0]), unsplit(found[1], tf.shape(columns)[0])


def _eager_sums(
    how: _How, task: _Task, variance: tf.Tensor, rows: tf.Tensor, columns: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The same, in chunks; what a chunk computes is not recorded for a gradient."""
    xla, sizes = xla_works() if how.xla is None else how.xla, _sizes(how, task)
    loop = _compiled(task, xla)

    @tf.custom_gradient
    def run(*inputs: tf.Tensor) -> tuple:
        variance, *arrays = (tf.stop_gradient(one) for one in inputs)
        (N, rows), (M, columns) = (split(one, size, roomy=xla) for one, size in zip(arrays, sizes))

        def run_chunk(chunk: Chunk) -> tuple[tf.Tensor, tf.Tensor]:
            return loop(variance, rows, columns, tf.constant(chunk.first), tf.constant(chunk.last), M)

        found = in_chunks(run_chunk, chunks(int(N), int(M), sizes, task.same), how.progress, number_of_threads())

        def grad(*_: tf.Tensor) -> tuple:
            raise NotImplementedError(
                "kernel_product can be differentiated once; for more, use the stored kernel matrix."
            )

        return tuple(unsplit(one, of.shape[0]) for one, of in zip(found, arrays)), grad

    return run(variance, rows, columns)


def _sizes(how: _How, task: _Task) -> tuple[int, int]:
    """Rows and columns of a block, which is square where both are the same points."""
    B, C = how.block or _BLOCKS[how.dtype]
    return B, B if task.same else C
