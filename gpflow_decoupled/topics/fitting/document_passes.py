"""Passes over all documents, or minibatches."""

from __future__ import annotations

__all__ = ["Progress", "fit_batch", "fit_stochastic", "minibatch_step"]

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from ..document_blocks import split_into_blocks
from ..documents import PerDocument, put_rows, rows_of
from ..topic_settings import Settings
from ..words import topic_weights
from .history import History
from .local import Limits, Local, local_step
from .shared import Shared, batch_update, stochastic_update, topics_bound, with_best_topic_prior


class Progress(NamedTuple):
    """The state of a fit between passes."""

    shared: Shared
    updates: int = 0
    """Stochastic steps made."""
    seen: int = 0
    """Documents given to `fit` and `partial_fit`."""


def fit_batch(
    settings: Settings, counts: sp.csr_matrix, begun: Progress, history: History
) -> tuple[Progress, PerDocument, str]:
    """Update on all documents (T2) until the bound settles.

    Counts are [D, V]. In the first `fresh_passes` each document also starts afresh and keeps the
    better result.
    """
    shared, limits = begun.shared, Limits(settings.local_tolerance, settings.max_local_steps)
    blocks = split_into_blocks(counts, settings.num_topics, shared.proportions.numbers_per_document)
    fresh = shared.proportions.start(counts.shape[0], counts.dtype)
    local = local_step(
        counts, blocks, topic_weights(shared.components), shared.proportions, fresh, limits
    )
    for number in range(1, settings.max_passes + 1):
        shared = batch_update(shared, local, settings.learn_topic_prior)
        topics = topic_weights(shared.components)
        states = (fresh, local.state) if number <= settings.fresh_passes else (local.state, None)
        local = local_step(counts, blocks, topics, shared.proportions, states[0], limits, states[1])
        history.append(number, float(local.bounds.sum()) + topics_bound(shared))
        if number > settings.fresh_passes and history.has_settled(settings.tolerance):
            return Progress(shared, seen=counts.shape[0]), local.state, "converged"
    return Progress(shared, seen=counts.shape[0]), local.state, "max_passes"


def fit_stochastic(
    settings: Settings, counts: sp.csr_matrix, begun: Progress, history: History
) -> tuple[Progress, PerDocument, str]:
    """Step (T4) on shuffled minibatches, `max_passes` times through all documents.

    Arguments and result as `fit_batch`.
    """
    # A document's local step starts at its last result.
    generator, now = np.random.default_rng(settings.seed), begun
    state = now.shared.proportions.start(counts.shape[0], counts.dtype)
    bounds = np.zeros(counts.shape[0])
    for number in range(1, settings.max_passes + 1):
        order = generator.permutation(counts.shape[0])
        for first in range(0, len(order), settings.batch_size):
            rows = order[first : first + settings.batch_size]
            part, scale = rows_of(state, rows), counts.shape[0] / len(rows)
            shared, local = minibatch_step(settings, now, counts[rows], part, scale)
            now, bounds[rows] = Progress(shared, now.updates + 1, counts.shape[0]), local.bounds
            put_rows(state, rows, local.state)
        if settings.learn_topic_prior:
            now = now._replace(shared=with_best_topic_prior(now.shared))
        history.append(number, float(bounds.sum()) + topics_bound(now.shared))
    return now, state, "max_passes"


def minibatch_step(
    settings: Settings, now: Progress, counts: sp.csr_matrix, state: PerDocument, scale: float
) -> tuple[Shared, Local]:
    """Make one step (T4) on a minibatch.

    :param counts: of the minibatch [B, V]; `state`, the start of the local step, arrays [B, ...].
    """
    # the local step sees only the words that occur, so that its cost does not grow with the
    # vocabulary
    columns, inverse = np.unique(counts.indices, return_inverse=True)
    part = sp.csr_matrix(
        (counts.data, inverse.astype(counts.indptr.dtype), counts.indptr),
        (counts.shape[0], len(columns)),
    )
    proportions = now.shared.proportions
    blocks = split_into_blocks(part, settings.num_topics, proportions.numbers_per_document)
    limits = Limits(settings.local_tolerance, settings.max_local_steps)
    topics = topic_weights(now.shared.components, columns)
    local = local_step(part, blocks, topics, proportions, state, limits)
    rho = (now.updates + 1.0 + settings.delay) ** -settings.forgetting_rate  # (T4)
    return stochastic_update(now.shared, local, columns, scale, rho), local
