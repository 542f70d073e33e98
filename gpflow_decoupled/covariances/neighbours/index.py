"""The rows nearest to an input."""

from __future__ import annotations

__all__ = ["RowIndex", "kept_index", "row_index"]

import abc
import functools
import operator
from collections.abc import Callable, Iterator
from weakref import WeakKeyDictionary

import numpy as np
import tensorflow as tf
from gpflow.kernels import IsotropicStationary, Kernel, Product, Sum

from ...linalg.blocks import map_rows
from ..centring import ISOTROPIC, covariance, middle_row
from .distances import NOBODY, SPARE, best, by_differences, slack, squares, within
from .tree import Tree

_TREE_COLUMNS = 8
"""Most columns for a k-d tree, see `_columns`. In 8 columns of independent normals it is as fast as
products at 36,000 rows, twice as fast at 200,000 and ten times at 10^6; in 20 of them a tenth as
fast, but six times as fast where lengthscales leave the spread of four."""
_SPREAD_ROWS = 10_000
"""Rows whose covariance is looked at."""
_TREE_ROWS = 1_000
"""Fewest rows for a k-d tree; below, a product takes no time."""
_BLOCK = 64
"""Rows of a block. All blocks are filled up to this number, so that the distances of one row are
rounded in the same way whatever the other rows are."""
_ENTRIES = 8_000_000
"""Most entries of a block of distances, 32 MB in single precision."""
_COARSE = 1e-9
"""Error of a squared distance, in lengthscales, from which on differences are taken."""
OfBlock = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
"""(queries [B, D], limits [B]) -> row numbers [B, m]."""


