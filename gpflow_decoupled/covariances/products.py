"""Products with a kernel matrix that is never stored."""

from __future__ import annotations

__all__ = [
    "diagonal_excess", "follows_dtype", "gram_norm", "gram_product", "kernel_product",
    "strip_product",
]  # fmt: skip

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import tensorflow as tf
from gpflow.covariances import Kuf
from gpflow.inducing_variables import InducingPoints, InducingVariables
from gpflow.kernels import Kernel

from ..errors import DataError, ModelError, check_option
from ..replicas import Group
from .blocks import BLOCKS, How, stationary_product
from .latents import inducing_gram, split_latents
from .stationary import (
    PROFILES,
    centred,
    covariance,
    stationary_gram,
    stationary_gram_product,
    stationary_norm,
)

# ---
# Products with any kernel, by strips of rows.


_ALONE = Group()


class _Rows(NamedTuple):
    first: tf.Tensor | int
    last: tf.Tensor | int
    device: str | None

    def place(self) -> AbstractContextManager[object]:
        return nullcontext() if self.device is None else tf.device(self.device)


def strip_product(
    kernel: Kernel,
    X: tf.Tensor,
    Z: tf.Tensor | None,
    V: tf.Tensor,
    entries: int,
    progress: Callable[[float], None] | None = None,
    group: Group = _ALONE,
) -> tf.Tensor:
    """Return K(X, Z) V [N, R], storing at most `entries` of K (or one row) at a time.

    Differentiable once, in variables of the kernel too.

    X is [N, D], V [M, R], Z [M, D], or None for X with the exact diagonal.

    :param group: if eager, the replicas that share the rows, see `kernel_product`.
    """

    @tf.custom_gradient
    def run(X: tf.Tensor, V: tf.Tensor, *others: tf.Tensor) -> tuple:
        product = _Product(kernel, (X, V, *others), entries, progress, group)
        return product.value(), product.gradient

    return run(X, V, *(() if Z is None else (Z,)))


