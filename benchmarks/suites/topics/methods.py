"""The methods of the topic suite, ours and scikit-learn's, timed in processor seconds."""

from __future__ import annotations

__all__ = ["METHODS", "Fitted", "fit"]

import argparse
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.decomposition import LatentDirichletAllocation as SklearnLDA

from gpflow_decoupled.topics import CorrelatedTopicModel, LatentDirichletAllocation

from .corpora import Corpus

METHODS: dict[str, dict[str, Any]] = {
    "LDA": {},
    "LDA, float32": {"single": True},
    "LDA, random start": {"start": "random"},
    "LDA, priors learned": {"learn_doc_prior": "vector", "learn_topic_prior": True},
    "LDA, stochastic, 2": {"method": "stochastic", "passes": 2},
    "LDA, stochastic, 5": {"method": "stochastic", "passes": 5},
    "LDA, stochastic, 10": {"method": "stochastic", "passes": 10},
    "correlated, dirichlet": {"posterior": "dirichlet"},
    "correlated, diagonal": {"posterior": "diagonal"},
    "correlated, gaussian": {"posterior": "gaussian"},
    "correlated, diagonal, prior": {"posterior": "diagonal", "prior_share": 1.0},
    "correlated, gaussian, prior": {"posterior": "gaussian", "prior_share": 1.0},
    "scikit-learn, 10": {"learning_method": "batch", "passes": 10},
    "scikit-learn, 50": {"learning_method": "batch", "passes": 50},
    "scikit-learn online, 10": {"learning_method": "online", "passes": 10},
}
"""Name -> options. A number in a name is one of passes; without it, a method stops by its own rule.

`prior_share` is `prior_documents`, of the prior of Sigma_0, as a multiple of the number of training
documents. """
MINIBATCH = {"batch_size": 128, "delay": 8.0, "forgetting_rate": 0.7}


class Fitted(NamedTuple):
    """What the suite needs of a fitted model."""

    passes: int
    seconds: float
    bound: float
    """on the training documents, nats"""
    bounds: np.ndarray
    """after each pass, nats; empty where the library records none"""
    monotone: bool
    """whether these bounds are of the whole corpus"""
    topics: np.ndarray
    """E beta [K, V]"""
    proportions: Callable[[sp.csr_matrix], np.ndarray]
    """counts [D, V] -> E theta [D, K]"""
    correlations: np.ndarray | None = None


def fit(name: str, data: Corpus, options: argparse.Namespace) -> Fitted:
    """Fit one of METHODS to the training documents."""
    settings = dict(METHODS[name])
    passes = settings.pop("passes", options.passes)
    make = _sklearn if "learning_method" in settings else _ours
    return make(settings, passes, data, options)


def _ours(
    settings: dict[str, Any], passes: int, data: Corpus, options: argparse.Namespace
) -> Fitted:
    train = data.train.astype(np.float32) if settings.pop("single", False) else data.train
    settings |= {"topic_prior": options.prior, "max_passes": passes, "seed": options.seed}
    if (share := settings.pop("prior_share", None)) is not None:
        settings["prior_documents"] = share * train.shape[0]
    if "posterior" in settings:
        model: CorrelatedTopicModel | LatentDirichletAllocation = CorrelatedTopicModel(
            options.topics, **settings
        )
    else:
        settings |= MINIBATCH if "method" in settings else {}
        model = LatentDirichletAllocation(options.topics, doc_prior=options.prior, **settings)
    began = time.process_time()
    model.fit(train)
    seconds = time.process_time() - began
    stochastic = model.method == "stochastic"
    bounds = model.history_["bound"]
    bound = model.score(train) if stochastic else model.bound_
    correlations = model.correlations_ if "posterior" in settings else None
    return Fitted(
        len(bounds),
        seconds,
        bound,
        bounds,
        not stochastic,
        model.topics_,
        model.transform,
        correlations,
    )


def _sklearn(
    settings: dict[str, Any], passes: int, data: Corpus, options: argparse.Namespace
) -> Fitted:
    names = {
        "batch_size": "batch_size",
        "delay": "learning_offset",
        "forgetting_rate": "learning_decay",
    }
    online = {
        names[name]: value
        for name, value in MINIBATCH.items()
        if settings["learning_method"] == "online"
    }
    priors = {"doc_topic_prior": options.prior, "topic_word_prior": options.prior}
    model = SklearnLDA(
        options.topics, max_iter=passes, random_state=options.seed, **priors, **settings, **online
    )
    began = time.process_time()
    model.fit(data.train)
    seconds = time.process_time() - began
    topics = model.components_ / model.components_.sum(1, keepdims=True)
    return Fitted(
        passes, seconds, model.score(data.train), np.array([]), False, topics, model.transform
    )