class RowIndex(abc.ABC):
    """N rows of data, ready to be searched; see `row_index`.

    :param num_rows: N.
    """

    def __init__(self, num_rows: int) -> None:
        self.num_rows = num_rows

    def nearest(
        self,
        queries: tf.Tensor,
        count: int,
        first: tf.Tensor | None = None,
        itself: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """The nearest rows to some inputs, nearest first.

        :param queries: inputs [B, D].
        :param count: m, the number of rows.
        :param first: [B], int: only rows 0 to first - 1 are searched; all if not given.
        :param itself: [B], int: a row to leave out.
        :return: row numbers [B, m], int32, -1 for none. Cost: B N D, or B m log N by a tree.
            Memory: one block of distances.
        """
        if queries.shape[0] == 0:
            return tf.zeros([0, count], tf.int32)
        queries = tf.stop_gradient(queries)
        wanted = min(count if itself is None else count + 1, self.num_rows)
        found = self._nearest(queries, wanted, first)
        if itself is not None:
            found = _without(found, tf.cast(itself, tf.int32), min(count, wanted))
        missing = count - int(found.shape[1])
        return tf.pad(found, [[0, 0], [0, missing]], constant_values=NOBODY) if missing else found

    @abc.abstractmethod
    def _nearest(self, queries: tf.Tensor, count: int, first: tf.Tensor | None) -> tf.Tensor:
        """[B, m] for m <= N, int32, -1 beyond `first`."""


def row_index(kernel: Kernel, X: tf.Tensor) -> RowIndex:
    """An index of the rows of X [N, D], near for this kernel at its present parameters.

    GPflow's isotropic kernels: distance in inputs divided by lengthscales, by a k-d tree where at
    most eight columns have most of the spread, else, or inside a `tf.function`, by blocks of
    products, as far as those are certain. Others, and classes derived from these: the squared prior
    correlation k(x, x')^2 / (k(x, x) k(x', x')), by blocks of the kernel. Of rows that are as far,
    the first.
    """
    if type(kernel) in ISOTROPIC:
        return _ScaledIndex(kernel, X)
    return _CorrelationIndex(kernel, X)


_Kept = tuple[Kernel, tf.Tensor, np.ndarray | None, bytes, RowIndex]
"""A kernel, the data, rows, lengthscales, and the index that was made of them."""
# by owner and not in it, where its copies and files would find them
_KEPT: WeakKeyDictionary[object, dict[int, _Kept]] = WeakKeyDictionary()


def kept_index(
    owner: object, kernel: Kernel, X: tf.Tensor, rows: np.ndarray | None = None
) -> RowIndex:
    """The index of rows, kept for their owner until the rows or the lengthscales change.

    :param owner: the model of the rows; copies of it have other indexes.
    :param kernel: of one latent function.
    :param X: data [N, D]. Inside of a `tf.function` nothing is kept.
    :param rows: numbers of those to search; None for all.
    """
    if not tf.executing_eagerly():
        return row_index(kernel, X if rows is None else tf.gather(X, rows))
    mine, scales = _KEPT.setdefault(owner, {}), _scales(kernel)
    kept = mine.get(id(kernel))
    same = kept is not None and all(a is b for a, b in zip(kept, (kernel, X, rows)))
    if kept is None or not same or kept[3] != scales:
        some = X if rows is None else tf.gather(X, rows)
        mine[id(kernel)] = kept = kernel, X, rows, scales, row_index(kernel, some)
    return kept[4]


def _scales(kernel: Kernel) -> bytes:
    if type(kernel) not in ISOTROPIC:
        return b""
    return np.asarray(kernel.lengthscales).tobytes()


def _scaled(kernel: IsotropicStationary, X: tf.Tensor) -> tf.Tensor:
    active, _ = kernel.slice(X, None)
    return tf.stop_gradient(active / tf.convert_to_tensor(kernel.lengthscales))


class _ScaledIndex(RowIndex):
    # Ranked by |b|^2 - 2 a^T b about a row, in single precision, less a bound of its round-off; the
    # best few are compared by differences. Where another row may be nearer still, in double
    # precision with more of them; and where even that is not certain, all rows by differences.

    def __init__(self, kernel: IsotropicStationary, X: tf.Tensor) -> None:
        scaled = _scaled(kernel, X)
        super().__init__(int(X.shape[0]))
        self._kernel, self._points = kernel, scaled
        self._centre = middle_row(scaled)[0]
        self._tree: Tree | None = None
        if tf.executing_eagerly() and self.num_rows >= _TREE_ROWS:
            points = scaled.numpy()
            if _columns(points) <= _TREE_COLUMNS:
                self._tree = Tree(points)

    def _nearest(self, queries: tf.Tensor, count: int, first: tf.Tensor | None) -> tf.Tensor:
        scaled = _scaled(self._kernel, queries)
        if self._tree is not None and tf.executing_eagerly():
            limits = None if first is None else np.asarray(first)
            return tf.constant(self._tree.nearest(scaled.numpy(), count, limits), tf.int32)
        N, asked = self.num_rows, min(count + SPARE, self.num_rows)
        short = tf.cast(self._points - self._centre, tf.float32)

        def of_block(rows: tf.Tensor, limits: tf.Tensor) -> tf.Tensor:
            found, sure = self._by_products(short, rows, limits, count, asked)
            return found if asked == N else tf.cond(sure, lambda: found, lambda: more(rows, limits))

        def more(rows: tf.Tensor, limits: tf.Tensor) -> tf.Tensor:
            full = tf.cast(self._points - self._centre, tf.float64)
            found, sure = self._by_products(full, rows, limits, count, min(8 * asked, N))
            return tf.cond(sure, lambda: found, lambda: in_full(rows, limits))

        def in_full(rows: tf.Tensor, limits: tf.Tensor) -> tf.Tensor:
            def of_rows(rows: tf.Tensor, limits: tf.Tensor) -> tf.Tensor:
                kept = tf.tile(tf.range(N)[None], [tf.shape(rows)[0], 1])
                return best(-squares(self._points, rows), kept, count, limits)[0]

            size = max(1, _ENTRIES // max(1, N * int(rows.shape[1])))
            return map_rows(of_rows, (rows, limits), size, tf.int32)

        return _by_blocks(of_block, scaled, first, N)

    def _by_products(
        self, points: tf.Tensor, rows: tf.Tensor, limits: tf.Tensor, count: int, asked: int
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The nearest rows [B, m] among the best `asked`, and whether no other row is as near."""
        about = tf.cast(rows - self._centre, points.dtype)
        exact = 1.0 - slack(points.dtype, int(rows.shape[1]))
        norms = exact * tf.reduce_sum(tf.square(points), axis=1)
        closeness = 2.0 * tf.matmul(about, points, transpose_b=True) - norms
        closeness, kept = tf.math.top_k(within(closeness, limits), asked)
        found, farthest = by_differences(self._points, rows, kept, count, limits)
        least = exact * tf.reduce_sum(tf.square(tf.cast(about, tf.float64)), axis=1)
        least -= tf.cast(closeness[:, -1], tf.float64)
        nearer = (tf.cast(farthest, tf.float64) < least) | tf.math.is_inf(least)
        return found, tf.reduce_all(nearer) | (asked == self.num_rows)


class _CorrelationIndex(RowIndex):
    def __init__(self, kernel: Kernel, X: tf.Tensor) -> None:
        super().__init__(int(X.shape[0]))
        self._kernel, self._X = kernel, X

    def _nearest(self, queries: tf.Tensor, count: int, first: tf.Tensor | None) -> tf.Tensor:
        kernel, X = self._kernel, self._X
        variances = tf.stop_gradient(kernel(X, full_cov=False))
        size = max(1, _ENTRIES // max(1, self.num_rows * int(X.shape[1])))
        coarse = tf.reduce_any(tf.stack([False, *_are_coarse(kernel, X, queries)]))

        def of_block(rows: tf.Tensor, limits: tf.Tensor) -> tf.Tensor:
            # the variance of the query is the same for all rows, and does not change their order
            K = tf.cond(
                coarse,
                lambda: map_rows(lambda some: _fine(kernel, X, some), (rows,), size, X.dtype),
                lambda: tf.linalg.matrix_transpose(covariance(kernel, X, rows)),
            )
            closeness = tf.math.divide_no_nan(tf.square(tf.stop_gradient(K)), variances)
            closeness, kept = tf.math.top_k(within(closeness, limits), count)
            return best(closeness, kept, count, limits)[0]

        return _by_blocks(of_block, queries, first, 4 * self.num_rows)


def _are_coarse(kernel: Kernel, X: tf.Tensor, queries: tf.Tensor) -> Iterator[tf.Tensor]:
    """Whether products round squared distances too much, for each part that knows distances."""
    if type(kernel) in (Sum, Product):
        for part in kernel.kernels:
            yield from _are_coarse(part, X, queries)
    if type(kernel) in ISOTROPIC:
        points, rows = _scaled(kernel, X), _scaled(kernel, queries)
        centre = middle_row(points)
        norms = [tf.reduce_sum(tf.square(part - centre), axis=1) for part in (points, rows)]
        largest = tf.add_n([tf.reduce_max(part) for part in norms])
        yield slack(points.dtype, int(points.shape[1])) * largest > _COARSE


def _fine(kernel: Kernel, X: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """k(rows, X) [B, N] by differences of inputs, where the kernel has a distance."""
    if type(kernel) in (Sum, Product):
        parts = (_fine(part, X, rows) for part in kernel.kernels)
        return functools.reduce(operator.add if type(kernel) is Sum else operator.mul, parts)
    if type(kernel) in ISOTROPIC:
        return kernel.K_r2(squares(_scaled(kernel, X), _scaled(kernel, rows)))
    return tf.linalg.matrix_transpose(covariance(kernel, X, rows))


def _by_blocks(
    of_block: OfBlock, queries: tf.Tensor, first: tf.Tensor | None, width: int
) -> tf.Tensor:
    size = max(1, min(_BLOCK, _ENTRIES // max(width, 1)))
    if first is None:
        first = tf.fill([tf.shape(queries)[0]], np.iinfo(np.int32).max)
    limits = tf.cast(first, tf.int32)
    return map_rows(of_block, (queries, limits), size, tf.int32, fill=True)


def _columns(points: np.ndarray) -> float:
    """Effective number of columns of points [N, D]."""
    # (tr C)^2 / tr C^2 for the covariance C: D for such columns, 1 if one direction decides.
    some = points[:: max(1, len(points) // _SPREAD_ROWS)]
    C = np.atleast_2d(np.cov(some, rowvar=False))
    return float(np.trace(C) ** 2 / max(np.sum(np.square(C)), np.finfo(float).tiny))


def _without(found: tf.Tensor, itself: tf.Tensor, count: int) -> tf.Tensor:
    other = tf.cast((found != itself[:, None]) & (found >= 0), tf.int32)
    # a stable order: rows to keep first, each kind in the order found
    _, order = tf.math.top_k(other, count)
    kept = tf.where(other > 0, found, NOBODY)
    return tf.gather(kept, order, batch_dims=1)
