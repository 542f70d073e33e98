"""Latent Dirichlet allocation against the reference that stores phi, and against the exact
evidence.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from scipy.special import digamma, polygamma

from gpflow_decoupled.topics import CorrelatedTopicModel, LatentDirichletAllocation, split_words
from gpflow_decoupled.topics.documents import scaled_exp, split_into_blocks, topic_weights
from gpflow_decoupled.topics.models import POSTERIORS, Local, local_step
from gpflow_decoupled.topics.proportions import (
    DirichletProportions,
    DirichletState,
    best_prior,
    best_symmetric_prior,
    fisher_solve,
    minus_kl,
)
from tests.reference import topics as reference
from tests.topics.corpora import generated, tiny

ALPHA, ETA = np.array([0.4, 0.9]), 0.6


def _step(n: Any, gamma: Any, lam: Any, alpha: Any, steps: int = 1, fallback: Any = None) -> Local:
    counts, topics, family = sp.csr_matrix(n), topic_weights(lam), DirichletProportions(alpha)
    states = [None if one is None else DirichletState(one) for one in (gamma, fallback)]
    blocks = split_into_blocks(counts, len(lam))
    return local_step(counts, blocks, topics, family, states[0], 0.0, steps, states[1])


def test_one_pass_is_that_of_the_reference(rng: np.random.Generator) -> None:
    n = generated(12, 9, length=15).toarray()
    gamma, lam = rng.gamma(1.0, 1.0, (12, 3)) + 0.05, rng.gamma(1.0, 1.0, (3, 9)) + 0.05
    alpha = np.array([0.1, 0.5, 1.0])
    local = _step(n, gamma, lam, alpha)
    expected = reference.gammas(n, reference.phis(n, gamma, lam), alpha)  # (T2)
    assert_allclose(local.state.gamma, expected, rtol=1e-12)
    phi = reference.phis(n, expected, lam)
    assert_allclose(ETA + local.statistics, reference.lambdas(n, phi, ETA), rtol=1e-12)  # (T2)
    bound = local.bounds.sum() + minus_kl(ETA, lam).sum()
    exact = reference.bound(n, phi, expected, lam, alpha, ETA)
    assert bound == pytest.approx(exact, rel=1e-13)  # (T3)


def test_blocks_of_any_size_hold_every_document_once(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    counts = generated()
    given = counts, rng.gamma(1.0, 1.0, (60, 3)), rng.gamma(1.0, 1.0, (3, 30)), np.ones(3), 50
    whole = _step(*given)
    monkeypatch.setattr("gpflow_decoupled.topics.documents.BLOCK_BYTES", 500)
    assert len(split_into_blocks(counts, 3)) > 10
    parts = _step(*given)
    for one, other in zip((*whole.state, *whole[1:]), (*parts.state, *parts[1:])):
        assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("start", ["documents", "random"])
def test_bound_rises_and_is_below_the_evidence(start: str) -> None:
    n = tiny()
    priors = {"doc_prior": ALPHA, "topic_prior": ETA, "start": start}
    options = {"tolerance": 0.0, "max_passes": 60, "fresh_passes": 5, "local_tolerance": 0.0}
    model = LatentDirichletAllocation(2, **priors, **options).fit(n)
    bounds, lam = model.history_["bound"], model.components_
    assert np.all(np.diff(bounds) >= -1e-12)
    assert bounds[-1] <= reference.log_evidence(n, ALPHA, ETA)
    phi = reference.phis(n, model.state_.gamma, lam)
    exact = reference.bound(n, phi, model.state_.gamma, lam, ALPHA, ETA)
    assert model.bound_ == pytest.approx(exact, abs=1e-10)
    assert_allclose(reference.lambdas(n, phi, ETA), lam, atol=1e-5)  # a fixed point of (T2)


def test_a_fresh_start_never_loses(rng: np.random.Generator) -> None:
    """Each document takes the better of two states."""
    counts, lam, alpha = generated(), rng.gamma(1.0, 1.0, (3, 30)), np.ones(3)
    first, second = (rng.gamma(1.0, 20.0, (60, 3)) + 0.1 for _ in range(2))
    alone = [
        _step(counts, first, lam, alpha, 1).bounds,
        _step(counts, second, lam, alpha, 0).bounds,
    ]
    both = _step(counts, first, lam, alpha, 1, second)
    assert (alone[0] > alone[1]).any() and (alone[0] < alone[1]).any()
    assert_allclose(both.bounds, np.maximum(*alone), rtol=1e-12)
    assert_allclose(_step(counts, both.state.gamma, lam, alpha, 0).bounds, both.bounds, rtol=1e-12)


def test_fresh_starts_fall_back_to_the_former_state(monkeypatch: pytest.MonkeyPatch) -> None:
    fallbacks = []

    def spy(*arguments: Any) -> Any:
        fallbacks.append(len(arguments) == 8 and arguments[7] is not None)
        return local_step(*arguments)

    monkeypatch.setattr("gpflow_decoupled.topics.models.local_step", spy)
    LatentDirichletAllocation(3, fresh_passes=2, max_passes=4, tolerance=0.0).fit(generated())
    assert fallbacks == [False, True, True, False, False]


@pytest.mark.parametrize("learn", ["none", "symmetric", "vector"])
def test_bound_rises_while_priors_are_learned(learn: str) -> None:
    options = {"tolerance": 0.0, "max_passes": 25, "fresh_passes": 8, "learn_topic_prior": True}
    model = LatentDirichletAllocation(4, learn_doc_prior=learn, **options).fit(generated())
    assert np.all(np.diff(model.history_["bound"]) >= -1e-9)
    assert (np.ptp(model.doc_prior_) > 0.0) == (learn == "vector")
    assert model.topic_prior_[0] != 0.25


@pytest.mark.parametrize("posterior", ["", *POSTERIORS])
def test_float32_gives_the_same_bound(posterior: str) -> None:
    kind = CorrelatedTopicModel if posterior else LatentDirichletAllocation
    options = {"posterior": posterior, "start_passes": 0} if posterior else {}
    counts = generated()
    single, double = (
        kind(3, max_passes=4, tolerance=0.0, **options).fit(counts.astype(dtype))
        for dtype in (np.float32, np.float64)
    )
    assert single.components_.dtype == single.state_[0].dtype == np.float32
    assert_allclose(single.history_["bound"], double.history_["bound"], rtol=1e-4)


def test_tiny_priors_leave_no_word_without_a_topic() -> None:
    counts = generated(20)
    options = {"doc_prior": 1e-4, "topic_prior": 1e-4, "max_passes": 5, "tolerance": 0.0}
    model = LatentDirichletAllocation(3, **options).fit(counts)
    assert np.isfinite(model.bound_) and np.isfinite(model.perplexity(counts))
    assert_allclose(model.components_.sum(), counts.sum() + 3 * 30 * 1e-4, rtol=1e-9)


def test_stochastic_step_is_that_of_the_reference() -> None:
    """`partial_fit` moves lambda by (T4); with rho = 1 and all documents it is a batch step."""
    n, batch = generated(8, 9, length=15).toarray(), [1, 4, 6]
    priors = {"doc_prior": 0.3, "topic_prior": ETA, "num_documents": 8, "start": "random"}
    options = {**priors, "local_tolerance": 0.0, "max_local_steps": 30}
    model = LatentDirichletAllocation(2, **options, delay=3.0, forgetting_rate=0.8)
    model.partial_fit(n[batch])
    start = np.random.default_rng(0).gamma(100.0, 0.01, (2, 9))
    gamma = np.ones((8, 2))
    for _ in range(30):
        gamma = reference.gammas(n, reference.phis(n, gamma, start), np.full(2, 0.3))
    phi = reference.phis(n, gamma, start)
    expected = reference.stochastic_topics(n, phi, start, ETA, batch, 4.0**-0.8)
    assert_allclose(model.components_, expected, rtol=1e-10)
    whole = LatentDirichletAllocation(2, **options, delay=0.0).partial_fit(n)
    assert_allclose(whole.components_, reference.lambdas(n, phi, ETA), rtol=1e-10)


def test_stochastic_fit_comes_near_the_batch_bound() -> None:
    counts = generated(200)
    batch = LatentDirichletAllocation(3).fit(counts)
    steps = {"batch_size": 50, "max_passes": 20, "delay": 1.0, "learn_doc_prior": "symmetric"}
    model = LatentDirichletAllocation(3, method="stochastic", **steps).fit(counts)
    assert model.score(counts) > 1.01 * batch.score(counts)
    assert len(model.history_["bound"]) == 20 and model.state_.gamma.shape == (200, 3)


def test_score_and_perplexity() -> None:
    """The score of the training documents is the bound; held-out words are scored as the formula
    says.
    """
    counts = generated(200)
    observed, held = split_words(counts, seed=1)
    assert (observed + held != counts).nnz == 0 and 0.45 < observed.sum() / counts.sum() < 0.55
    model = LatentDirichletAllocation(3, max_passes=50).fit(observed)
    assert model.score(observed) == pytest.approx(model.bound_, rel=1e-4)
    # the divergence of the topics belongs to the fit, and not to the documents that are scored
    assert model.perplexity(observed) < np.exp(-model.score(observed) / observed.sum())
    chances = model.transform(observed) @ model.topics_
    expected = np.exp(-(held.toarray() * np.log(chances)).sum() / held.sum())
    assert model.perplexity(observed, held) == pytest.approx(expected, rel=1e-12)
    shares = np.asarray(counts.sum(0))[0] / counts.sum()
    of_shares = np.exp(-(held.data * np.log(shares[held.indices])).sum() / held.sum())
    assert model.perplexity(observed, held) < of_shares


def test_same_seed_same_topics_and_generators_are_left_alone() -> None:
    counts, before = generated(), np.random.get_state()[1].copy()  # noqa: NPY002
    models = [LatentDirichletAllocation(3, max_passes=3, seed=seed) for seed in (1, 1, 2)]
    fits = [model.fit(counts).components_ for model in models]
    np.testing.assert_array_equal(fits[0], fits[1])
    assert np.abs(fits[0] - fits[2]).max() > 0.1
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


def test_learned_priors_are_where_the_gradient_is_zero(rng: np.random.Generator) -> None:
    alpha = np.array([0.05, 0.7, 3.0])
    mean_log = np.log(rng.dirichlet(alpha, 500) + 1e-300)
    best = best_prior(np.ones(3), mean_log)
    assert_allclose(digamma(best) - digamma(best.sum()), mean_log.mean(0), atol=1e-7)
    a = best_symmetric_prior(mean_log)
    assert digamma(a) - digamma(3 * a) == pytest.approx(mean_log.mean(), abs=1e-12)
    # where documents determine none, its bounds
    assert best_symmetric_prior(np.full((5, 3), -np.log(3.0))) == 1e4
    assert best_symmetric_prior(np.full((5, 3), -1e9)) == 1e-4


def test_fisher_solve_inverts_the_fisher_matrix(rng: np.random.Generator) -> None:
    c, g = rng.gamma(1.0, 1.0, (2, 4)) + 0.1, rng.standard_normal((2, 4))
    for row, target, x in zip(c, g, fisher_solve(c, g)):
        fisher = np.diag(polygamma(1, row)) - polygamma(1, row.sum())
        assert_allclose(fisher @ x, target, rtol=1e-10)


def test_scaled_exp_never_vanishes() -> None:
    for kind in (np.float64, np.float32):
        values, top = scaled_exp(np.array([[-5000.0, -1.0], [2000.0, 2000.0]], dtype=kind))
        assert top.tolist() == [-1.0, 2000.0] and (values[:, 1] == 1.0).all()
        assert values[0, 0] ** 2 >= np.finfo(kind).tiny
