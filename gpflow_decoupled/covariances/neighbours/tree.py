"""A k-d tree of the rows."""

from __future__ import annotations

__all__ = ["Tree"]

import numpy as np
import tensorflow as tf
from scipy.spatial import cKDTree

from ...linalg.blocks import map_rows
from ..blocks import number_of_threads
from .distances import NOBODY, SPARE, by_differences, slack

_WORTH_MOVING = 1_000
"""Rows that can be moved in the time that it saves a query."""
_LEAF = 64
"""Rows of a leaf. With SciPy's 16 exact queries take a fifth to a half longer, with 128 as long."""
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
