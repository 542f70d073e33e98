"""Arrays with one row per document."""

from __future__ import annotations

__all__ = [
    "Assignment", "Block", "Counts", "PerDocument", "TopicWeights", "Words", "check_counts",
    "chosen", "copied", "put_rows", "rows_of", "split_into_blocks", "split_words",
    "topic_weights",
]  # fmt: skip

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

import gpflow
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.special import psi

from ..errors import DataError
from ..summaries import short_repr
from .dirichlet import expected_log, scaled_exp

# ---
# Word counts: checks and splits.


Counts: TypeAlias = npt.ArrayLike | sp.spmatrix | sp.sparray
"""Counts [D, V] of V words in D documents, dense or sparse."""


def check_counts(X: Counts, num_words: int | None = None, name: str = "X") -> sp.csr_matrix:
    """Return counts [D, V] as a CSR matrix without zeros or repeated cells.

    Counts may be fractions. Single precision is kept.
    """
    try:
        counts = sp.csr_matrix(X if sp.issparse(X) else _as_numbers(X, name))
        counts = counts.astype(_dtype(counts), copy=False)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{name} must be a matrix [documents, words] of counts, dense or sparse: {error}."
        ) from error
    if np.ndim(X) != 2 or min(counts.shape) == 0:
        raise DataError(
            f"{name} has shape {np.shape(X)}; it must be a matrix [documents, words] with at least"
            " one of each."
        )
    _check_values(counts, name)
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
    parts = []
    for values in (drawn, counts.data - drawn):
        part = counts.copy()
        part.data = values.astype(counts.dtype)
        part.eliminate_zeros()
        parts.append(part)
    kept = np.flatnonzero((np.diff(parts[0].indptr) > 0) & (np.diff(parts[1].indptr) > 0))
    if len(kept) == 0:
        raise DataError(
            "No document of X has words in both parts; X must have documents of at least two words."
        )
    return parts[0][kept], parts[1][kept]


def _as_numbers(X: npt.ArrayLike, name: str) -> np.ndarray:
    if np.ma.is_masked(X):
        raise DataError(
            f"{name} has masked entries; they must be counts: use {name}.filled(0), or remove their"
            " documents."
        )
    array = np.asarray(X)
    if array.dtype.kind in "USMmc":
        raise DataError(
            f"{name} holds {array.dtype} values; it must be a matrix [documents, words] of counts."
        )
    return np.asarray(array, dtype=_dtype(X))


def _dtype(X: Counts) -> type:
    return np.float32 if getattr(X, "dtype", None) == np.float32 else gpflow.default_float()


def _check_values(counts: sp.csr_matrix, name: str) -> None:
    if not np.isfinite(counts.data).all():
        raise DataError(f"{name} has counts that are NaN or infinite; they must be finite.")
    if (counts.data < 0.0).any():
        raise DataError(
            f"{name} has negative counts (least {counts.data.min():g}); they must be at least 0."
        )


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


# ---


Arrays = TypeVar("Arrays", bound="PerDocument")


class PerDocument(Protocol):
    """A NamedTuple of arrays [b, ...], one row per document."""

    def __iter__(self) -> Iterator[np.ndarray]:
        """The arrays."""


def rows_of(arrays: Arrays, which: np.ndarray) -> Arrays:
    """Rows of arrays [b, ...], by a mask [b] or indices."""
    return _rebuilt(arrays, (array[which] for array in arrays))


def copied(arrays: Arrays) -> Arrays:
    """Copy all arrays [b, ...]."""
    return _rebuilt(arrays, (array.copy() for array in arrays))


def put_rows(arrays: Arrays, which: np.ndarray, part: Arrays) -> None:
    """Overwrite rows of arrays [b, ...] in place by `part`."""
    for array, values in zip(arrays, part):
        array[which] = values


def chosen(which: np.ndarray, first: Arrays, second: Arrays) -> Arrays:
    """Per document, the row of `first` where `which` [b], else of `second`."""
    pairs = zip(first, second)
    return _rebuilt(
        first, (np.where(which.reshape(-1, *[1] * (a.ndim - 1)), a, b) for a, b in pairs)
    )


def _rebuilt(like: Arrays, arrays: Iterable[np.ndarray]) -> Arrays:
    make: Callable[..., Arrays] = type(like)
    return make(*arrays)


# ---
# The words of a block of documents, and their assignment to topics.


# The best assignment phi_dwk is exp E log theta_dk times exp E log beta_kw, normalised over k,
# (T2). Only its sums are stored.


class TopicWeights(NamedTuple):
    """The weights exp E log beta_kw, divided by each word's largest."""

    weights: np.ndarray
    """[V, K]"""
    shift: np.ndarray
    """Logarithm of the largest [V], nats."""


class Assignment(NamedTuple):
    """Sums over the best phi of (T2) in each document."""

    ratios: np.ndarray
    """n_dw over the sum over topics [b, W]: n phi = ratio x document's weight x word's weight."""
    expected: np.ndarray
    """sum_w n_dw phi_dwk [b, K]."""
    evidence: np.ndarray
    """sum_w n_dw log sum_k exp(E log theta_dk + E log beta_kw) [b], the words' part of the bound at
    the best phi, nats.
    """


def topic_weights(parameters: np.ndarray, columns: np.ndarray | None = None) -> TopicWeights:
    """The weights for q(beta_k) = Dir(lambda_k).

    :param parameters: lambda [K, V].
    """
    if columns is None:
        mean_log = expected_log(parameters)  # (T1)
    else:
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
        return cls(
            topics.weights.take(block.words, axis=0), block.counts, block.counts.sum(1), shift
        )

    def take(self, which: np.ndarray) -> Words:
        """The words of some documents, by a mask or indices."""
        return Words(*(array[which] for array in self))

    def totals(self, weights: np.ndarray) -> np.ndarray:
        """Per word, the sum over topics of document weights [b, K] times word weights: [b, W]."""
        return np.matmul(self.weights, weights[:, :, None])[..., 0]

    def expected(self, weights: np.ndarray, ratios: np.ndarray) -> np.ndarray:
        """sum_w n_dw phi_dwk [b, K], for ratios = counts / totals [b, W]."""
        return weights * np.matmul(ratios[:, None, :], self.weights)[:, 0]  # (T2)

    def assign(self, weights: np.ndarray, shift: np.ndarray) -> Assignment:
        """Return the sums at the best phi.

        Weights of the topics [b, K] are divided by the largest, whose logarithm is `shift` [b].
        """
        totals = self.totals(weights)
        ratios = self.counts / totals
        evidence = (
            (self.counts * np.log(totals)).sum(1, dtype=float) + self.lengths * shift + self.shift
        )  # (T3)
        return Assignment(ratios, self.expected(weights, ratios), evidence)
