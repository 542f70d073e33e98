"""Neighbours among earlier rows."""

from __future__ import annotations

__all__ = ["earlier_neighbours"]

import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel

from .distances import NOBODY
from .index import row_index


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
