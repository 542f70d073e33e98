"""The reference of a mean on all data, against the orthogonal family, the exact posterior and
GPflow's CGLB.
"""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
from numpy.testing import assert_allclose

from . import collapsed as col
from . import conjugate as cj
from . import data_mean as dm
from . import grams as gr
from .cases import NOISE, regression


def _problem(seed: int) -> tuple:
    k, y = regression(seed, jitter=0.1)
    k = dm.at_data(k)
    exact = dm.coefficients(k.K_x, np.full(len(y), 1.0 / NOISE), y)
    return k, y, exact, np.random.default_rng(seed).normal(size=len(y))


@pytest.mark.parametrize("seed", range(5))
def test_the_bound_at_any_coefficients_is_that_of_the_family(seed: int) -> None:
    k, y, exact, noise = _problem(seed)
    for a in (exact, 0.0 * exact, exact + 0.1 * noise, noise):
        expected = col.gaussian_elbo(dm.posterior(k, y, NOISE, a), y, NOISE)
        assert_allclose(dm.bound(k.K_x, k.Q_x, y, NOISE, a), expected, rtol=1e-11)
    assert_allclose(
        dm.bound(k.K_x, k.Q_x, y, NOISE, 0.0 * exact), col.sgpr_bound(k, y, NOISE), rtol=1e-11
    )
    assert_allclose(
        dm.bound(k.K_x, k.Q_x, y, NOISE, exact), col.collapsed_orthogonal(k, y, NOISE), rtol=1e-11
    )
    mean = dm.posterior(k, y, NOISE, exact).mean
    assert_allclose(
        mean, dm.exact_posterior(k.K_x, k.K_x, k.K_x, y, NOISE)[0], rtol=1e-9, atol=1e-11
    )


@pytest.mark.parametrize("seed", range(5))
def test_the_gap_contains_the_distance_and_the_bounds_are_ordered(seed: int) -> None:
    k, y, exact, noise = _problem(seed)
    precisions = np.random.default_rng(seed).uniform(0.1, 5.0, size=len(y))
    evidence = dm.log_evidence(k.K_x, y, NOISE)
    for size in (0.0, 1e-3, 0.1, 1.0):
        at = k.K_x, k.Q_x, precisions, y, dm.coefficients(k.K_x, precisions, y) + size * noise
        assert -1e-9 <= dm.distance(*at) <= dm.gap(*at) + 1e-9
        a = exact + size * noise
        elbo, tighter = (one(k.K_x, k.Q_x, y, NOISE, a) for one in (dm.bound, dm.evidence_bound))
        assert elbo < tighter < evidence


def test_the_descent_ends_at_the_best_coefficients() -> None:
    k, y, _, _ = _problem(0)
    rng = np.random.default_rng(1)
    precisions, start = rng.uniform(0.1, 5.0, size=len(y)), rng.normal(size=len(y))
    exact = dm.coefficients(k.K_x, precisions, y)
    largest = np.linalg.eigvalsh(
        np.eye(len(y)) + np.sqrt(np.outer(precisions, precisions)) * k.K_x
    )[-1]
    batches = rng.integers(0, len(y), (1500, 4))
    found = dm.descent(k.K_x, precisions, y, start, batches, 0.2 / largest, 0.9, 0.05)
    assert_allclose(found, exact, atol=1e-6 * np.abs(start - exact).max())


def test_the_evidence_bound_is_that_of_gpflow(rng: np.random.Generator) -> None:
    X, Z, y = rng.uniform(-2.0, 2.0, (12, 1)), rng.uniform(-2.0, 2.0, (3, 1)), rng.normal(size=12)
    jitter = gpflow.config.default_jitter()
    k = gr.build_grams(lambda A, B: gr.matern32(A, B, 1.3, 0.6), X, Z, X, jitter)
    kernel = gpflow.kernels.Matern32(variance=1.3, lengthscales=0.6)
    model = gpflow.models.CGLB(
        (X, y[:, None]), kernel, inducing_variable=Z, noise_variance=NOISE, v_grad_optimization=True
    )
    for a in (np.zeros(12), rng.normal(size=12)):
        model.aux_vec.assign(a[None])
        expected = model.maximum_log_likelihood_objective()
        assert_allclose(dm.evidence_bound(k.K_x, k.Q_x, y, NOISE, a), expected, rtol=1e-9)


def test_draws_have_the_moments_of_the_posterior_at_the_sites() -> None:
    """A draw is linear in what is drawn: from nothing it is the mean, and each direction of it
    gives a column of a root.
    """
    rng = np.random.default_rng(2)
    x, precisions, y = rng.uniform(-2.0, 2.0, (12, 1)), rng.uniform(0.1, 5.0, 9), rng.normal(size=9)
    gram = gr.matern32(x, x, 1.3, 0.6)
    K, K_new, K_s = gram[:9, :9], gram[9:, :9], gram[9:, 9:]
    mean, cov = cj.predict(
        K, K_new, K_s, np.zeros(9), np.zeros(3), cj.Sites(precisions * y, precisions)
    )
    at = K, K_new, precisions
    assert_allclose(dm.draw(*at, y, np.zeros(9), np.zeros(3), np.zeros(9)), mean, rtol=1e-9)
    of_prior = [
        dm.draw(*at, 0.0 * y, one[:9], one[9:], np.zeros(9)) for one in np.linalg.cholesky(gram).T
    ]
    of_noise = [
        dm.draw(*at, 0.0 * y, np.zeros(9), np.zeros(3), one)
        for one in np.diag(1.0 / np.sqrt(precisions))
    ]
    root = np.array(of_prior + of_noise)
    assert_allclose(root.T @ root, cov, rtol=1e-9, atol=1e-12)
