"""The local step for all documents."""

from __future__ import annotations

__all__ = ["Limits", "Local", "local_step"]

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import scipy.sparse as sp

from ..document_blocks import Block
from ..documents import PerDocument, chosen, copied, put_rows, rows_of
from ..proportions.family import Proportions
from ..words import TopicWeights, Words

State = TypeVar("State", bound=PerDocument)


class Limits(NamedTuple):
    """Stopping rule of a document's local step."""

    tolerance: float
    """Change of a topic's expected number of words, averaged over topics."""
    max_steps: int


class Local(NamedTuple):
    """The result of a local step."""

    state: PerDocument
    """Parameters of q(theta_d), arrays [D, ...]."""
    bounds: np.ndarray
    """F_d of each document [D], nats."""
    statistics: np.ndarray
    """sum_d n_dw phi_dwk [K, V]."""


def local_step(
    counts: sp.csr_matrix,
    blocks: Sequence[Block],
    topics: TopicWeights,
    proportions: Proportions[State],
    state: State,
    limits: Limits,
    fallback: State | None = None,
) -> Local:
    """Move q(theta_d) of all documents to its optimum at fixed topics.

    A step costs the non-zero counts times K. The assignments phi [D, V, K] are never stored, only
    sums. States are arrays [D, ...]; documents take `fallback` where their bound is better there.
    """
    state = copied(state)
    bounds = np.empty(counts.shape[0])
    weights = np.empty((counts.shape[0], topics.weights.shape[1]), dtype=counts.dtype)
    ratios = np.empty_like(counts.data)
    for block in blocks:
        words = Words.gather(block, topics)
        found = proportions.converge(words, rows_of(state, block.rows), *limits)
        evaluation = proportions.evaluate(words, found)
        if fallback is not None:
            other = rows_of(fallback, block.rows)
            other_evaluation = proportions.evaluate(words, other)
            better = evaluation.bound >= other_evaluation.bound
            found, evaluation = (
                chosen(better, found, other),
                chosen(better, evaluation, other_evaluation),
            )
        put_rows(state, block.rows, found)
        bounds[block.rows], weights[block.rows] = evaluation.bound, evaluation.weights
        ratios[block.cells] = evaluation.ratios[block.counts > 0]
    shares = sp.csr_matrix((ratios, counts.indices, counts.indptr), shape=counts.shape)
    return Local(state, bounds, (topics.weights * (shares.T @ weights)).T)  # (T2)
