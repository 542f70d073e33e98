"""Documents in blocks that fit the cache."""

from __future__ import annotations

__all__ = ["Block", "split_into_blocks"]

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

BLOCK_BYTES = 1 << 20
"""Bytes of a block's weights [b, W, K], about a core's second-level cache."""


class Block(NamedTuple):
    """b documents of at most W distinct words, padded by word 0 with count 0."""

    rows: np.ndarray
    """Documents [b]."""
    words: np.ndarray
    """Columns of the counts [b, W]."""
    counts: np.ndarray
    """[b, W]"""
    cells: np.ndarray
    """Places of the block's true words among the non-zeros of the counts, row by row."""


def split_into_blocks(
    counts: sp.csr_matrix, numbers_per_word: int, numbers_per_document: int = 0
) -> list[Block]:
    """Split documents of counts [D, V] into blocks, by increasing number of distinct words.

    :param numbers_per_word: stored by the local step per distinct word, K.
    :param numbers_per_document: stored per document besides.
    """
    lengths = np.diff(counts.indptr)
    order = np.argsort(lengths, kind="stable")
    budget = BLOCK_BYTES // counts.dtype.itemsize
    blocks, start = [], 0
    while start < len(order):
        sizes = np.arange(1, len(order) - start + 1) * (
            lengths[order[start:]] * numbers_per_word + numbers_per_document
        )
        stop = start + max(1, int(np.searchsorted(sizes, budget, side="right")))
        blocks.append(_block(counts, order[start:stop], lengths))
        start = stop
    return blocks


def _block(counts: sp.csr_matrix, rows: np.ndarray, lengths: np.ndarray) -> Block:
    width = np.arange(lengths[rows[-1]])
    real = width < lengths[rows, None]
    cells = (counts.indptr[rows, None] + width)[real]
    words, values = np.zeros(real.shape, dtype=np.intp), np.zeros(real.shape, dtype=counts.dtype)
    words[real], values[real] = counts.indices[cells], counts.data[cells]
    return Block(rows, words, values, cells)
