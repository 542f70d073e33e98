"""Counts of words: checks, splits, blocks of documents, and the assignment of words to topics."""

from __future__ import annotations

__all__ = [
    "Block", "Counts", "TopicWeights", "Words", "check_counts", "put_rows", "rows_of",
    "scaled_exp", "split_into_blocks", "split_words", "topic_weights",
]  # fmt: skip

from typing import Any, NamedTuple, TypeAlias

import gpflow
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.special import psi

from ..errors import DataError
from ..summaries import short_repr

Counts: TypeAlias = npt.ArrayLike | sp.spmatrix | sp.sparray
"""Counts [D, V] of V words in D documents, dense or sparse."""


def check_counts(X: Counts, num_words: int | None = None, name: str = "X") -> sp.csr_matrix:
    """Return counts [D, V] as a CSR matrix without zeros or repeated cells.

    Counts may be fractions. Single precision is kept.
    """
    try:
        if np.ma.is_masked(X):
            raise ValueError(
                f"it has masked entries; use {name}.filled(0), or remove the documents"
            )
        array: Any = X if sp.issparse(X) else np.asarray(X)
        if array.dtype.kind in "USMmc":
            raise ValueError(f"it holds {array.dtype} values")
        if array.dtype == object and not sp.issparse(array):
            array = array.astype(float)  # SciPy takes None for a zero
        single = array.dtype == np.float32
        counts = sp.csr_matrix(array, dtype=np.float32 if single else gpflow.default_float())
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{name} must be a matrix [documents, words] of counts, dense or sparse: {error}."
        ) from error
    if array.ndim != 2 or min(counts.shape) == 0:
        raise DataError(
            f"{name} has shape {array.shape}; it must be a matrix [documents, words] with at least"
            " one of each."
        )
    if not np.isfinite(counts.data).all():
        raise DataError(f"{name} has counts that are NaN or infinite; they must be finite.")
    if (counts.data < 0.0).any():
        raise DataError(
            f"{name} has negative counts (least {counts.data.min():g}); they must be at least 0."
        )
    if not counts.has_canonical_format or (counts.data == 0.0).any():
        counts = counts.copy()
        counts.sum_duplicates()
        counts.eliminate_zeros()
    if num_words is not None and counts.shape[1] != num_words:
        raise DataError(
            f"{name} has {counts.shape[1]} words (columns) and the topics were fitted on"
            f" {num_words}; count the words of the same vocabulary, in the same order."
        )
    return counts


