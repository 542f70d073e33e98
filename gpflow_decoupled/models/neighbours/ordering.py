"""The order of the rows, and their neighbours."""

from __future__ import annotations

__all__ = ["appended_order", "find_neighbours", "most_neighbours", "random_order"]

import numpy as np
import tensorflow as tf

from ...covariances.neighbours import earlier_neighbours, row_index
from .groups import Group


def random_order(num_rows: int, seed: int) -> np.ndarray:
    """All rows [N] in a random order."""
    # Early rows then have far neighbours, which inform about long lengthscales.
    return np.random.default_rng(seed).permutation(num_rows).astype(np.int32)


def appended_order(order: np.ndarray, num_rows: int) -> np.ndarray:
    """Append new rows to an order [N]: [N + num_rows]."""
    return np.concatenate([order, np.arange(len(order), len(order) + num_rows, dtype=np.int32)])


def most_neighbours(groups: list[Group], X: tf.Tensor, before: bool) -> int:
    """The most inputs of X [N, D] that a row can have as neighbours; see `find_neighbours`."""
    N = int(X.shape[0])
    inputs = [N if one.copies is None else len(one.copies.first) for one in groups]
    others = [size - (before or one.copies is None) for size, one in zip(inputs, groups)]
    return max(1, *others)


def find_neighbours(
    groups: list[Group],
    X: tf.Tensor,
    order: np.ndarray,
    rows: np.ndarray,
    count: int,
    before: bool,
) -> np.ndarray:
    """Find the neighbours of rows of the data, for each group of outputs.

    :param groups: G groups; X is [N, D].
    :param order: all rows [N] in the ordering.
    :param rows: B of the rows.
    :param count: m.
    :param before: search earlier rows in the ordering; False searches all others.
    :return: row numbers [G, B, m], int32, one for each input, -1 where there are fewer.
    """
    found: dict[tuple, np.ndarray] = {}
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order), dtype=order.dtype)
    # latents with different kernels or missing entries have different neighbours
    keys = [(id(g.kernel), None if g.rows is None else g.columns) for g in groups]
    for key, group in zip(keys, groups):
        if key not in found:
            found[key] = _of_group(group, X, order, rank, rows, count, before)
    return np.stack([found[key] for key in keys])


def _of_group(
    group: Group,
    X: tf.Tensor,
    order: np.ndarray,
    rank: np.ndarray,
    rows: np.ndarray,
    count: int,
    before: bool,
) -> np.ndarray:
    copies, inputs = group.copies, tf.gather(X, rows)
    if before:
        usable = order
        if group.rows is not None:
            usable = order[np.isin(order, group.rows)]
        if copies is not None:  # an input comes where the earliest of its rows comes
            own, least = copies.place[copies.rows], np.full(copies.number, len(order), rank.dtype)
            np.minimum.at(least, own, rank[copies.rows])
            first = rank.copy()
            first[copies.rows] = least[own]
            usable = usable[first[usable] == rank[usable]]
            rank = first
        # how many usable rows come before each row, which is its own place if it is one of them
        place = np.searchsorted(rank[usable], rank[rows])
        places = earlier_neighbours(group.kernel, tf.gather(X, usable), inputs, place, count)
    else:
        usable = np.arange(len(order)) if group.rows is None else group.rows
        usable = usable if copies is None else copies.first
        place = np.minimum(np.searchsorted(usable, rows), len(usable) - 1)
        own = usable[place] == rows
        if copies is not None:  # the other rows of the same input are neighbours
            own &= copies.place[rows] < 0
        itself = tf.constant(np.where(own, place, -2), tf.int32)
        index = row_index(group.kernel, tf.gather(X, usable))
        places = index.nearest(inputs, count, itself=itself).numpy()
    return np.where(places < 0, -1, usable[np.maximum(places, 0)]).astype(np.int32)
