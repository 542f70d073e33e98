"""Neighbours among earlier rows."""

from __future__ import annotations

__all__ = [
    "LevelTrees", "NOBODY", "RowIndex", "SPARE", "Tree", "best", "by_differences",
    "earlier_neighbours", "kept_index", "row_index", "slack", "squares", "within",
]  # fmt: skip

import abc
import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from weakref import WeakKeyDictionary

import numpy as np
import tensorflow as tf
from gpflow.kernels import IsotropicStationary, Kernel, Product, Sum
from scipy.spatial import cKDTree

from ..linalg.conjugate_gradients import map_rows
from .blocks import number_of_threads
from .mixed import code_columns, penalties, without_codes
from .stationary import ISOTROPIC, covariance, middle_row

# ---
# The nearest of some rows by differences of inputs.


NOBODY = -1
"""Stands for a neighbour that does not exist."""
SPARE = 8
"""Rows that are found beyond those asked for, from which differences choose."""


def squares(points: tf.Tensor, rows: tf.Tensor, levels: tf.Tensor | None = None) -> tf.Tensor:
    """Squared distances [B, n] of rows [B, D] to points [n, D] or [B, n, D], by differences.

    :param levels: squared distances [D] of different codes in a column, 0 for numbers.
    """
    apart = points - rows[:, None]
    terms = tf.square(apart)
    if levels is not None:
        steps = tf.where(apart == 0.0, tf.zeros_like(levels), levels)
        terms = tf.where(levels > 0.0, steps, terms)
    return tf.reduce_sum(terms, axis=-1)


def slack(dtype: tf.DType, columns: int) -> float:
    """A bound of the error of |a|^2 + |b|^2 - 2 a^T b, in units of |a|^2 + |b|^2."""
    # half of eps for each of D sums and products, for inputs rounded to this dtype, and for sums
    return float((2 * columns + 16) * np.finfo(dtype.as_numpy_dtype).eps)