def split_words(
    X: Counts, share: float = 0.5, seed: int = 0
) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Split the words of each document at random, for `perplexity(observed, held_out)`.

    :param X: counts [D, V], whole numbers.
    :param share: probability that an occurrence of a word is observed.
    :param seed: of the split.
    :return: observed and held-out counts, CSR matrices [D', V], without documents with an empty
        part.

    Example::

        observed, held_out = split_words(counts[test])
        LatentDirichletAllocation(20).fit(counts[train]).perplexity(observed, held_out)
    """
    counts = check_counts(X)
    if not 0.0 < share < 1.0:
        raise DataError(
            f"share={short_repr(share)} must lie between 0 and 1; use 0.5 to observe half of the"
            " words."
        )
    if (counts.data != np.round(counts.data)).any():
        raise DataError(
            "X has counts that are not whole numbers, which cannot be split; round them."
        )
    drawn = np.random.default_rng(seed).binomial(counts.data.astype(int), share)
    observed, held_out = counts.copy(), counts.copy()
    observed.data, held_out.data = drawn.astype(counts.dtype), counts.data - drawn
    observed.eliminate_zeros()
    held_out.eliminate_zeros()
    kept = (observed.getnnz(axis=1) > 0) & (held_out.getnnz(axis=1) > 0)
    if not kept.any():
        raise DataError(
            "No document of X has words in both parts; X must have documents of at least two words."
        )
    return observed[kept], held_out[kept]


# ---
# NamedTuples of arrays [b, ...], one row per document.


def rows_of(arrays: Any, which: np.ndarray) -> Any:
    """Copies of the rows of arrays [b, ...], by a mask [b] or indices."""
    return arrays._make(array[which] for array in arrays)


def put_rows(arrays: Any, which: np.ndarray, part: Any) -> None:
    """Overwrite rows of arrays [b, ...] in place by `part`."""
    for array, values in zip(arrays, part):
        array[which] = values


# ---
# Documents in blocks that fit the cache.


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
    budget, blocks = BLOCK_BYTES // counts.dtype.itemsize, []
    while len(order):
        sizes = np.arange(1, len(order) + 1) * (
            lengths[order] * numbers_per_word + numbers_per_document
        )
        size = max(1, int(np.searchsorted(sizes, budget, side="right")))
        rows, order = order[:size], order[size:]
        width = np.arange(lengths[rows[-1]])
        real = width < lengths[rows, None]
        cells = (counts.indptr[rows, None] + width)[real]
        words, values = np.zeros(real.shape, np.intp), np.zeros(real.shape, counts.dtype)
        words[real], values[real] = counts.indices[cells], counts.data[cells]
        blocks.append(Block(rows, words, values, cells))
    return blocks


# ---
# The words of a block of documents, and their assignment to topics.


# The best assignment phi_dwk is exp E log theta_dk times exp E log beta_kw, normalised over k,
# (T2). Only its sums are stored.


def scaled_exp(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """exp(x - max x) [..., K] and the maximum over the last axis [...]."""
    # Values are kept above e^-318 (e^-39 in single precision), so products of two stay normal
    # numbers.
    top = x.max(-1, keepdims=True)
    floor = 0.45 * np.log(np.finfo(x.dtype).tiny)
    return np.exp(np.maximum(x - top, floor)), top[..., 0]


class TopicWeights(NamedTuple):
    """The weights exp E log beta_kw [V, K] over each word's largest, and its logarithm [V]."""

    weights: np.ndarray
    shift: np.ndarray


def topic_weights(
    parameters: np.ndarray, columns: np.ndarray | slice = slice(None)
) -> TopicWeights:
    """The weights of words `columns` for q(beta_k) = Dir(lambda_k), lambda [K, V]."""
    mean_log = psi(parameters[:, columns]) - psi(parameters.sum(1, keepdims=True))  # (T1)
    return TopicWeights(*scaled_exp(np.ascontiguousarray(mean_log.T)))


class Words(NamedTuple):
    """The distinct words of b documents."""

    weights: np.ndarray
    """Weights of each word in the topics [b, W, K]."""
    counts: np.ndarray
    """n_dw [b, W]."""
    lengths: np.ndarray
    """N_d [b], all words of a document."""
    shift: np.ndarray
    """sum_w n_dw x the shift of the word [b], nats."""

    @classmethod
    def gather(cls, block: Block, topics: TopicWeights) -> Words:
        """The words of a block, with weights looked up once for all steps."""
        shift = (block.counts * topics.shift[block.words]).sum(1, dtype=float)
        weights = topics.weights.take(block.words, axis=0)
        return cls(weights, block.counts, block.counts.sum(1), shift)

    def totals(self, weights: np.ndarray) -> np.ndarray:
        """Per word, the sum over topics of document weights [b, K] times word weights: [b, W]."""
        return np.matmul(self.weights, weights[:, :, None])[..., 0]

    def expected(self, weights: np.ndarray, ratios: np.ndarray) -> np.ndarray:
        """sum_w n_dw phi_dwk [b, K]; n phi = ratio [b, W] x document's x word's weight."""
        return weights * np.matmul(ratios[:, None, :], self.weights)[:, 0]  # (T2)

    def assign(
        self, weights: np.ndarray, shift: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Ratios [b, W], expected words [b, K], and the words' part of the bound [b], in nats.

        All at the best phi, for weights of the topics [b, K] over the largest, with logarithm
        `shift` [b].
        """
        totals = self.totals(weights)
        ratios = self.counts / totals
        evidence = (
            (self.counts * np.log(totals)).sum(1, dtype=float) + self.lengths * shift + self.shift
        )  # (T3)
        return ratios, self.expected(weights, ratios), evidence
