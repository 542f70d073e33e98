"""Lower triangular solves and products, faster than TensorFlow's: right-hand sides are split over
cores, blocks of zeros skipped.
"""

# Costs are shares of a full product, 2 M^2 N.

from __future__ import annotations

__all__ = [
    "inverse",
    "lower_congruence",
    "lower_gram",
    "lower_outer",
    "lower_product",
    "lower_root_gram",
    "lower_transposed_product",
    "mirror",
    "solve",
    "solve_frozen",
    "solve_lower",
    "sum_to",
    "symmetric_product",
    "transposed_product",
]

import tensorflow as tf

_LEAF = 128
"""Least height of a block of rows; below, a further call costs more than the zeros it skips."""
_BLOCKS = 4
"""Most blocks of rows. Four compute 5/8 of the full product; more save no time."""
_CHUNKS = 4
"""Most chunks of right-hand sides in a solve."""
_CHUNK = 256
"""Least number of right-hand sides in a chunk of a solve."""
Span = tuple[int | tf.Tensor, int | tf.Tensor | None]
"""First row or column, and the one after the last; None is the end."""


def solve(chol: tf.Tensor, rhs: tf.Tensor, adjoint: bool = False) -> tf.Tensor:
    """Solve L X = R, or L^T X = R if `adjoint`; cost M^2 N.

    L is [..., M, M], lower triangular, R and X [..., M, N].
    """

    @tf.custom_gradient
    def run(chol: tf.Tensor, rhs: tf.Tensor) -> tuple:
        value = _chunked_solve(chol, rhs, adjoint)

        def grad(upstream: tf.Tensor) -> tuple:
            # d(L^-1 R) = L^-1 (dR - dL L^-1 R), d(L^-T R) = L^-T (dR - dL^T L^-T R)
            rhs_grad = _chunked_solve(chol, upstream, not adjoint)
            outer = lower_outer(value, rhs_grad) if adjoint else lower_outer(rhs_grad, value)
            return sum_to(-_lower(outer), chol), sum_to(rhs_grad, rhs)

        return value, grad

    return run(chol, rhs)


def solve_frozen(chol: tf.Tensor, rhs: tf.Tensor, adjoint: bool = False) -> tf.Tensor:
    """`solve` for [..., M, M] and [..., M, N] with L constant: the gradient in L is not formed."""

    @tf.custom_gradient
    def frozen(vectors: tf.Tensor) -> tuple:
        value = _chunked_solve(chol, vectors, adjoint)
        return value, lambda upstream: sum_to(_chunked_solve(chol, upstream, not adjoint), vectors)

    return frozen(rhs)


def solve_lower(chol: tf.Tensor, rhs: tf.Tensor) -> tf.Tensor:
    """L^-1 R for lower triangular L, R [..., M, M], lower triangular too; half of a full solve."""
    blocks = _row_blocks(chol)
    if len(blocks) == 1:
        return solve(chol, rhs)
    columns = [
        _pad_above(solve(_cut(chol, (i, None), (i, None)), _cut(rhs, (i, None), (i, j))), chol)
        for i, j in blocks
    ]
    return _concat(columns, axis=-1)


def inverse(chol: tf.Tensor) -> tf.Tensor:
    """The inverse of a lower triangular matrix [..., M, M]; cost M^3 / 2."""
    size = chol.shape[-1] if chol.shape[-1] is not None else tf.shape(chol)[-1]
    return solve_lower(chol, tf.eye(size, batch_shape=tf.shape(chol)[:-2], dtype=chol.dtype))


