"""The local step for all documents: blocks in turn, and the sums that the topics need."""

from __future__ import annotations

__all__ = ["Limits", "Local", "local_step"]

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from .blocks import Block
from .words import TopicWeights, Words


class Limits(NamedTuple):
    """When the local step of a document ends."""

    tolerance: float
    """mean change of the expected number of words of a topic"""
    max_steps: int


class Local(NamedTuple):
    """What a local step found."""

    state: Any
    """arrays [D, ...] of q(theta_d)"""
    bounds: np.ndarray
    """[D] F_d of each document, nats"""
    statistics: np.ndarray
    """[K, V] sum_d n_dw phi_dwk"""


def local_step(
    counts: sp.csr_matrix,
    blocks: Sequence[Block],
    topics: TopicWeights,
    proportions: Any,
    state: Any,
    limits: Limits,
    fallback: Any | None = None,
) -> Local:
    """Move q(theta_d) of all documents of counts [D, V] to their optimum at fixed topics, from `state`.

    :param fallback: another state; a document for which it is better than what was found takes it, so that a fresh start
        never loses. Cost of a step: the number of non-zeros times K. No phi is stored: the sums over documents are a product
        of sparse ratios [D, V] with weights [D, K].
    """
    state = type(state)(*(array.copy() for array in state))
    bounds = np.empty(counts.shape[0])
    weights = np.empty((counts.shape[0], topics.weights.shape[1]), dtype=counts.dtype)
    ratios = np.empty_like(counts.data)
    for block in blocks:
        words = Words.gather(block, topics)
        found = proportions.converge(words, _rows(state, block.rows), *limits)
        evaluation = proportions.evaluate(words, found)
        if fallback is not None:
            other = _rows(fallback, block.rows)
            found, evaluation = _better(found, evaluation, other, proportions.evaluate(words, other))
        for array, part in zip(state, found):
            array[block.rows] = part
        bounds[block.rows], weights[block.rows] = evaluation.bound, evaluation.weights
        ratios[block.cells] = evaluation.ratios[block.counts > 0]
    shares = sp.csr_matrix((ratios, counts.indices, counts.indptr), shape=counts.shape)
    return Local(state, bounds, (topics.weights * (shares.T @ weights)).T)  # (T2)


def _rows(state: Any, rows: np.ndarray) -> Any:
    return type(state)(*(array[rows] for array in state))


def _better(state: Any, evaluation: Any, other: Any, other_evaluation: Any) -> tuple[Any, Any]:
    """Of two states of the same documents, the one with the larger bound, document by document."""
    worse = evaluation.bound < other_evaluation.bound
    for kept, new in ((state, other), (evaluation, other_evaluation)):
        for array, part in zip(kept, new):
            array[worse] = part[worse]
    return state, evaluation