class _Product:
    """K(X, Z) V by strips, shared out among replicas.

    :param arrays: X [N, D], V [M, R], and Z [M, D] unless it is X.
    """

    def __init__(
        self,
        kernel: Kernel,
        arrays: tuple[tf.Tensor, ...],
        entries: int,
        progress: Callable[[float], None] | None,
        group: Group,
    ) -> None:
        self.kernel, self.arrays, self.progress, self.group = kernel, arrays, progress, group
        X, V = arrays[:2]
        self.N = tf.maximum(tf.shape(X)[0], 1)  # one strip, without rows, where there are none
        self.rows = tf.maximum(entries // tf.maximum(tf.shape(V)[0], 1), 1)
        self.own = _own_rows(group, self.N)

    def value(self) -> tf.Tensor:
        # `recompute_grad` keeps what is computed within a strip out of the tape of the caller
        unrecorded = tf.recompute_grad(lambda *given: _strip(self.kernel, *given))
        X, V = self.arrays[:2]

        def of_replica(share: _Rows) -> tf.Tensor:
            def forward(first: tf.Tensor, done: tf.TensorArray) -> tuple:
                last = tf.minimum(first + self.rows, share.last)
                strip = unrecorded(first, last, *self.arrays)
                self._report(last)
                return first + self.rows, done.write((first - share.first) // self.rows, strip)

            count = -(-(share.last - share.first) // self.rows)
            pieces = tf.TensorArray(
                V.dtype, count, element_shape=[None, V.shape[1]], infer_shape=False
            )
            return _strips(share, forward, pieces)[1].concat()

        def of_process() -> list[tf.Tensor]:
            parts = []
            for share in self.own:
                with share.place():
                    parts.append(of_replica(share))
            if self.group.replicas == 1:
                return parts
            return [
                tf.pad(
                    tf.concat(parts, axis=0),
                    [[self.own[0].first, self.N - self.own[-1].last], [0, 0]],
                )
            ]

        (result,) = self.group.summed(of_process)
        result.set_shape([X.shape[0], V.shape[1]])
        return result

    def gradient(
        self, upstream: tf.Tensor, variables: Sequence[tf.Variable] | None = None
    ) -> tuple:
        known = _in_order(self.kernel, self.group, variables or ())
        wanted = [*self.arrays, *known]

        def backward(share: _Rows, first: tf.Tensor, *sums: tf.Tensor) -> tuple:
            last = tf.minimum(first + self.rows, share.last)
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(wanted)
                strip = _strip(self.kernel, first, last, *self.arrays)
            found = tape.gradient(
                strip,
                wanted,
                upstream[first:last],
                unconnected_gradients=tf.UnconnectedGradients.ZERO,
            )
            self._report(last)
            return first + self.rows, *(total + part for total, part in zip(sums, found))

        def of_process() -> list[tf.Tensor]:
            sums = [tf.zeros_like(one) for one in wanted]
            for share in self.own:
                with share.place():
                    _, *sums = _strips(share, functools.partial(backward, share), *sums)
            return sums

        found, inputs = self.group.summed(of_process), len(self.arrays)
        if variables is None:
            return tuple(found[:inputs])
        of_variables = {one.ref(): part for one, part in zip(known, found[inputs:])}
        return tuple(found[:inputs]), [of_variables[one.ref()] for one in variables]

    def _report(self, last: tf.Tensor) -> None:
        if self.progress is not None and tf.executing_eagerly():
            first, end = self.own[0].first, self.own[-1].last
            self.progress(min(1.0, int(last - first) / int(end - first)))


def _strip(
    kernel: Kernel,
    first: tf.Tensor,
    last: tf.Tensor,
    X: tf.Tensor,
    V: tf.Tensor,
    *others: tf.Tensor,
) -> tf.Tensor:
    part = X[first:last]
    strip = covariance(kernel, others[0] if others else X, part)  # the data first, see `centred`
    product = tf.matmul(tf.cast(strip, V.dtype), V, transpose_a=True)
    if others:
        return product
    at = tf.range(tf.shape(part)[0])
    # noise kernels count here alone, and rough kernels would depend on how the distance of a point
    # to itself is rounded
    excess = kernel(part, full_cov=False) - tf.gather_nd(strip, tf.stack([first + at, at], axis=1))
    return product + tf.cast(excess, V.dtype)[:, None] * V[first:last]


def _own_rows(group: Group, N: tf.Tensor) -> list[_Rows]:
    R = group.replicas
    return [_Rows(N * number // R, N * (number + 1) // R, device) for number, device in group.own]


def _strips(rows: _Rows, body: Callable[..., tuple], *state: tf.Tensor | tf.TensorArray) -> tuple:
    return tf.while_loop(
        lambda first, *_: first < rows.last, body, (rows.first, *state), parallel_iterations=1
    )


def _in_order(kernel: Kernel, group: Group, variables: Sequence[tf.Variable]) -> list[tf.Variable]:
    """Sort variables in an order shared by all workers; TensorFlow's is by address."""
    if group.workers == 1:
        return list(variables)
    parts = [part.ref() for variable in kernel.variables for part in group.parts_of(variable)]
    if not all(variable.ref() in parts for variable in variables):
        raise ModelError(
            f"The {type(kernel).__name__} reads a variable that is not among its own, so that"
            " workers cannot add up its gradient: make it an attribute of the kernel, or leave"
            " strategy out."
        )
    return sorted(variables, key=lambda variable: parts.index(variable.ref()))


# ---


_SMALL = 1_000_000
"""Entries below which storing the matrix is faster than computing blocks."""
_STRIP = 1_000_000
"""Entries of a strip of rows."""
_LEAST_ROWS = 32
"""Least rows of a block; powers of two from here on, so that few shapes are compiled."""
_DIAGONAL = 256
"""Rows of a block when only its diagonal is needed."""


Progress = Callable[[float], None]


def kernel_product(
    kernel: Kernel,
    X: tf.Tensor,
    Z: tf.Tensor | None,
    V: tf.Tensor,
    *,
    whole: bool = False,
    dtype: tf.DType | None = None,
    block: tuple[int, int] | None = None,
    progress: Progress | None = None,
    xla: bool | None = None,
    group: Group | None = None,
) -> tf.Tensor:
    """Return K(X, Z) V [N, R] in the dtype of V without storing K.

    N M (D + R) operations and (N + M) (D + R) memory. Differentiable once, for about 2.5 times the
    cost.

    :param kernel: SquaredExponential, Matern32 and Matern52 have fused blocks, others strips of
        rows.
    :param X: [N, D].
    :param Z: [M, D], or None for X: half of the blocks, and exact k(x, x).
    :param V: [M, R].
    :param whole: store the whole matrix, in the dtype of X.
    :param dtype: tf.float32 for fused blocks two to three times faster, with a relative error of
        1e-6; sums keep the dtype of V.
    :param block: rows and columns of a block (rows only if Z is None).
    :param progress: called, if eager, with the share done in (0, 1], and again for the gradient.
    :param xla: compile the blocks with XLA; by default if eager and XLA works.
    :param group: if eager, replicas that share the matrix, with bitwise equal results; 8 N R bytes
        a product, 8 N (D + R) its gradient.
    :raises WorkerError: if another worker of the group fails or is gone.
    :raises UnknownOptionError: for a dtype other than float32 and float64.
    """
    X, V = tf.convert_to_tensor(X), tf.convert_to_tensor(V)
    Z = None if Z is None else tf.convert_to_tensor(Z)
    data, new = (X, None) if Z is None else (Z, X)
    if (
        V.shape.rank != 2
        or V.shape[1] is None
        or not V.shape[:1].is_compatible_with(data.shape[:1])
    ):
        raise DataError(
            f"V has shape {V.shape} for a kernel matrix with {data.shape[0]} columns; pass V of"
            " shape [M, R], with a row for each row of Z (of X, where Z is None)."
        )
    sizes = X.shape[0], data.shape[0]
    if whole or (block is None and None not in sizes and sizes[0] * sizes[1] <= _SMALL):
        product = None
        if V.shape[1] == 1 and V.dtype == X.dtype:
            product = stationary_gram_product(kernel, data, V, new)
        if product is None:
            gram = stationary_gram(kernel, data, new)
            gram = covariance(kernel, data, new) if gram is None else gram
            product = tf.matmul(tf.cast(gram, V.dtype), V, transpose_a=True)
        return product
    group = group if group is not None and tf.executing_eagerly() else _ALONE
    profile = PROFILES.get(type(kernel))
    if profile is None:
        entries = block[0] * block[1] if block else _STRIP
        return strip_product(kernel, X, Z, V, entries, progress, group)
    dtype = X.dtype if dtype is None else tf.as_dtype(dtype)
    check_option("dtype", dtype, BLOCKS)
    block = _long_block(X.shape[0], dtype) if block is None and Z is not None else block
    how = How(profile, dtype, block, progress, xla, group)
    # Centred before they are scaled, so that the gradient of lengthscales is a sum over small
    # numbers, too.
    right, left = centred(*kernel.slice(data, new))
    scaled = (right,) if left is None else (left, right)
    return stationary_product(how, kernel.variance, V, *map(kernel.scale, scaled))


def _long_block(rows: int | None, dtype: tf.DType) -> tuple[int, int] | None:
    """For short X, a lower and wider block than the default, because blocks are zero-padded."""
    B, C = BLOCKS[dtype]
    if rows is None or rows > B // 2:
        return None
    height = max(_LEAST_ROWS, 2 ** (max(rows, 1) - 1).bit_length())
    return height, B * C // height


def gram_product(
    kernel: Kernel,
    points: InducingVariables,
    X: tf.Tensor | InducingVariables | None,
    a: tf.Tensor,
    *,
    rows: tf.Tensor | None = None,
    whole: bool = False,
    dtype: tf.DType | None = None,
    block: tuple[int, int] | None = None,
    progress: Progress | None = None,
    xla: bool | None = None,
    group: Group | None = None,
) -> tf.Tensor:
    """Return k(X, points) a [N, L], one column per latent; stores no matrix of plain points.

    :param points: M inducing variables; other than plain points use GPflow's covariance [M, N].
    :param X: [N, D], or N inducing points, or None for `points`.
    :param rows: indices [m] into plain points X, for the rows [m, L] only.
    :raises NotImplementedError: if GPflow has no covariance between the two inducing variables.
    """
    variables = (points, X) if isinstance(X, InducingVariables) else (points,)
    latents = split_latents(kernel, *variables)
    columns = [a] if len(latents) == 1 else tf.split(a, len(latents), axis=1)
    results = []
    for index, ((one, left, *right), column) in enumerate(zip(latents, columns)):
        other = right[0] if right else X
        if rows is not None:
            other = tf.gather(_chosen_from(left if other is None else other), rows)
        report = (
            None if progress is None else functools.partial(_share, progress, index, len(latents))
        )
        if type(left) is InducingPoints and (other is None or _plain(other) is not None):
            inputs, Z = (
                (tf.convert_to_tensor(left.Z), None) if other is None else (_plain(other), left.Z)
            )
            product = kernel_product(
                one,
                inputs,
                Z,
                column,
                whole=whole,
                dtype=dtype,
                block=block,
                progress=report,
                xla=xla,
                group=group,
            )
            results.append(product)
        else:
            results.append(tf.matmul(_stored(one, left, other), column))
    return tf.concat(results, axis=1)


def gram_norm(kernel: Kernel, points: InducingVariables, a: tf.Tensor) -> tf.Tensor:
    """Return sum_l a_l^T k(points, points) a_l, a scalar, for a [M, L]; M^2 for each kernel."""
    latents = split_latents(kernel, points)
    if len(latents) == a.shape[1] and all(type(left) is InducingPoints for _, left in latents):
        norms = []
        for (one, left), column in zip(latents, tf.split(a, len(latents), axis=1)):
            norms.append(stationary_norm(one, tf.convert_to_tensor(left.Z), column))
        if None not in norms:
            return tf.add_n(norms)
    return tf.reduce_sum(a * gram_product(kernel, points, None, a, whole=True))


def follows_dtype(kernel: Kernel, points: InducingVariables) -> bool:
    """Return True if `gram_product` of plain points with themselves honours its `dtype`."""
    latents = split_latents(kernel, points)
    return any(type(one) in PROFILES and left.num_inducing**2 > _SMALL for one, left in latents)


def diagonal_excess(kernel: Kernel, points: InducingVariables) -> tf.Tensor:
    """Return the noise kernels' variance at N points, [N, 1], or [N, L] if latents differ."""
    # It is diag k(X, X) minus k(x, x') at x' = x; costs N rows of 256 kernel evaluations.
    columns = [
        _excess(one, tf.convert_to_tensor(left.Z)) for one, left in split_latents(kernel, points)
    ]
    return tf.concat(columns, axis=1)


def _excess(kernel: Kernel, X: tf.Tensor) -> tf.Tensor:
    if type(kernel) in PROFILES:
        return tf.zeros_like(X[:, :1])
    blocks = [X[first : first + _DIAGONAL] for first in range(0, X.shape[0], _DIAGONAL)]
    found = [
        kernel(block, full_cov=False) - tf.linalg.diag_part(covariance(kernel, block, block))
        for block in blocks
    ]
    return tf.concat(found, axis=0)[:, None]


def _share(progress: Progress, index: int, count: int, share: float) -> None:
    progress((index + share) / count)


def _plain(X: tf.Tensor | InducingVariables) -> tf.Tensor | None:
    if isinstance(X, InducingVariables):
        return tf.convert_to_tensor(X.Z) if type(X) is InducingPoints else None
    return tf.convert_to_tensor(X)


def _chosen_from(X: tf.Tensor | InducingVariables) -> tf.Tensor:
    plain = _plain(X)
    if plain is None:
        raise NotImplementedError(
            f"mean_subsample needs plain inducing points, not {type(X).__name__}."
        )
    return plain


def _stored(
    kernel: Kernel, points: InducingVariables, X: tf.Tensor | InducingVariables | None
) -> tf.Tensor:
    if X is None:
        return inducing_gram(points, kernel)
    plain = _plain(X)
    if plain is not None:
        return tf.linalg.matrix_transpose(Kuf(points, kernel, plain))
    if type(points) is InducingPoints:
        return Kuf(X, kernel, points.Z)
    raise NotImplementedError(
        f"GPflow has no covariance between {type(X).__name__} and {type(points).__name__}; "
        "make one of gamma and beta plain inducing points."
    )
