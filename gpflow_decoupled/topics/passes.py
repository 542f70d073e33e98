"""Passes over the documents: coordinate ascent on all of them, or natural-gradient steps on minibatches."""

from __future__ import annotations

__all__ = ["Progress", "fit_batch", "fit_stochastic", "minibatch_step"]

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from .blocks import split_into_blocks
from .history import History
from .local import Limits, Local, local_step
from .shared import Shared, batch_update, stochastic_update, topics_bound, with_best_topic_prior
from .words import topic_weights


class Progress(NamedTuple):
    """Where a fit is."""

    shared: Shared
    updates: int = 0
    """stochastic steps made"""
    seen: int = 0
    """documents given to `fit` and `partial_fit`"""


def fit_batch(settings: Any, counts: sp.csr_matrix, begun: Progress, history: History) -> tuple[Progress, Any, str]:
    """(T2) on all documents until the bound settles. Returns the progress, the local state and why it stopped.

    Local states are kept from pass to pass. In each of the first `fresh_passes` every document starts anew as well, and
    takes what is better: documents leave topics that they were given by chance, and the bound rises all the same.
    """
    shared, limits = begun.shared, Limits(settings.local_tolerance, settings.max_local_steps)
    blocks = split_into_blocks(counts, settings.num_topics, shared.proportions.numbers_a_document)
    fresh = shared.proportions.start(counts.shape[0], counts.dtype)
    local = local_step(counts, blocks, topic_weights(shared.components), shared.proportions, fresh, limits)
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
    settings: Any, counts: sp.csr_matrix, begun: Progress, history: History
) -> tuple[Progress, Any, str]:
    """(T4) on shuffled minibatches, `max_passes` times through all documents. Returns as `fit_batch`.

    The local states of the last visit are where the next one starts.
    """
    generator, now = np.random.default_rng(settings.seed), begun
    state = now.shared.proportions.start(counts.shape[0], counts.dtype)
    bounds = np.zeros(counts.shape[0])
    for number in range(1, settings.max_passes + 1):
        order = generator.permutation(counts.shape[0])
        for first in range(0, len(order), settings.batch_size):
            rows = order[first : first + settings.batch_size]
            part = type(state)(*(array[rows] for array in state))
            shared, local = minibatch_step(settings, now, counts[rows], part, counts.shape[0] / len(rows))
            now, bounds[rows] = Progress(shared, now.updates + 1, counts.shape[0]), local.bounds
            for array, found in zip(state, local.state):
                array[rows] = found
        if settings.learn_topic_prior:
            now = now._replace(shared=with_best_topic_prior(now.shared))
        history.append(number, float(bounds.sum()) + topics_bound(now.shared))
    return now, state, "max_passes"


def minibatch_step(
    settings: Any, now: Progress, counts: sp.csr_matrix, state: Any, scale: float
) -> tuple[Shared, Local]:
    """One step (T4) from documents [B, V] that stand for `scale` times as many; the local step starts at `state`."""
    columns, inverse = np.unique(counts.indices, return_inverse=True)
    part = sp.csr_matrix(
        (counts.data, inverse.astype(counts.indptr.dtype), counts.indptr), (counts.shape[0], len(columns))
    )
    proportions = now.shared.proportions
    blocks = split_into_blocks(part, settings.num_topics, proportions.numbers_a_document)
    limits = Limits(settings.local_tolerance, settings.max_local_steps)
    topics = topic_weights(now.shared.components, columns)
    local = local_step(part, blocks, topics, proportions, state, limits)
    rho = (now.updates + 1.0 + settings.delay) ** -settings.forgetting_rate  # (T4)
    return stochastic_update(now.shared, local, columns, scale, rho), local
