"""The rows nearest to an input."""

from __future__ import annotations

__all__ = ["RowIndex", "kept_index", "row_index"]

import abc
from collections.abc import Callable
from weakref import WeakKeyDictionary

import numpy as np
import tensorflow as tf
from gpflow.kernels import IsotropicStationary, Kernel
from scipy.spatial import cKDTree

from ...linalg.blocks import map_rows
from ..blocks import number_of_threads
from ..centring import ISOTROPIC, covariance, middle_row

_TREE_COLUMNS = 8
"""Most columns for a k-d tree, see `_columns`. In 8 columns of independent normals it is as fast as
products at 36,000 rows, twice as fast at 200,000 and ten times at 10^6; in 20 of them a tenth as
fast, but six times as fast where lengthscales leave the spread of four."""
_SPREAD_ROWS = 10_000
"""Rows whose covariance is looked at."""
_WORTH_MOVING = 1_000
"""Rows that can be moved in the time that it saves a query."""
_LEAF = 64
"""Rows of a leaf. With SciPy's 16 exact queries take a fifth to a half longer, with 128 as long."""
_TREE_ROWS = 1_000
"""Fewest rows for a k-d tree; below, a product takes no time."""
_BLOCK = 64
"""Rows of a block. All blocks are filled up to this number, so that the distances of one row are
rounded in the same way whatever the other rows are."""
_ENTRIES = 8_000_000
"""Most entries of a block of distances, 32 MB in single precision."""
_SPARE = 8
"""Rows that single precision finds beyond those asked for, from which double precision chooses."""
OfBlock = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
"""(queries [B, D], limits [B]) -> row numbers [B, m]."""
NOBODY = -1
"""Stands for a neighbour that does not exist."""


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
    products. Others, and classes derived from these: the squared prior correlation k(x, x')^2 /
    (k(x, x) k(x', x')), by blocks of the kernel.
    """
    if type(kernel) in ISOTROPIC:
        return _ScaledIndex(kernel, X)
    return _CorrelationIndex(kernel, X)


_Kept = tuple[Kernel, tf.Tensor, bytes, RowIndex]
"""A kernel, the rows, lengthscales, and the index that was made of them."""
# by owner and not in it, where its copies and files would find them
_KEPT: WeakKeyDictionary[object, dict[int, _Kept]] = WeakKeyDictionary()


def kept_index(owner: object, kernel: Kernel, X: tf.Tensor) -> RowIndex:
    """The index of rows, kept for their owner until the rows or the lengthscales change.

    :param owner: the model of the rows; copies of it have other indexes.
    :param kernel: of one latent function.
    :param X: rows [N, D]. Inside of a `tf.function` nothing is kept.
    """
    if not tf.executing_eagerly():
        return row_index(kernel, X)
    mine, scales = _KEPT.setdefault(owner, {}), _scales(kernel)
    kept = mine.get(id(kernel))
    if kept is None or kept[0] is not kernel or kept[1] is not X or kept[2] != scales:
        mine[id(kernel)] = kept = kernel, X, scales, row_index(kernel, X)
    return kept[3]


def _scales(kernel: Kernel) -> bytes:
    if type(kernel) not in ISOTROPIC:
        return b""
    return np.asarray(kernel.lengthscales).tobytes()


def _scaled(kernel: IsotropicStationary, X: tf.Tensor) -> tf.Tensor:
    active, _ = kernel.slice(X, None)
    return tf.stop_gradient(active / tf.convert_to_tensor(kernel.lengthscales))


class _ScaledIndex(RowIndex):
    # Ranked in single precision by |b|^2 - 2 a^T b about a row; the best few are compared in
    # full.

    def __init__(self, kernel: IsotropicStationary, X: tf.Tensor) -> None:
        scaled = _scaled(kernel, X)
        super().__init__(int(X.shape[0]))
        self._kernel, self._points = kernel, scaled
        self._centre = middle_row(scaled)[0]
        self._tree: _Tree | None = None
        if tf.executing_eagerly() and self.num_rows >= _TREE_ROWS:
            points = scaled.numpy()
            if _columns(points) <= _TREE_COLUMNS:
                self._tree = _Tree(points)

    def _nearest(self, queries: tf.Tensor, count: int, first: tf.Tensor | None) -> tf.Tensor:
        scaled = _scaled(self._kernel, queries)
        if self._tree is not None and tf.executing_eagerly():
            limits = None if first is None else np.asarray(first)
            return tf.constant(self._tree.nearest(scaled.numpy(), count, limits), tf.int32)
        short = tf.cast(self._points - self._centre, tf.float32)
        norms = tf.reduce_sum(tf.square(short), axis=1)
        spare = min(count + _SPARE, self.num_rows)

        def of_block(rows: tf.Tensor, limits: tf.Tensor) -> tf.Tensor:
            about = tf.cast(rows - self._centre, tf.float32)
            closeness = 2.0 * tf.matmul(about, short, transpose_b=True) - norms
            _, kept = tf.math.top_k(_within(closeness, limits), spare)
            difference = tf.gather(self._points, kept) - rows[:, None]
            squares = tf.reduce_sum(tf.square(difference), axis=-1)
            return _best(-squares, kept, count, limits)

        return _by_blocks(of_block, scaled, first, self.num_rows)


class _CorrelationIndex(RowIndex):
    def __init__(self, kernel: Kernel, X: tf.Tensor) -> None:
        super().__init__(int(X.shape[0]))
        self._kernel, self._X = kernel, X

    def _nearest(self, queries: tf.Tensor, count: int, first: tf.Tensor | None) -> tf.Tensor:
        variances = tf.stop_gradient(self._kernel(self._X, full_cov=False))

        def of_block(rows: tf.Tensor, limits: tf.Tensor) -> tf.Tensor:
            # the variance of the query is the same for all rows, and does not change their order
            K = tf.stop_gradient(covariance(self._kernel, self._X, rows))
            closeness = tf.math.divide_no_nan(tf.square(tf.linalg.matrix_transpose(K)), variances)
            closeness, kept = tf.math.top_k(_within(closeness, limits), count)
            return _best(closeness, kept, count, limits)

        return _by_blocks(of_block, queries, first, 4 * self.num_rows)


def _within(closeness: tf.Tensor, limits: tf.Tensor) -> tf.Tensor:
    columns = tf.range(tf.shape(closeness)[1])
    least = tf.constant(-np.inf, closeness.dtype)
    return tf.where(columns < limits[:, None], closeness, least)


def _best(closeness: tf.Tensor, rows: tf.Tensor, count: int, limits: tf.Tensor) -> tf.Tensor:
    there = rows < limits[:, None]
    closeness = tf.where(there, closeness, tf.constant(-np.inf, closeness.dtype))
    _, order = tf.math.top_k(closeness, count)
    return tf.gather(tf.where(there, rows, NOBODY), order, batch_dims=1)


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


class _Tree:
    # With 10^6 rows in 8 columns of independent normals, queries for 256 rows take 1.5 ms, and 0.7
    # once the points of a leaf lie together in memory; 0.55 and 0.23 ms where each column spreads
    # 0.7 times as far as the last. Moving them costs a second tree, which few queries are not
    # worth. Trees that are not balanced are faster to make and to search. Queries that may miss
    # rows which are almost as far (eps=0.3) take 0.4 and 0.17 ms, but then blocks, which compiled
    # functions search, find other rows.

    def __init__(self, points: np.ndarray) -> None:
        self._points = points
        # one tuple, so that threads never see a tree with the rows of another
        self._searched: tuple[cKDTree, np.ndarray | None] = _tree_of(points), None

    def nearest(self, queries: np.ndarray, count: int, first: np.ndarray | None) -> np.ndarray:
        tree, rows = self._searched
        if rows is None and len(queries) * _WORTH_MOVING > tree.n:
            rows = tree.indices
            tree = _tree_of(self._points[rows])
            self._searched = tree, rows
        if first is None:
            return _query(tree, rows, queries, count)
        found = np.full((len(queries), count), NOBODY, np.int64)
        left, asked = np.arange(len(queries)), 2 * count + _SPARE
        while len(left):
            asked = min(asked, tree.n)
            near = _query(tree, rows, queries[left], asked)
            there = near < first[left, None]
            order = np.argsort(~there, axis=1, kind="stable")[:, :count]
            kept = np.take_along_axis(np.where(there, near, NOBODY), order, axis=1)
            found[left, : kept.shape[1]] = kept
            done = (there.sum(axis=1) >= np.minimum(count, first[left])) | (asked == tree.n)
            left, asked = left[~done], 2 * asked
        return found


def _query(tree: cKDTree, rows: np.ndarray | None, queries: np.ndarray, count: int) -> np.ndarray:
    """[B, m]; SciPy drops the last axis for m = 1 unless given a list."""
    # queries that lie together follow each other, and find their points in the processor's
    # cache: 5,000 among 10^6 rows take two thirds of the time
    order = cKDTree(queries, balanced_tree=False, compact_nodes=False).indices
    asked, workers = range(1, count + 1), number_of_threads()
    _, places = tree.query(queries[order], asked, workers=workers)
    found = np.empty_like(places)
    found[order] = places if rows is None else rows[places]
    return found


def _tree_of(points: np.ndarray) -> cKDTree:
    return cKDTree(points, leafsize=_LEAF, balanced_tree=False)


def _without(found: tf.Tensor, itself: tf.Tensor, count: int) -> tf.Tensor:
    other = tf.cast((found != itself[:, None]) & (found >= 0), tf.int32)
    # a stable order: rows to keep first, each kind in the order found
    _, order = tf.math.top_k(other, count)
    kept = tf.where(other > 0, found, NOBODY)
    return tf.gather(kept, order, batch_dims=1)
