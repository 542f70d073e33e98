"""Latent Dirichlet allocation against the reference that stores phi, and against the exact
evidence.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import digamma, polygamma

from gpflow_decoupled.topics import LatentDirichletAllocation, split_words
from gpflow_decoupled.topics.dirichlet import (
    best_prior,
    best_symmetric_prior,
    fisher_solve,
    minus_kl,
    scaled_exp,
)
from gpflow_decoupled.topics.documents import split_into_blocks, topic_weights
from gpflow_decoupled.topics.fitting import Limits, local_step
from gpflow_decoupled.topics.proportions import DirichletProportions, DirichletState
from tests.reference import topics as reference
from tests.topics.corpora import generated, tiny

ALPHA, ETA = np.array([0.4, 0.9]), 0.6


def _step(n: np.ndarray, gamma: np.ndarray, lam: np.ndarray, alpha: np.ndarray, steps: int = 1):
    counts = sp.csr_matrix(n)
    blocks = split_into_blocks(counts, len(lam))
    state, limits = DirichletState(gamma), Limits(0.0, steps)
    return local_step(
        counts, blocks, topic_weights(lam), DirichletProportions(alpha), state, limits
    )


def test_one_pass_is_that_of_the_reference(rng: np.random.Generator) -> None:
    n = generated(12, 9, length=15).toarray()
    gamma, lam, alpha = (
        rng.gamma(1.0, 1.0, (12, 3)) + 0.05,
        rng.gamma(1.0, 1.0, (3, 9)) + 0.05,
        np.array([0.1, 0.5, 1.0]),
    )
    local = _step(n, gamma, lam, alpha)
    expected = reference.gammas(n, reference.phis(n, gamma, lam), alpha)  # (T2)
    np.testing.assert_allclose(local.state.gamma, expected, rtol=1e-12)
    phi = reference.phis(n, expected, lam)
    np.testing.assert_allclose(
        ETA + local.statistics, reference.lambdas(n, phi, ETA), rtol=1e-12
    )  # (T2)
    bound = local.bounds.sum() + minus_kl(ETA, lam).sum()
    assert bound == pytest.approx(
        reference.bound(n, phi, expected, lam, alpha, ETA), rel=1e-13
    )  # (T3)


def test_blocks_of_any_size_hold_every_document_once(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    counts = generated()
    gamma, lam = rng.gamma(1.0, 1.0, (60, 3)), rng.gamma(1.0, 1.0, (3, 30))
    whole = _step(counts, gamma, lam, np.ones(3), steps=50)
    monkeypatch.setattr("gpflow_decoupled.topics.documents.BLOCK_BYTES", 500)
    assert len(split_into_blocks(counts, 3)) > 10
    parts = _step(counts, gamma, lam, np.ones(3), steps=50)
    for one, other in zip((*whole.state, *whole[1:]), (*parts.state, *parts[1:])):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("start", ["documents", "random"])
def test_bound_rises_and_is_below_the_evidence(start: str) -> None:
    n = tiny()
    evidence = reference.log_evidence(n, ALPHA, ETA)
    settings = {
        "doc_prior": ALPHA,
        "topic_prior": ETA,
        "tolerance": 0.0,
        "max_passes": 60,
        "start": start,
    }
    model = LatentDirichletAllocation(2, **settings, fresh_passes=5, local_tolerance=0.0).fit(n)
    bounds = model.history_["bound"]
    assert np.all(np.diff(bounds) >= -1e-12) and bounds[-1] <= evidence
    gamma, lam = model.state_.gamma, model.components_
    phi = reference.phis(n, gamma, lam)
    assert model.bound_ == pytest.approx(reference.bound(n, phi, gamma, lam, ALPHA, ETA), abs=1e-10)
    np.testing.assert_allclose(
        reference.lambdas(n, phi, ETA), lam, atol=1e-5
    )  # a fixed point of (T2)


def test_a_fresh_start_never_loses(rng: np.random.Generator) -> None:
    """Each document takes the better of two states."""
    counts, lam = generated(), rng.gamma(1.0, 1.0, (3, 30))
    blocks, topics, family = (
        split_into_blocks(counts, 3),
        topic_weights(lam),
        DirichletProportions(np.ones(3)),
    )
    states = [DirichletState(rng.gamma(1.0, 20.0, (60, 3)) + 0.1) for _ in range(2)]
    settings = (counts, blocks, topics, family)
    alone = [
        local_step(*settings, state, Limits(0.0, steps)).bounds
        for state, steps in zip(states, (1, 0))
    ]
    both = local_step(*settings, states[0], Limits(0.0, 1), states[1])
    assert (alone[0] > alone[1]).any() and (alone[0] < alone[1]).any()
    np.testing.assert_allclose(both.bounds, np.maximum(*alone), rtol=1e-12)
    np.testing.assert_allclose(
        _step(counts, both.state.gamma, lam, np.ones(3), 0).bounds, both.bounds, rtol=1e-12
    )


def test_fresh_starts_fall_back_to_the_former_state(monkeypatch: pytest.MonkeyPatch) -> None:
    fallbacks = []

    def spy(*arguments: Any) -> Any:
        fallbacks.append(len(arguments) == 7 and arguments[6] is not None)
        return local_step(*arguments)

    monkeypatch.setattr("gpflow_decoupled.topics.fitting.local_step", spy)
    LatentDirichletAllocation(3, fresh_passes=2, max_passes=4, tolerance=0.0).fit(generated())
    assert fallbacks == [False, True, True, False, False]


@pytest.mark.parametrize("learn", ["none", "symmetric", "vector"])
def test_bound_rises_while_priors_are_learned(learn: str) -> None:
    settings = {
        "learn_doc_prior": learn,
        "learn_topic_prior": True,
        "tolerance": 0.0,
        "max_passes": 25,
        "fresh_passes": 8,
    }
    model = LatentDirichletAllocation(4, **settings).fit(generated())
    assert np.all(np.diff(model.history_["bound"]) >= -1e-9)
    assert (np.ptp(model.doc_prior_) > 0.0) == (learn == "vector")
    assert model.topic_prior_[0] != 0.25


def test_float32_gives_the_same_bound() -> None:
    counts = generated()
    model = LatentDirichletAllocation(3, max_passes=5, tolerance=0.0).fit(counts)
    single = LatentDirichletAllocation(3, max_passes=5, tolerance=0.0).fit(
        counts.astype(np.float32)
    )
    assert single.components_.dtype == single.state_.gamma.dtype == np.float32
    np.testing.assert_allclose(single.history_["bound"], model.history_["bound"], rtol=1e-5)


def test_tiny_priors_leave_no_word_without_a_topic() -> None:
    counts = generated(20)
    model = LatentDirichletAllocation(
        3, doc_prior=1e-4, topic_prior=1e-4, max_passes=5, tolerance=0.0
    ).fit(counts)
    assert np.isfinite(model.bound_)
    np.testing.assert_allclose(model.components_.sum(), counts.sum() + 3 * 30 * 1e-4, rtol=1e-9)
    assert np.isfinite(model.perplexity(counts))


def test_stochastic_step_is_that_of_the_reference(rng: np.random.Generator) -> None:
    """`partial_fit` moves lambda by (T4); with rho = 1 and all documents it is a batch step."""
    n = generated(8, 9, length=15).toarray()
    settings = {
        "doc_prior": 0.3,
        "topic_prior": ETA,
        "num_documents": 8,
        "start": "random",
        "local_tolerance": 0.0,
    }
    model = LatentDirichletAllocation(
        2, **settings, delay=3.0, forgetting_rate=0.8, max_local_steps=30
    )
    batch = [1, 4, 6]
    model.partial_fit(n[batch])
    start = np.random.default_rng(0).gamma(100.0, 0.01, (2, 9))
    gamma = np.ones((8, 2))
    for _ in range(30):
        gamma = reference.gammas(n, reference.phis(n, gamma, start), np.full(2, 0.3))
    phi = reference.phis(n, gamma, start)
    expected = reference.stochastic_topics(n, phi, start, ETA, batch, 4.0**-0.8)
    np.testing.assert_allclose(model.components_, expected, rtol=1e-10)
    whole = LatentDirichletAllocation(2, **settings, delay=0.0, max_local_steps=30).partial_fit(n)
    np.testing.assert_allclose(whole.components_, reference.lambdas(n, phi, ETA), rtol=1e-10)


def test_stochastic_fit_comes_near_the_batch_bound() -> None:
    counts = generated(200)
    batch = LatentDirichletAllocation(3).fit(counts)
    settings = {
        "method": "stochastic",
        "batch_size": 50,
        "max_passes": 20,
        "delay": 1.0,
        "learn_doc_prior": "symmetric",
    }
    model = LatentDirichletAllocation(3, **settings).fit(counts)
    assert model.score(counts) > 1.01 * batch.score(counts)
    assert len(model.history_["bound"]) == 20 and model.state_.gamma.shape == (200, 3)


def test_score_and_perplexity(rng: np.random.Generator) -> None:
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
    assert model.perplexity(observed, held) < np.exp(
        -(held.data * np.log(shares[held.indices])).sum() / held.sum()
    )


def test_same_seed_same_topics_and_generators_are_left_alone() -> None:
    counts, before = generated(), np.random.get_state()[1].copy()  # noqa: NPY002
    fits = [
        LatentDirichletAllocation(3, max_passes=3, seed=s).fit(counts).components_
        for s in (1, 1, 2)
    ]
    np.testing.assert_array_equal(fits[0], fits[1])
    assert np.abs(fits[0] - fits[2]).max() > 0.1
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


def test_priors_by_newton_are_where_the_gradient_is_zero(rng: np.random.Generator) -> None:
    alpha = np.array([0.05, 0.7, 3.0])
    mean_log = np.log(rng.dirichlet(alpha, 500) + 1e-300)
    best = best_prior(np.ones(3), mean_log)
    np.testing.assert_allclose(digamma(best) - digamma(best.sum()), mean_log.mean(0), atol=1e-7)
    for start in (1e-3, 0.3, 300.0):
        a = best_symmetric_prior(start, mean_log)
        assert digamma(a) - digamma(3 * a) == pytest.approx(mean_log.mean(), abs=1e-7)


def test_fisher_solve_inverts_the_fisher_matrix(rng: np.random.Generator) -> None:
    c, g = rng.gamma(1.0, 1.0, (2, 4)) + 0.1, rng.standard_normal((2, 4))
    for row, target, x in zip(c, g, fisher_solve(c, g)):
        np.testing.assert_allclose(
            (np.diag(polygamma(1, row)) - polygamma(1, row.sum())) @ x, target, rtol=1e-10
        )


def test_scaled_exp_never_vanishes() -> None:
    for kind in (np.float64, np.float32):
        values, top = scaled_exp(np.array([[-5000.0, -1.0], [2000.0, 2000.0]], dtype=kind))
        assert top.tolist() == [-1.0, 2000.0] and (values[:, 1] == 1.0).all()
        assert values[0, 0] ** 2 >= np.finfo(kind).tiny
