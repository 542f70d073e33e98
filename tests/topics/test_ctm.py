"""The correlated topic model: each document's optimum and bound against the reference, bounds that
rise, correlations.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from scipy.special import logsumexp
from scipy.stats import invwishart

from gpflow_decoupled.errors import NumericalError
from gpflow_decoupled.topics import CorrelatedTopicModel
from gpflow_decoupled.topics.documents import Words, split_into_blocks, topic_weights
from gpflow_decoupled.topics.models import POSTERIORS, Local, local_step
from gpflow_decoupled.topics.proportions import (
    CovariancePrior,
    GaussianEvaluation,
    GaussianProportions,
    GaussianState,
    LogisticDirichlet,
    LogisticDirichletState,
    ascend,
    best_tilt,
    minus_kl,
    normal_points,
    tilted_bound,
)
from tests.reference import topics as reference
from tests.topics.corpora import generated

MU = np.array([0.2, -0.4, 0.1])
ROOT = np.array([[1.0, 0.0, 0.0], [0.8, 0.7, 0.0], [-0.3, 0.2, 0.9]])
SIGMA = ROOT @ ROOT.T
COUNTS = np.array([[3.0, 0.0, 2.0, 6.0, 1.0], [0.0, 4.0, 0.0, 0.0, 0.0], [2.0, 2.0, 2.0, 2.0, 5.0]])
LAM = np.random.default_rng(3).gamma(1.0, 3.0, (3, 5)) + 0.1
BETA = reference.mean_log(LAM)
BLOCKS = split_into_blocks(sp.csr_matrix(COUNTS), 3)


def _solve(family: Any) -> Local:
    counts, state = sp.csr_matrix(COUNTS), family.start(3, float)
    return local_step(counts, BLOCKS, topic_weights(LAM), family, state, 1e-10, 300)


def _words() -> Words:
    """The three documents, in order."""
    words = Words.gather(BLOCKS[0], topic_weights(LAM))
    return Words(*(part[np.argsort(BLOCKS[0].rows)] for part in words))


@pytest.mark.exhaustive
@pytest.mark.parametrize("diagonal", [False, True])
def test_gaussian_documents_are_at_the_optimum_of_the_reference(diagonal: bool) -> None:
    """And the bound on E lse costs little: that of the exact one, by quadrature, is above by a few
    hundredths of a nat.
    """
    found = _solve(GaussianProportions(MU, SIGMA, diagonal=diagonal))
    for d, n in enumerate(COUNTS):
        m, V, bound = reference.best_gaussian(n, BETA, MU, SIGMA, diagonal)
        precision = found.state.precision[d]
        assert_allclose(found.state.mean[d], m, atol=1e-4)
        inverse = np.diag(1.0 / precision) if diagonal else np.linalg.inv(precision)
        assert_allclose(inverse, V, atol=1e-4)
        assert found.bounds[d] == pytest.approx(bound, abs=1e-7)  # (T5)
        lse = reference.expected_lse(m, V)
        exact = reference.document_bound_gaussian(n, m, V, lse, BETA, MU, SIGMA)
        assert 0.0 < exact - found.bounds[d] < 0.1


def test_gaussian_bound_is_a_bound() -> None:
    """F <= log of int p(n | softmax eta) p(eta) at fixed topics, by simulation of the prior."""
    found = _solve(GaussianProportions(MU, SIGMA))
    eta = MU + np.random.default_rng(0).standard_normal((50000, 3)) @ ROOT.T
    log_theta = eta - logsumexp(eta, axis=1, keepdims=True)
    for d, n in enumerate(COUNTS):
        log_p = sum(n[w] * logsumexp(log_theta + BETA[:, w], axis=1) for w in range(5))
        assert found.bounds[d] < logsumexp(log_p) - np.log(len(log_p))


@pytest.mark.parametrize("diagonal", [False, True])
def test_gradients_of_the_gaussian_bound(diagonal: bool, rng: np.random.Generator) -> None:
    """(T6), by differences of the bound at fixed a: g in m but for the prior's part, and H / 2 in
    V.
    """
    family, prior = GaussianProportions(MU, SIGMA, diagonal=diagonal), np.linalg.inv(SIGMA)
    m, a, words = rng.standard_normal((3, 3)), rng.dirichlet(np.ones(3), 3), _words()
    V = 0.3 * SIGMA + 0.2 * np.eye(3)
    V = np.diag(np.diag(V)) if diagonal else V

    def at(shift_m: Any, shift_V: Any) -> GaussianEvaluation:
        precision = np.linalg.inv(V + shift_V)
        precision = np.array(3 * [np.diag(precision) if diagonal else precision])
        return family.evaluate(words, GaussianState(m + shift_m, precision, a))

    now = at(0.0, 0.0)
    slope = now.gradient - (m - MU) @ prior
    for k, shift in enumerate(1e-5 * np.eye(3)):
        found = (at(shift, 0.0).bound - at(-shift, 0.0).bound) / 2e-5
        assert_allclose(found, slope[:, k], atol=1e-6)
    for j, k in ((0, 0), (2, 2)) if diagonal else ((0, 0), (1, 2)):
        shift = np.zeros((3, 3))
        shift[j, k] = shift[k, j] = 1e-5
        curvature = now.curvature[:, k] if diagonal else now.curvature[:, j, k]
        expected = (1 if j == k else 2) * 0.5 * ((np.linalg.inv(V) - prior)[j, k] - curvature)
        found = (at(0.0, shift).bound - at(0.0, -shift).bound) / 2e-5
        assert_allclose(found, expected, atol=1e-5)


def test_bound_on_log_sum_exp(rng: np.random.Generator) -> None:
    """It is that of the reference, above the exact value for any a, tighter for the best, and moves
    with a common shift.
    """
    m, a, V = rng.standard_normal((1, 3)), rng.dirichlet(np.ones(3), 1), SIGMA[None]
    exact, (value, _) = reference.expected_lse(m[0], SIGMA), tilted_bound(m, V, a)
    assert value[0] == pytest.approx(reference.tilted_lse(m[0], SIGMA, a[0]), abs=1e-12)
    tilt = best_tilt(m, V, best_tilt(m, V, a))
    best, softmax = tilted_bound(m, V, tilt)
    assert_allclose(softmax, tilt, atol=1e-3)
    assert exact < best[0] < value[0] and best[0] - exact < 0.1
    assert tilted_bound(m + 2.0, V + 5.0, tilt)[0] == pytest.approx(best + 2.0, abs=1e-10)
    full, diagonal = np.diag(np.diag(SIGMA))[None], np.diag(SIGMA)[None]
    assert tilted_bound(m, diagonal, a)[0] == pytest.approx(tilted_bound(m, full, a)[0])


@pytest.mark.exhaustive
def test_dirichlet_documents_are_at_the_optimum_of_the_reference() -> None:
    mu, Sigma = MU[:2], SIGMA[:2, :2]
    family = LogisticDirichlet(mu, Sigma)
    found = _solve(family)
    for d, n in enumerate(COUNTS):
        c, bound = reference.best_logistic_dirichlet(n, BETA, mu, Sigma)
        here = reference.document_bound_dirichlet(n, found.state.c[d], BETA, mu, Sigma)
        assert found.bounds[d] == pytest.approx(bound, abs=1e-7)  # (T8)
        assert found.bounds[d] == pytest.approx(here, abs=1e-9)
        assert_allclose(found.state.c[d], c, rtol=1e-3)
    target = family.evaluate(_words(), found.state).target
    assert_allclose(target, found.state.c, rtol=1e-5)  # (T9): it is an LDA document


def test_steps_that_would_leave_the_dirichlet_family_are_shortened() -> None:
    """A prior far off asks for negative concentrations on the way; the bound rises, and c stays
    above 0.
    """
    family, words = LogisticDirichlet(np.array([4.0, -4.0]), 0.05 * np.eye(2)), _words()
    state = LogisticDirichletState(np.full((3, 3), 20.0))
    now = family.evaluate(words, state)
    beyond = family.propose(state, now, np.ones(3))
    outside = (beyond.c <= 0.0).any(1)
    assert outside.any() and np.all(family.evaluate(words, beyond).bound[outside] == -np.inf)
    bounds = [now.bound]
    for _ in range(30):
        state = family.converge(words, state, 0.0, 6)
        bounds.append(family.evaluate(words, state).bound)
    assert (state.c > 0.0).all() and (bounds[-1] > bounds[0] + 1.0).all()
    assert (np.diff(bounds, axis=0) >= 0.0).all()


class Parabola(NamedTuple):
    """Bounds -x^2, and steps that go four times too far."""

    x: np.ndarray

    def evaluate(self, words: Words, state: Parabola) -> ParabolaEvaluation:
        return ParabolaEvaluation(-(state.x[:, 0] ** 2), state.x.copy())

    def propose(self, state: Parabola, now: ParabolaEvaluation, rho: np.ndarray) -> Parabola:
        return Parabola(state.x - 4.0 * rho[:, None] * state.x)


class ParabolaEvaluation(NamedTuple):
    bound: np.ndarray
    expected: np.ndarray


def test_steps_that_lower_a_bound_are_not_made() -> None:
    start, words = Parabola(np.array([[1.0], [-3.0], [0.0]])), Words(*[np.zeros((3, 1))] * 4)
    np.testing.assert_array_equal(ascend(start, words, start, 1e-9, 1).x, start.x)
    assert_allclose(ascend(start, words, start, 1e-9, 20).x, 0.0, atol=1e-9)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("posterior", POSTERIORS)
def test_bound_rises_and_topics_that_go_together_are_correlated(posterior: str) -> None:
    counts, start = generated(200, topics=4), {"start": "random", "seed": 1, "fresh_passes": 3}
    options = {"tolerance": 0.0, "max_passes": 30, "learn_topic_prior": True, **start}
    model = CorrelatedTopicModel(4, posterior=posterior, **options).fit(counts)
    assert np.all(np.diff(model.history_["bound"]) >= -1e-6)
    assert model.score(counts) == pytest.approx(model.bound_, rel=5e-3)
    theta, correlations, apart = (
        model.transform(counts),
        model.correlations_,
        ~np.eye(4, dtype=bool),
    )
    assert_allclose(theta.sum(1), 1.0, rtol=1e-9)
    assert_allclose(np.diagonal(correlations), 1.0)
    observed = np.corrcoef(np.log(theta).T - np.log(theta).mean(1))
    assert np.corrcoef(observed[apart], correlations[apart])[0, 1] > 0.8


LONG = {"max_passes": 2, "start_passes": 2, "tolerance": 0.0, "posterior": "gaussian"}


@pytest.mark.exhaustive
@pytest.mark.parametrize("learn", [True, False])
def test_wide_priors_and_long_documents_in_single_precision(learn: bool) -> None:
    """The precision of q(eta_d) goes from 1e-4 to 1e4, more than single precision holds."""
    counts, wide = 1000.0 * generated(), {"prior_variance": 1e4, "learn_prior": learn}
    single, double = (
        CorrelatedTopicModel(10, **LONG, **wide).fit(counts.astype(kind))
        for kind in (np.float32, np.float64)
    )
    assert [part.dtype.name for part in single.state_] == ["float32", "float64", "float32"]
    assert_allclose(single.bound_, double.bound_, rtol=1e-5)
    theta = single.transform(counts.astype(np.float32))
    assert theta.dtype == np.float32
    assert_allclose(theta, double.transform(counts), atol=0.02)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_prior_that_is_lost_in_round_off_is_named(kind: type) -> None:
    message = "precision of q.eta_d. is not .* Lower prior_variance.* prior_doc"
    counts = (1000.0 * generated()).astype(kind)
    with pytest.raises(NumericalError, match=message) as caught:
        CorrelatedTopicModel(10, prior_variance=1e20, **LONG).fit(counts)
    assert caught.value.matrix == "precision of q(eta_d)"


FAMILIES = {
    "gaussian": GaussianProportions(MU, SIGMA),
    "diagonal": GaussianProportions(MU, np.diag([1.0, 2.0, 3.0]), diagonal=True),
    "dirichlet": LogisticDirichlet(MU[:2], SIGMA[:2, :2]),
}


@pytest.mark.parametrize("documents", [0.0, 20.0])
@pytest.mark.parametrize("name", FAMILIES)
def test_the_learned_prior_is_better_than_any_near_it(name: str, documents: float) -> None:
    """mu_0 and Sigma_0 maximise the documents' terms at fixed q and log p(Sigma_0), (T16)."""
    words, family = _words(), FAMILIES[name]
    mode = SIGMA if len(family.mu) == 3 else np.eye(2)
    family = replace(family, prior=CovariancePrior(documents, mode) if documents else None)
    state = family.converge(words, family.start(3, float), 1e-8, 50)
    best = family.learned(state)

    def value(one: Any) -> float:
        return one.evaluate(words, state).bound.sum() + one.log_prior

    directions = np.diag(np.arange(1.0, 1.0 + len(best.mu))), np.ones_like(best.Sigma), best.Sigma
    for step in (-0.02, 0.02):
        assert value(replace(best, mu=best.mu + step)) < value(best)
        for direction in directions:
            assert value(replace(best, Sigma=best.Sigma + step * direction)) < value(best)
    # a step of 1 forgets the one before
    twice = family.learned(state, 0.5).learned(state, 1.0)
    assert_allclose(twice.Sigma, best.Sigma, rtol=1e-12)
    free = replace(family, prior=None).learned(state)
    assert free.log_prior == 0.0
    assert_allclose(best.scatter, free.Sigma, rtol=1e-12)
    corpus = family.learned(state, 1.0, 3000 if documents else None)  # of many such documents
    assert_allclose(corpus.Sigma, free.Sigma, rtol=0.01, atol=0.02)


