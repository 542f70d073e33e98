"""Documents in blocks that fit the cache: padded to a common number of distinct words, so that BLAS sees rectangles."""

from __future__ import annotations

__all__ = ["Block", "split_into_blocks"]

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

BLOCK_BYTES = 1 << 20
"""Of the weights [b, W, K] of a block: about the second-level cache of one core; measured, flat from a half to twice."""


class Block(NamedTuple):
    """b documents with at most W distinct words each; padding has word 0 and count 0."""

    rows: np.ndarray
    """[b] which documents"""
    words: np.ndarray
    """[b, W] columns of the counts"""
    counts: np.ndarray
    """[b, W]"""
    cells: np.ndarray
    """[number of words of the block] places among the non-zeros of the counts, in the order of the true words here"""


def split_into_blocks(counts: sp.csr_matrix, numbers_a_word: int, numbers_a_document: int = 0) -> list[Block]:
    """All documents of counts [D, V], short ones first.

    :param numbers_a_word: K, numbers that a word of a document takes. :param numbers_a_document: what a document takes
        besides. A block has at least one document.
    """
    lengths = np.diff(counts.indptr)
    order = np.argsort(lengths, kind="stable")
    budget = BLOCK_BYTES // counts.dtype.itemsize
    blocks, start = [], 0
    while start < len(order):
        sizes = np.arange(1, len(order) - start + 1) * (lengths[order[start:]] * numbers_a_word + numbers_a_document)
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
