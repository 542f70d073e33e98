"""Word counts: checks and splits."""

from __future__ import annotations

__all__ = ["Counts", "check_counts", "split_words"]

from typing import TypeAlias

import gpflow
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from ..errors import DataError
from ..summaries import short_repr

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