def test_a_prior_of_the_covariance_is_an_inverse_wishart() -> None:
    """Its density is SciPy's, (T17), and its mode is M."""
    family = GaussianProportions(MU, SIGMA, prior=CovariancePrior(20.0, SIGMA))
    expected = invwishart(df=20.0 - 3 - 1, scale=20.0 * SIGMA)
    for Sigma in (SIGMA, np.eye(3), 5.0 * SIGMA + np.eye(3)):
        found = replace(family, Sigma=Sigma).log_prior
        assert found == pytest.approx(expected.logpdf(Sigma), rel=1e-12)
    for scale in (0.98, 1.02):
        assert replace(family, Sigma=scale * SIGMA).log_prior < family.log_prior
    options = {"start_passes": 0, "max_passes": 1, "prior_documents": 20.0}
    fitted = CorrelatedTopicModel(3, **options).fit(generated())._fitted  # counts in the bound
    topics = minus_kl(fitted.topic_prior, fitted.components).sum()
    assert fitted.bound == pytest.approx(topics + fitted.proportions.log_prior, rel=1e-12)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("posterior", POSTERIORS)
def test_the_bound_with_the_covariances_prior_rises_and_the_covariance_stays_near_it(
    posterior: str,
) -> None:
    counts = generated(100, topics=3)
    options = {"posterior": posterior, "max_passes": 12, "tolerance": 0.0, "start_passes": 3}
    fits = {
        n: CorrelatedTopicModel(3, prior_documents=n, fresh_passes=2, **options).fit(counts)
        for n in (0.0, 100.0, 1e6)
    }
    for model in fits.values():
        assert np.all(np.diff(model.history_["bound"]) >= -1e-6)
    sizes = [np.abs(np.linalg.slogdet(model.covariance_)[1]) for model in fits.values()]
    assert sizes[2] < sizes[1] < sizes[0]
    assert fits[100.0].score(counts) == pytest.approx(fits[100.0].bound_, rel=5e-3)
    batches = {"prior_documents": 1e6, "method": "stochastic", "batch_size": 25}
    stochastic = CorrelatedTopicModel(3, **batches, **options).fit(counts)
    for model in (fits[1e6], stochastic):
        assert_allclose(model.covariance_, np.eye(len(model.mean_)), atol=0.01)


def test_points_have_the_moments_of_the_normal() -> None:
    points = normal_points(40, 7, seed=3)
    assert_allclose(points.T @ points / 40, np.eye(7), atol=1e-12)
    assert_allclose(points.mean(0), 0.0, atol=1e-15)
    assert_allclose(np.einsum("sa,sb,sc->abc", points, points, points), 0.0, atol=1e-12)


@pytest.mark.exhaustive
def test_stochastic_correlated_topics() -> None:
    counts, options = generated(100), {"posterior": "dirichlet", "start": "random"}
    batch, model = (
        CorrelatedTopicModel(3, max_passes=30, **options, **more).fit(counts)
        for more in ({}, {"method": "stochastic", "batch_size": 25, "delay": 1.0})
    )
    assert model.score(counts) > 1.02 * batch.score(counts)


def test_prior_without_correlations_is_not_learned_where_asked() -> None:
    model = CorrelatedTopicModel(3, learn_prior=False, prior_variance=2.0, max_passes=2)
    np.testing.assert_array_equal(model.fit(generated()).covariance_, 2.0 * np.eye(3))