def lower_product(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    """L R for lower triangular L [..., M, M] and R [..., M, N]; 5/8 of a full product."""
    return _lower_product(left, right)


def transposed_product(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    """L^T R for lower triangular L [..., M, M] and R [..., M, N]; 5/8 of a full product."""
    return _transposed_product(left, right)


def lower_root_gram(root: tf.Tensor) -> tf.Tensor:
    """R^T R for lower triangular R [..., M, M], say a precision from its root; M^3 / 2."""
    return mirror(lower_transposed_product(root, root))


def lower_transposed_product(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    """The lower triangle of L^T R for lower triangular L, R [..., M, M]; 2/5 of a full product.

    Entries above the diagonal are wrong; `mirror` sets them where the product is symmetric.
    """
    rows = [
        _pad_right(
            tf.matmul(
                _cut(left, (i, None), (i, j)), _cut(right, (i, None), (0, j)), transpose_a=True
            ),
            left,
        )
        for i, j in _row_blocks(left)
    ]
    return _concat(rows, axis=-2)


def lower_congruence(lower: tf.Tensor, symmetric: tf.Tensor) -> tf.Tensor:
    """T^T X T for lower triangular T and symmetric X [..., M, M]; 2/5 of two full products."""
    # of X T too, the entries below the blocks of the diagonal are all that the lower triangle of
    # the result needs
    columns = [
        _pad_above(
            tf.matmul(_cut(symmetric, (i, None), (i, None)), _cut(lower, (i, None), (i, j))), lower
        )
        for i, j in _row_blocks(lower)
    ]
    return mirror(lower_transposed_product(lower, _concat(columns, axis=-1)))


def lower_gram(root: tf.Tensor) -> tf.Tensor:
    """R R^T for lower triangular R [..., M, M], say a covariance from its root; M^3 / 2."""
    rows = [
        _pad_right(
            tf.matmul(_cut(root, (i, j), (0, j)), _cut(root, (0, j), (0, j)), transpose_b=True),
            root,
        )
        for i, j in _row_blocks(root)
    ]
    return mirror(_concat(rows, axis=-2))


def symmetric_product(factor: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """A diag(w) A^T [..., M, M] for A [..., M, N] and w [..., N]; 5/8 of a full product."""
    return mirror(lower_outer(factor * weights[..., None, :], factor))


@tf.custom_gradient
def _lower_product(left: tf.Tensor, right: tf.Tensor) -> tuple:
    rows = [
        tf.matmul(_cut(left, (i, j), (0, j)), _cut(right, (0, j))) for i, j in _row_blocks(left)
    ]

    def grad(upstream: tf.Tensor) -> tuple:
        return sum_to(_lower(lower_outer(upstream, right)), left), sum_to(
            _transposed_product(left, upstream), right
        )

    return _concat(rows, axis=-2), grad


@tf.custom_gradient
def _transposed_product(left: tf.Tensor, right: tf.Tensor) -> tuple:
    rows = [
        tf.matmul(_cut(left, (i, None), (i, j)), _cut(right, (i, None)), transpose_a=True)
        for i, j in _row_blocks(left)
    ]

    def grad(upstream: tf.Tensor) -> tuple:
        return sum_to(_lower(lower_outer(right, upstream)), left), sum_to(
            _lower_product(left, upstream), right
        )

    return _concat(rows, axis=-2), grad


def _chunked_solve(chol: tf.Tensor, rhs: tf.Tensor, adjoint: bool) -> tf.Tensor:
    columns = rhs.shape[-1] or 0
    chunks = min(_CHUNKS, columns // _CHUNK)
    if chunks < 2:
        return tf.linalg.triangular_solve(chol, rhs, adjoint=adjoint)
    edges = [columns * k // chunks for k in range(chunks + 1)]
    parts = [rhs[..., a:b] for a, b in zip(edges, edges[1:])]
    return tf.concat(
        [tf.linalg.triangular_solve(chol, part, adjoint=adjoint) for part in parts], axis=-1
    )


def lower_outer(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    """The lower triangle of X Y^T for X, Y [..., M, N]; 5/8 of a full product.

    Entries above the diagonal are wrong; `mirror` sets them where the product is symmetric.
    """
    rows = [
        _pad_right(
            tf.matmul(_cut(left, (i, j)), _cut(right, (0, j)), transpose_b=True), left, axis=-2
        )
        for i, j in _row_blocks(left)
    ]
    return _concat(rows, axis=-2)


def _cut(matrix: tf.Tensor, rows: Span, columns: Span = (0, None)) -> tf.Tensor:
    """Slice [..., M, N]; a full slice returns the matrix, because even that slice is a call."""
    for (first, last), size in zip((rows, columns), matrix.shape[-2:]):
        to_end = last is None or (isinstance(last, int) and last == size)
        if not (to_end and isinstance(first, int) and first == 0):
            return matrix[..., slice(*rows), slice(*columns)]
    return matrix


def _lower(matrix: tf.Tensor) -> tf.Tensor:
    return tf.linalg.band_part(matrix, -1, 0)


def _row_blocks(matrix: tf.Tensor) -> list[tuple[int, int]]:
    """First row of each block and the last one's end; one block for small or unknown M."""
    size = matrix.shape[-2]
    if size is None:
        return [(0, tf.shape(matrix)[-2])]
    count = max(1, min(_BLOCKS, size // _LEAF))
    edges = [size * k // count for k in range(count + 1)]
    return list(zip(edges, edges[1:]))


def _pad_right(block: tf.Tensor, like: tf.Tensor, axis: int = -1) -> tf.Tensor:
    if like.shape[axis] is not None and block.shape[-1] == like.shape[axis]:
        return block
    missing = tf.shape(like)[axis] - tf.shape(block)[-1]
    zeros = tf.zeros(tf.concat([tf.shape(block)[:-1], [missing]], axis=0), block.dtype)
    padded = tf.concat([block, zeros], axis=-1)
    padded.set_shape(block.shape[:-1].concatenate(like.shape[axis]))
    return padded


def _pad_above(block: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    if like.shape[-2] is not None and block.shape[-2] == like.shape[-2]:
        return block
    missing = tf.shape(like)[-2] - tf.shape(block)[-2]
    return tf.pad(block, [[0, 0]] * (block.shape.rank - 2) + [[missing, 0], [0, 0]])


def _concat(parts: list[tf.Tensor], axis: int) -> tf.Tensor:
    return parts[0] if len(parts) == 1 else tf.concat(parts, axis=axis)


def mirror(matrix: tf.Tensor) -> tf.Tensor:
    """The symmetric matrix with the lower triangle of `matrix` [..., M, M]."""
    rows = tf.range(tf.shape(matrix)[-1])
    return tf.where(rows[:, None] >= rows, matrix, tf.linalg.matrix_transpose(matrix))


def sum_to(gradient: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """Sum a gradient [..., M, N] over the axes along which `like` [..., M, N] was broadcast."""
    if gradient.shape.is_fully_defined() and gradient.shape == like.shape:
        return gradient
    extra = gradient.shape.rank - like.shape.rank
    gradient = tf.reduce_sum(gradient, axis=list(range(extra)))
    axes = [k for k in range(like.shape.rank - 2) if like.shape[k] == 1]
    return tf.reduce_sum(gradient, axis=axes, keepdims=True) if axes else gradient
