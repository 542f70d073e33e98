"""Scores of documents that a call has with others, and of documents without known words."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from gpflow_decoupled.errors import DataError
from gpflow_decoupled.topics import CorrelatedTopicModel, LatentDirichletAllocation

RNG = np.random.default_rng(0)
TOPICS = RNG.dirichlet(np.full(30, 0.1), 3)
COUNTS = np.stack([RNG.multinomial(40, RNG.dirichlet([0.3] * 3) @ TOPICS) for _ in range(30)])
Kind = type[LatentDirichletAllocation] | type[CorrelatedTopicModel]
KINDS = [LatentDirichletAllocation, CorrelatedTopicModel]


@pytest.mark.parametrize("kind", KINDS)
def test_a_document_without_words_gets_the_prior(kind: Kind) -> None:
    """As in scikit-learn; it refused all documents of the call."""
    model = kind(3, max_passes=10).fit(COUNTS)
    silent = COUNTS.copy()
    silent[[3, -1]] = 0
    found = model.transform(silent)
    assert_allclose(found[3], found[-1], rtol=1e-12)
    assert_allclose(found.sum(axis=1), 1.0, rtol=1e-9)
    assert_allclose(found[:3], model.transform(COUNTS)[:3], atol=1e-3)
    if kind is LatentDirichletAllocation:
        assert_allclose(found[3], 1.0 / 3.0, rtol=1e-9)


@pytest.mark.parametrize(
    "kind, options",
    [
        (LatentDirichletAllocation, {"learn_doc_prior": "vector"}),
        (LatentDirichletAllocation, {"method": "stochastic", "batch_size": 8}),
        (CorrelatedTopicModel, {"start_passes": 3}),
        (CorrelatedTopicModel, {"posterior": "dirichlet", "start_passes": 3}),
    ],
)
def test_documents_without_words_change_nothing_in_a_fit(kind: Kind, options: dict) -> None:
    silent = np.insert(COUNTS, [0, 7, 7, 30], 0, axis=0)
    expected = kind(3, max_passes=4, **options).fit(COUNTS)
    model = kind(3, max_passes=4, **options).fit(silent)
    assert_allclose(model.components_, expected.components_, rtol=1e-12)
    assert_allclose(model.history_["bound"], expected.history_["bound"], rtol=1e-12)
    spoken = silent.any(axis=1)
    for found, those in zip(model.state_, expected.state_):
        assert_allclose(found[spoken], those, rtol=1e-12)
    prior = model._shared().proportions.mean(model.state_)[~spoken]
    assert_allclose(prior, model.transform(np.zeros((4, 30))), rtol=1e-12)
    # and in a step
    for part in (silent[:12], np.zeros((5, 30))):
        model.partial_fit(part)
    assert_allclose(
        model.components_, expected.partial_fit(silent[:12][spoken[:12]]).components_, rtol=1e-12
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_needs_a_word(kind: Kind) -> None:
    with pytest.raises(DataError, match="X has no words; a fit needs a document with"):
        kind(3).fit(np.zeros((5, 30)))


@pytest.mark.parametrize("kind", KINDS)
def test_perplexity_does_not_depend_on_how_many_are_scored(kind: Kind) -> None:
    """It is the mean over words: 325 for one document and 49 for two came from the divergence of
    the topics, which belongs to the documents of the fit.
    """
    model = kind(3, max_passes=10).fit(COUNTS)
    logs = [np.log(model.perplexity(COUNTS[d : d + 1])) for d in range(5)]
    words = COUNTS[:5].sum(axis=1)
    assert_allclose(np.log(model.perplexity(COUNTS[:5])), words @ logs / words.sum(), rtol=1e-4)
    twice = np.concatenate([COUNTS[:5], COUNTS[:5]])
    assert_allclose(model.perplexity(twice), model.perplexity(COUNTS[:5]), rtol=1e-4)
