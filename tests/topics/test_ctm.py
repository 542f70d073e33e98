"""The correlated topic model: each document's optimum and bound against the reference, bounds that
rise, correlations.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import logsumexp
from scipy.stats import invwishart

from gpflow_decoupled.errors import DataError, NumericalError
from gpflow_decoupled.topics import CorrelatedTopicModel, LatentDirichletAllocation
from gpflow_decoupled.topics.ascent import ascend
from gpflow_decoupled.topics.documents import Words, split_into_blocks, topic_weights
from gpflow_decoupled.topics.fitting import Limits, Local, local_step
from gpflow_decoupled.topics.models import POSTERIORS
from gpflow_decoupled.topics.proportions import (
    CovariancePrior,
    GaussianEvaluation,
    GaussianProportions,
    GaussianState,
    LogisticDirichlet,
    LogisticDirichletState,
    best_tilt,
    normal_points,
    tilted_bound,
)
from tests.reference import topics as reference
from tests.topics.corpora import generated

MU, ROOT = (
    np.array([0.2, -0.4, 0.1]),
    np.array([[1.0, 0.0, 0.0], [0.8, 0.7, 0.0], [-0.3, 0.2, 0.9]]),
)
SIGMA = ROOT @ ROOT.T
COUNTS = np.array([[3.0, 0.0, 2.0, 6.0, 1.0], [0.0, 4.0, 0.0, 0.0, 0.0], [2.0, 2.0, 2.0, 2.0, 5.0]])
LAM = np.random.default_rng(3).gamma(1.0, 3.0, (3, 5)) + 0.1
BETA = reference.mean_log(LAM)


def _solve(family: Any, steps: int = 300) -> Local:
    counts = sp.csr_matrix(COUNTS)
    state, blocks = family.start(3, float), split_into_blocks(counts, 3)
    return local_step(counts, blocks, topic_weights(LAM), family, state, Limits(1e-10, steps))


def _words() -> Words:
    (block,) = split_into_blocks(sp.csr_matrix(COUNTS), 3)
    words = Words.gather(block, topic_weights(LAM))
    return words.take(np.argsort(block.rows))


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("diagonal", [False, True])
def test_gaussian_documents_are_at_the_optimum_of_the_reference(diagonal: bool) -> None:
    """And the bound on E lse costs little: that of the exact one, by quadrature, is above by a few
    hundredths of a nat.
    """
    found = _solve(GaussianProportions(MU, SIGMA, diagonal))
    for d, n in enumerate(COUNTS):
        m, V, bound = reference.best_gaussian(n, BETA, MU, SIGMA, diagonal)
        precision = found.state.precision[d]
        np.testing.assert_allclose(found.state.mean[d], m, atol=1e-4)
        np.testing.assert_allclose(
            np.diag(1.0 / precision) if diagonal else np.linalg.inv(precision), V, atol=1e-4
        )
        assert found.bounds[d] == pytest.approx(bound, abs=1e-7)  # (T5)
        exact = reference.document_bound_gaussian(
            n, m, V, reference.expected_lse(m, V), BETA, MU, SIGMA
        )
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
    family, prior = GaussianProportions(MU, SIGMA, diagonal), np.linalg.inv(SIGMA)
    m, V, a, words = (
        rng.standard_normal((3, 3)),
        0.3 * SIGMA + 0.2 * np.eye(3),
        rng.dirichlet(np.ones(3), 3),
        _words(),
    )
    V = np.diag(np.diag(V)) if diagonal else V

    def at(shift_m: np.ndarray, shift_V: np.ndarray) -> GaussianEvaluation:
        precision = np.linalg.inv(V + shift_V)
        return family.evaluate(
            words,
            GaussianState(
                m + shift_m, np.array(3 * [np.diag(precision) if diagonal else precision]), a
            ),
        )

    now = at(0.0, 0.0)
    slope = now.gradient - (m - MU) @ prior
    for k, shift in enumerate(1e-5 * np.eye(3)):
        np.testing.assert_allclose(
            (at(shift, 0.0).bound - at(-shift, 0.0).bound) / 2e-5, slope[:, k], atol=1e-6
        )
    for j, k in ((0, 0), (2, 2)) if diagonal else ((0, 0), (1, 2)):
        shift = np.zeros((3, 3))
        shift[j, k] = shift[k, j] = 1e-5
        curvature = now.curvature[:, k] if diagonal else now.curvature[:, j, k]
        expected = (1 if j == k else 2) * 0.5 * ((np.linalg.inv(V) - prior)[j, k] - curvature)
        np.testing.assert_allclose(
            (at(0.0, shift).bound - at(0.0, -shift).bound) / 2e-5, expected, atol=1e-5
        )


def test_bound_on_log_sum_exp(rng: np.random.Generator) -> None:
    """It is that of the reference, above the exact value for any a, tighter for the best, and moves
    with a common shift.
    """
    m, a = rng.standard_normal((1, 3)), rng.dirichlet(np.ones(3), 1)
    exact, (value, _) = reference.expected_lse(m[0], SIGMA), tilted_bound(m, SIGMA[None], a)
    assert (
        value[0] == pytest.approx(reference.tilted_lse(m[0], SIGMA, a[0]), abs=1e-12)
        and value[0] > exact
    )
    best, softmax = tilted_bound(
        m, SIGMA[None], tilt := best_tilt(m, SIGMA[None], best_tilt(m, SIGMA[None], a))
    )
    np.testing.assert_allclose(softmax, tilt, atol=1e-3)
    assert exact < best[0] < value[0] and best[0] - exact < 0.1
    shifted, _ = tilted_bound(m + 2.0, SIGMA[None] + 5.0, tilt)
    assert shifted[0] == pytest.approx(best[0] + 2.0, abs=1e-10)
    diagonal, _ = tilted_bound(m, np.diag(SIGMA)[None], a)
    assert diagonal[0] == pytest.approx(tilted_bound(m, np.diag(np.diag(SIGMA))[None], a)[0][0])


def test_dirichlet_documents_are_at_the_optimum_of_the_reference() -> None:
    mu, Sigma = MU[:2], SIGMA[:2, :2]
    family = LogisticDirichlet(mu, Sigma)
    found = _solve(family)
    for d, n in enumerate(COUNTS):
        c, bound = reference.best_logistic_dirichlet(n, BETA, mu, Sigma)
        assert found.bounds[d] == pytest.approx(bound, abs=1e-7)  # (T8)
        assert found.bounds[d] == pytest.approx(
            reference.document_bound_dirichlet(n, found.state.c[d], BETA, mu, Sigma), abs=1e-9
        )
        np.testing.assert_allclose(found.state.c[d], c, rtol=1e-3)
    now = family.evaluate(_words(), found.state)
    np.testing.assert_allclose(
        now.pseudo_prior + now.expected, found.state.c, rtol=1e-5
    )  # (T9): it is an LDA document


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
    assert (
        (state.c > 0.0).all()
        and (np.diff(bounds, axis=0) >= 0.0).all()
        and (bounds[-1] > bounds[0] + 1.0).all()
    )


class Parabola(NamedTuple):
    """Bounds -x^2, and steps that go four times too far."""

    x: np.ndarray

    def evaluate(self, words: None, state: Parabola) -> ParabolaEvaluation:
        return ParabolaEvaluation(-(state.x[:, 0] ** 2), state.x)

    def propose(self, state: Parabola, now: ParabolaEvaluation, rho: np.ndarray) -> Parabola:
        return Parabola(state.x - 4.0 * rho[:, None] * state.x)


class ParabolaEvaluation(NamedTuple):
    bound: np.ndarray
    expected: np.ndarray


def test_steps_that_lower_a_bound_are_not_made() -> None:
    start = Parabola(np.array([[1.0], [-3.0], [0.0]]))
    found = ascend(start, Words(*[np.zeros((3, 1))] * 4), start, 1e-9, 1)
    np.testing.assert_array_equal(found.x, start.x)
    found = ascend(start, Words(*[np.zeros((3, 1))] * 4), start, 1e-9, 20)
    np.testing.assert_allclose(found.x, 0.0, atol=1e-9)


@pytest.mark.costly(keep=2)
@pytest.mark.parametrize("posterior", POSTERIORS)
def test_bound_rises_and_topics_that_go_together_are_correlated(posterior: str) -> None:
    counts = generated(200, topics=4)
    settings = {
        "start": "random",
        "seed": 1,
        "tolerance": 0.0,
        "max_passes": 30,
        "learn_topic_prior": True,
        "fresh_passes": 3,
    }
    model = CorrelatedTopicModel(4, posterior=posterior, **settings).fit(counts)
    assert np.all(np.diff(model.history_["bound"]) >= -1e-6)
    theta = model.transform(counts)
    np.testing.assert_allclose(theta.sum(1), 1.0, rtol=1e-9)
    correlations = model.correlations_
    np.testing.assert_allclose(np.diagonal(correlations), 1.0)
    assert model.score(counts) == pytest.approx(model.bound_, rel=5e-3)
    observed = np.corrcoef(np.log(theta).T - np.log(theta).mean(1))
    apart = ~np.eye(4, dtype=bool)
    assert np.corrcoef(observed[apart], correlations[apart])[0, 1] > 0.8


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_float32_gives_the_same_bound(posterior: str) -> None:
    settings = {"posterior": posterior, "max_passes": 4, "tolerance": 0.0, "start_passes": 0}
    fits = [
        CorrelatedTopicModel(3, **settings).fit(generated().astype(kind))
        for kind in (np.float32, np.float64)
    ]
    assert fits[0].components_.dtype == fits[0].state_[0].dtype == np.float32
    np.testing.assert_allclose(*(one.history_["bound"] for one in fits), rtol=1e-4)


LONG = {"max_passes": 2, "start_passes": 2, "tolerance": 0.0, "posterior": "gaussian"}


@pytest.mark.parametrize("learn", [True, False])
def test_wide_priors_and_long_documents_in_single_precision(learn: bool) -> None:
    """The precision of q(eta_d) goes from 1e-4 to 1e4, more than single precision holds."""
    counts = 1000.0 * generated()
    settings = {**LONG, "prior_variance": 1e4, "learn_prior": learn}
    fits = [
        CorrelatedTopicModel(10, **settings).fit(counts.astype(kind))
        for kind in (np.float32, np.float64)
    ]
    assert [part.dtype.name for part in fits[0].state_] == ["float32", "float64", "float32"]
    np.testing.assert_allclose(fits[0].bound_, fits[1].bound_, rtol=1e-5)
    single, double = (one.transform(counts.astype(one.components_.dtype)) for one in fits)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, double, atol=0.02)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_prior_that_is_lost_in_round_off_is_named(kind: type) -> None:
    with pytest.raises(
        NumericalError, match="precision of q.eta_d. is not .* Lower prior_variance.* prior_doc"
    ) as caught:
        CorrelatedTopicModel(10, prior_variance=1e20, **LONG).fit(
            (1000.0 * generated()).astype(kind)
        )
    assert caught.value.matrix == "precision of q(eta_d)"


def test_best_prior_of_the_documents_is_better_than_any_near_it() -> None:
    """mu_0 and Sigma_0 maximise the documents' terms at fixed q, for each posterior."""
    words = _words()
    families = (
        GaussianProportions(MU, SIGMA),
        LogisticDirichlet(MU[:2], SIGMA[:2, :2]),
        GaussianProportions(MU, np.diag([1.0, 2.0, 3.0]), True),
    )
    for family in families:
        state = family.converge(words, family.start(3, float), 1e-8, 50)
        best = family.learned(state)
        top = best.evaluate(words, state).bound.sum()
        for scale in (0.98, 1.02):
            assert best._replace(Sigma=scale * best.Sigma).evaluate(words, state).bound.sum() < top
            assert best._replace(mu=best.mu + scale - 1.0).evaluate(words, state).bound.sum() < top


