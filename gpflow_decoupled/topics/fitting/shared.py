"""Topics and priors, and their updates."""

from __future__ import annotations

__all__ = [
    "Shared",
    "batch_update",
    "start_topics",
    "stochastic_update",
    "topics_bound",
    "with_best_topic_prior",
]

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..dirichlet_functions import expected_log, minus_kl
from ..dirichlet_priors import best_symmetric_prior
from ..proportions.family import Proportions
from .local import Local


class Shared(NamedTuple):
    """The global variables of a topic model."""

    components: np.ndarray
    """lambda [K, V] of q(beta_k) = Dir(lambda_k)."""
    topic_prior: np.ndarray
    """eta [V]."""
    proportions: Proportions[Any]
    """Prior of theta_d, and its local step; the type of its states depends on the model."""


def start_topics(counts: sp.csr_matrix, num_topics: int, start: str, seed: int) -> np.ndarray:
    """The topics' parameters lambda [K, V] before the first pass, from counts [D, V].

    :param start: "documents" for one document's counts per topic plus Gamma(100, 1/100) draws,
        "random" for draws alone.
    """
    generator = np.random.default_rng(seed)
    if start == "random":
        return generator.gamma(100.0, 0.01, (num_topics, counts.shape[1])).astype(counts.dtype)
    rows = generator.permutation(counts.shape[0])[:num_topics]
    # fewer documents than topics: some are used twice, and the draws make their topics differ
    if len(rows) < num_topics:
        rows = np.resize(rows, num_topics)
    noise = generator.gamma(100.0, 0.01, (num_topics, counts.shape[1]))
    return (counts[rows].toarray() + noise).astype(counts.dtype)


def batch_update(shared: Shared, local: Local, learn_topics: bool) -> Shared:
    """The best topics and priors for the local states of all documents."""
    components = (shared.topic_prior + local.statistics).astype(local.statistics.dtype)  # (T2)
    shared = Shared(components, shared.topic_prior, shared.proportions.learned(local.state))
    return with_best_topic_prior(shared) if learn_topics else shared


def with_best_topic_prior(shared: Shared) -> Shared:
    """The same topics with their best symmetric eta."""
    best = best_symmetric_prior(
        float(shared.topic_prior.mean()), expected_log(shared.components.astype(float))
    )
    return shared._replace(topic_prior=np.full_like(shared.topic_prior, best))


def stochastic_update(
    shared: Shared, local: Local, columns: np.ndarray, scale: float, rho: float
) -> Shared:
    """Make a natural-gradient step from a minibatch.

    :param columns: words [V'] of the statistics.
    :param scale: documents of the corpus per document of the minibatch.
    :param rho: in (0, 1].
    """
    components = (1.0 - rho) * shared.components + (rho * shared.topic_prior).astype(
        shared.components.dtype
    )  # (T4)
    components[:, columns] += rho * scale * local.statistics  # (T4)
    proportions = shared.proportions.learned(local.state, rho, scale * len(local.bounds))
    return shared._replace(components=components, proportions=proportions)


def topics_bound(shared: Shared) -> float:
    """The bound's terms without a document, in nats: topics, and priors of learned priors."""
    topics = float(minus_kl(shared.topic_prior, shared.components.astype(float)).sum())  # (T3)
    return topics + shared.proportions.log_prior