def by_differences(
    points: tf.Tensor,
    rows: tf.Tensor,
    kept: tf.Tensor,
    count: int,
    limits: tf.Tensor,
    levels: tf.Tensor | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """The nearest of the `kept` points [B, n], the first of equals, and the square of the last."""
    kept = tf.sort(kept, axis=1)
    found, closeness = best(-squares(tf.gather(points, kept), rows, levels), kept, count, limits)
    return found, -closeness[:, -1]


def within(closeness: tf.Tensor, limits: tf.Tensor) -> tf.Tensor:
    """Closeness [B, N] of rows 0 to limit - 1 of each query; minus infinity beyond."""
    columns = tf.range(tf.shape(closeness)[1])
    least = tf.constant(-np.inf, closeness.dtype)
    return tf.where(columns < limits[:, None], closeness, least)


def best(
    closeness: tf.Tensor, rows: tf.Tensor, count: int, limits: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The best `count` of rows [B, n], the first of equals, and their closeness [B, m]."""
    there = rows < limits[:, None]
    closeness = tf.where(there, closeness, tf.constant(-np.inf, closeness.dtype))
    closeness, order = tf.math.top_k(closeness, count)
    return tf.gather(tf.where(there, rows, NOBODY), order, batch_dims=1), closeness


# ---
# A k-d tree of the rows.


_WORTH_MOVING = 1_000
"""Rows that can be moved in the time that it saves a query."""
_LEAF = 64
"""Rows of a leaf. With SciPy's 16 exact queries take a fifth to a half longer, with 128 as long."""
_FEW = 2
"""Rows beside neighbours asked for up to which all rows of a level are looked at."""
_TIED = 1024
"""Most rows that a tree looks at for ties; more are copies of one input."""
_ENTRIES = 8_000_000
"""Most entries of a block of differences, 64 MB in double precision."""


class Tree:
    """Points [N, D] in a k-d tree."""

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
        """The nearest rows [B, m], as `RowIndex.nearest` of at most N rows."""
        tree, rows = self._searched
        if rows is None and len(queries) * _WORTH_MOVING > tree.n:
            rows = tree.indices
            tree = _tree_of(self._points[rows])
            self._searched = tree, rows
        limits = np.full(len(queries), tree.n) if first is None else np.minimum(first, tree.n)
        found = np.full((len(queries), count), NOBODY, np.int64)
        left, asked = np.arange(len(queries)), count + 1 if first is None else 2 * count + SPARE
        as_far = 1.0 + slack(tf.as_dtype(self._points.dtype), self._points.shape[1])
        while len(left):
            asked = min(asked, tree.n)
            distances, near = _query(tree, rows, queries[left], asked)
            farthest = distances[:, -1]
            if first is not None:
                distances = np.where(near < limits[left, None], distances, np.inf)
                order = np.argsort(distances, axis=1, kind="stable")
                distances, near = (np.take_along_axis(a, order, 1) for a in (distances, near))
            wanted = np.minimum(count, limits[left])
            there = np.isfinite(distances)
            # another row may be as far as the last one
            last = np.where(wanted == count, distances[:, count - 1], 0.0)
            sure = (as_far * last < farthest) | (asked >= min(_TIED, tree.n))
            done = (there.sum(axis=1) >= wanted) & sure
            found[left] = np.where(there, near, NOBODY)[:, :count]
            ties = (distances[:, 1:] <= as_far * distances[:, :-1]) & there[:, 1:]
            tied = np.flatnonzero(done & ties[:, :count].any(axis=1))
            if len(tied):
                some = left[tied]
                found[some] = self._first(queries[some], near[tied], count, limits[some])
            left, asked = left[~done], 2 * asked
        return found

    def _first(
        self, queries: np.ndarray, near: np.ndarray, count: int, limits: np.ndarray
    ) -> np.ndarray:
        """The nearest of rows [B, n], the first of equals."""

        def of_block(queries: tf.Tensor, near: tf.Tensor, limits: tf.Tensor) -> tf.Tensor:
            return by_differences(points, queries, near, count, limits)[0]

        points = tf.constant(self._points)
        arrays = tf.constant(queries), tf.constant(near, tf.int32), tf.constant(limits, tf.int32)
        size = max(1, _ENTRIES // near.shape[1] // queries.shape[1])
        return map_rows(of_block, arrays, size, tf.int32).numpy()


class LevelTrees:
    """Points [N, D] of numbers and codes in k-d trees of their numbers.

    :param points: numbers and codes.
    :param places: columns of codes; the rows of each level, and of several, have a tree.
    :param levels: squared distances [D] of different codes, 0 for numbers.
    """

    # A point among the nearest m is among the nearest m by numbers of those that have all codes
    # which it shares with the query: each of these that is nearer by numbers is nearer.

    def __init__(self, points: np.ndarray, places: Sequence[int], levels: tf.Tensor) -> None:
        self._places, self._levels = list(places), levels
        self._padded = np.vstack([points, np.zeros_like(points[:1])])
        self._shared = [
            list(some) for k in range(len(places) + 1) for some in combinations(places, k)
        ]
        self._rows = [_rows_by_codes(points[:, some]) for some in self._shared]
        self._trees: dict[tuple[int, bytes], Tree] = {}

    def nearest(self, queries: np.ndarray, count: int, first: np.ndarray | None) -> np.ndarray:
        """The nearest rows [B, m], as `RowIndex.nearest` of at most N rows."""
        N, numbers = len(self._padded) - 1, self._numbers(queries)
        limits = np.full(len(queries), N) if first is None else np.minimum(first, N)
        blocks = []
        for number, (some, rows) in enumerate(zip(self._shared, self._rows)):
            asked = _rows_by_codes(queries[:, some])
            near = {
                key: self._near(number, key, numbers[these], count, limits[these])
                for key, these in asked.items()
                if key in rows
            }
            width = max((part.shape[1] for part in near.values()), default=0)
            block = np.full((len(queries), width), N)
            for key, part in near.items():
                block[asked[key], : part.shape[1]] = part
            blocks.append(block)
        kept = np.sort(np.hstack(blocks), axis=1)
        kept[:, 1:][kept[:, 1:] == kept[:, :-1]] = N  # a row counts once
        points = tf.constant(self._padded)

        def of_block(queries: tf.Tensor, kept: tf.Tensor, limits: tf.Tensor) -> tf.Tensor:
            return by_differences(points, queries, kept, count, limits, self._levels)[0]

        arrays = tf.constant(queries), tf.constant(kept, tf.int32), tf.constant(limits, tf.int32)
        size = max(1, _ENTRIES // kept.shape[1] // queries.shape[1])
        return map_rows(of_block, arrays, size, tf.int32).numpy()

    def _near(
        self, number: int, key: bytes, numbers: np.ndarray, count: int, limits: np.ndarray
    ) -> np.ndarray:
        """Rows [B, n] with the codes of a key, of which no other is as near; N for none."""
        rows, N = self._rows[number][key], len(self._padded) - 1
        if number and len(rows) <= _FEW * count:
            return np.tile(rows, (len(numbers), 1))
        if (number, key) not in self._trees:
            self._trees[number, key] = Tree(self._numbers(self._padded[rows]))
        asked = np.searchsorted(rows, limits)
        found = self._trees[number, key].nearest(numbers, min(count, len(rows)), asked)
        return np.where(found < 0, N, rows[found])

    def _numbers(self, points: np.ndarray) -> np.ndarray:
        numbers = points.copy()
        numbers[:, self._places] = 0.0
        return numbers


def _rows_by_codes(codes: np.ndarray) -> dict[bytes, np.ndarray]:
    """Rows of equal codes [N, C], in their order, by the codes."""
    if not codes.shape[1]:
        return {b"": np.arange(len(codes))}
    found, own = np.unique(codes, axis=0, return_inverse=True)
    order = np.argsort(own.reshape(-1), kind="stable")
    counts = np.bincount(own.reshape(-1), minlength=len(found))
    return {one.tobytes(): part for one, part in zip(found, np.split(order, np.cumsum(counts)))}


def _query(
    tree: cKDTree, rows: np.ndarray | None, queries: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Distances and rows, [B, m]; SciPy drops the last axis for m = 1 unless given a list."""
    # queries that lie together follow each other, and find their points in the processor's
    # cache: 5,000 among 10^6 rows take two thirds of the time
    order = cKDTree(queries, balanced_tree=False, compact_nodes=False).indices
    asked, workers = range(1, count + 1), number_of_threads()
    far, places = tree.query(queries[order], asked, workers=workers)
    distances, found = np.empty_like(far), np.empty_like(places)
    distances[order], found[order] = far, places if rows is None else rows[places]
    return distances, found


def _tree_of(points: np.ndarray) -> cKDTree:
    return cKDTree(points, leafsize=_LEAF, balanced_tree=False)


# ---
# The rows nearest to an input.


_TREE_COLUMNS = 8
"""Most columns for a k-d tree, see `_columns`. In 8 columns of independent normals it is as fast as
products at 36,000 rows, twice as fast at 200,000 and ten times at 10^6; in 20 of them a tenth as
fast, but six times as fast where lengthscales leave the spread of four."""
_TREE_CODES = 2
"""Most columns of codes for k-d trees, of which there are 2^2 for a query."""
_SPREAD_ROWS = 10_000
"""Rows whose covariance is looked at."""
_TREE_ROWS = 1_000
"""Fewest rows for a k-d tree; below, a product takes no time."""
_BLOCK = 64
"""Rows of a block. All blocks are filled up to this number, so that the distances of one row are
rounded in the same way whatever the other rows are."""
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
    most eight columns have most of the spread, else, for three categories or inside a
    `tf.function`, by blocks of products, as far as those are certain. Others, and classes derived
    from these: the squared prior correlation k(x, x')^2 / (k(x, x) k(x', x')), by blocks of the
    kernel. Of rows that are as far, the first.
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
    """Active columns, divided by lengthscales but for codes."""
    active, _ = kernel.slice(X, None)
    lengthscales = tf.convert_to_tensor(kernel.lengthscales)
    if places := code_columns(kernel):
        codes = np.isin(np.arange(active.shape[-1]), places)
        lengthscales = tf.where(codes, tf.ones_like(lengthscales), lengthscales)
    return tf.stop_gradient(active / lengthscales)


def _levels(kernel: IsotropicStationary, columns: int) -> tf.Tensor | None:
    """Squared distances of different codes [D], 0 for numbers; None without codes."""
    return tf.stop_gradient(penalties(kernel, columns)) if code_columns(kernel) else None


class _ScaledIndex(RowIndex):
    # Ranked by |b|^2 - 2 a^T b about a row, in single precision, less a bound of its round-off; the
    # best few are compared by differences. Where another row may be nearer still, in double
    # precision with more of them; and where even that is not certain, all rows by differences.

    def __init__(self, kernel: IsotropicStationary, X: tf.Tensor) -> None:
        scaled = _scaled(kernel, X)
        super().__init__(int(X.shape[0]))
        self._kernel, self._points = kernel, scaled
        self._levels, self._codes = _levels(kernel, int(scaled.shape[1])), code_columns(kernel)
        self._centre = middle_row(scaled)[0]
        self._tree: Tree | LevelTrees | None = None
        if tf.executing_eagerly() and self.num_rows >= _TREE_ROWS:
            points = scaled.numpy()
            numbers = np.delete(points, self._codes, axis=1)
            few = numbers.shape[1] > 0 and _columns(numbers) <= _TREE_COLUMNS
            if few and not self._codes:
                self._tree = Tree(points)
            elif few and len(self._codes) <= _TREE_CODES:
                self._tree = LevelTrees(points, self._codes, self._levels)

    def _nearest(self, queries: tf.Tensor, count: int, first: tf.Tensor | None) -> tf.Tensor:
        scaled = _scaled(self._kernel, queries)
        if self._tree is not None and tf.executing_eagerly():
            limits = None if first is None else np.asarray(first)
            return tf.constant(self._tree.nearest(scaled.numpy(), count, limits), tf.int32)
        N, asked = self.num_rows, min(count + SPARE, self.num_rows)
        short = self._numbers(self._points, tf.float32)

        def of_block(rows: tf.Tensor, limits: tf.Tensor) -> tf.Tensor:
            found, sure = self._by_products(short, rows, limits, count, asked)
            return found if asked == N else tf.cond(sure, lambda: found, lambda: more(rows, limits))

        def more(rows: tf.Tensor, limits: tf.Tensor) -> tf.Tensor:
            full = self._numbers(self._points, tf.float64)
            found, sure = self._by_products(full, rows, limits, count, min(8 * asked, N))
            return tf.cond(sure, lambda: found, lambda: in_full(rows, limits))

        def in_full(rows: tf.Tensor, limits: tf.Tensor) -> tf.Tensor:
            def of_rows(rows: tf.Tensor, limits: tf.Tensor) -> tf.Tensor:
                kept = tf.tile(tf.range(N)[None], [tf.shape(rows)[0], 1])
                return best(-squares(self._points, rows, self._levels), kept, count, limits)[0]

            size = max(1, _ENTRIES // max(1, N * int(rows.shape[1])))
            return map_rows(of_rows, (rows, limits), size, tf.int32)

        return _by_blocks(of_block, scaled, first, N)

    def _numbers(self, points: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """Centred points; codes of categories become zeros."""
        numbers = np.ones(points.shape[1])
        numbers[self._codes] = 0.0
        return tf.cast((points - self._centre) * tf.cast(numbers, points.dtype), dtype)

    def _by_products(
        self, points: tf.Tensor, rows: tf.Tensor, limits: tf.Tensor, count: int, asked: int
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The nearest rows [B, m] among the best `asked`, and whether no other row is as near."""
        about = self._numbers(rows, points.dtype)
        exact = 1.0 - slack(points.dtype, int(rows.shape[1]))
        norms = exact * tf.reduce_sum(tf.square(points), axis=1)
        closeness = 2.0 * tf.matmul(about, points, transpose_b=True) - norms
        if self._levels is not None:
            for place in self._codes:
                apart = tf.cast(rows[:, place, None] != self._points[:, place], points.dtype)
                closeness -= tf.cast(exact * self._levels[place], points.dtype) * apart
        closeness, kept = tf.math.top_k(within(closeness, limits), asked)
        found, farthest = by_differences(self._points, rows, kept, count, limits, self._levels)
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
        points, rows = (without_codes(kernel, _scaled(kernel, one)) for one in (X, queries))
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
        points = _scaled(kernel, X)
        levels = _levels(kernel, int(points.shape[1]))
        return kernel.K_r2(squares(points, _scaled(kernel, rows), levels))
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


# ---


def earlier_neighbours(
    kernel: Kernel, X: tf.Tensor, queries: tf.Tensor, places: np.ndarray, count: int
) -> np.ndarray:
    """The rows nearest to each query, among those before its place in an ordering.

    :param kernel: of one latent function.
    :param X: inputs [N, D] in the ordering.
    :param queries: inputs [B, D], usually rows of X.
    :param places: [B]: only rows 0 to place - 1 of X come before a query.
    :param count: m, the number of neighbours.
    :return: rows of X [B, m], int32, below the `places`; -1 for none. Not differentiable, nor
        inside a `tf.function`. Cost: B N D, or N log N for the indexes and B m log N for the
        search.
    """
    # Queries at places i with 2^k <= i < 2^(k+1) are searched for among the first 2^(k+1) rows, at
    # least half of which come before them.
    found = np.full((len(places), count), NOBODY, np.int32)
    octave = np.frexp(np.maximum(places, 1).astype(float))[1]  # 2^(octave - 1) <= i < 2^octave
    for power in np.unique(octave):
        these = np.flatnonzero((octave == power) & (places > 0))
        if len(these):
            last = min(2 ** int(power), int(X.shape[0]))
            index = row_index(kernel, X[:last])
            first = tf.constant(places[these], tf.int32)
            found[these] = index.nearest(tf.gather(queries, these), count, first=first).numpy()
    return found