def test_a_prior_of_the_covariance_is_an_inverse_wishart() -> None:
    """Its density is SciPy's, (T17), its mode is M, and the best covariance maximises the bound
    with it, (T16).
    """
    prior = CovariancePrior(20.0, SIGMA)
    expected = invwishart(df=20.0 - 3 - 1, scale=20.0 * SIGMA)
    for Sigma in (SIGMA, np.eye(3), 5.0 * SIGMA + np.eye(3)):
        assert prior.log_density(Sigma) == pytest.approx(expected.logpdf(Sigma), rel=1e-12)
    assert all(
        prior.log_density(scale * SIGMA) < prior.log_density(SIGMA) for scale in (0.98, 1.02)
    )
    words = _words()
    for family in (
        GaussianProportions(MU, SIGMA, prior=prior),
        GaussianProportions(MU, np.diag([1.0, 2.0, 3.0]), True, prior=prior),
        LogisticDirichlet(MU[:2], SIGMA[:2, :2], prior=CovariancePrior(7.0, np.eye(2))),
    ):
        state = family.converge(words, family.start(3, float), 1e-8, 50)
        best, free = family.learned(state), family._replace(prior=None).learned(state)
        top = best.evaluate(words, state).bound.sum() + best.log_prior
        for direction in (
            best.Sigma,
            np.diag(np.arange(1.0, 1.0 + len(best.mu))),
            np.ones_like(best.Sigma),
        ):
            for step in (-0.02, 0.02):
                near = best._replace(Sigma=best.Sigma + step * direction)
                assert near.evaluate(words, state).bound.sum() + near.log_prior < top
        assert free.log_prior == 0.0
        np.testing.assert_allclose(best.scatter, free.Sigma, rtol=1e-12)
        twice = family.learned(state, 0.5).learned(state, 1.0)
        np.testing.assert_allclose(
            twice.Sigma, best.Sigma, rtol=1e-12
        )  # a step of 1 forgets the one before
        corpus = family.learned(state, 1.0, 3000)
        np.testing.assert_allclose(
            corpus.Sigma, free.Sigma, rtol=0.01, atol=0.01
        )  # of many such documents


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("posterior", POSTERIORS)
def test_the_bound_with_the_covariances_prior_rises_and_the_covariance_stays_near_it(
    posterior: str,
) -> None:
    counts = generated(100, topics=3)
    settings = {
        "posterior": posterior,
        "max_passes": 12,
        "tolerance": 0.0,
        "fresh_passes": 2,
        "start_passes": 3,
    }
    fits = {
        n: CorrelatedTopicModel(3, prior_documents=n, **settings).fit(counts)
        for n in (0.0, 100.0, 1e6)
    }
    for model in fits.values():
        assert np.all(np.diff(model.history_["bound"]) >= -1e-6)
    np.testing.assert_allclose(fits[1e6].covariance_, np.eye(len(fits[0.0].mean_)), atol=0.01)
    sizes = [np.abs(np.linalg.slogdet(model.covariance_)[1]) for model in fits.values()]
    assert sizes[2] < sizes[1] < sizes[0]
    one = fits[100.0]
    assert one.score(counts) == pytest.approx(one.bound_, rel=5e-3)
    stochastic = CorrelatedTopicModel(
        3, prior_documents=1e6, method="stochastic", batch_size=25, **settings
    ).fit(counts)
    np.testing.assert_allclose(stochastic.covariance_, np.eye(len(one.mean_)), atol=0.01)


@pytest.mark.parametrize("value", [-1.0, 6, 5.9, np.nan, np.inf, "many", True])
def test_a_prior_of_the_covariance_that_is_not_proper_is_refused(value: Any) -> None:
    with pytest.raises(
        DataError, match="prior_documents=.* must be 0, .* or above 6, twice its size"
    ):
        CorrelatedTopicModel(3, prior_documents=value).fit(COUNTS)


def test_points_have_the_moments_of_the_normal() -> None:
    points = normal_points(40, 7, seed=3)
    np.testing.assert_allclose(points.T @ points / 40, np.eye(7), atol=1e-12)
    np.testing.assert_allclose(points.mean(0), 0.0, atol=1e-15)
    np.testing.assert_allclose(np.einsum("sa,sb,sc->abc", points, points, points), 0.0, atol=1e-12)


def test_stochastic_correlated_topics() -> None:
    counts = generated(100)
    settings = {"posterior": "dirichlet", "start": "random", "max_passes": 30}
    batch = CorrelatedTopicModel(3, **settings).fit(counts)
    model = CorrelatedTopicModel(3, method="stochastic", batch_size=25, delay=1.0, **settings).fit(
        counts
    )
    assert model.score(counts) > 1.02 * batch.score(counts)


def test_prior_without_correlations_is_not_learned_where_asked() -> None:
    model = CorrelatedTopicModel(3, learn_prior=False, prior_variance=2.0, max_passes=2).fit(
        generated()
    )
    np.testing.assert_array_equal(model.covariance_, 2.0 * np.eye(3))
    assert not isinstance(model, LatentDirichletAllocation)
