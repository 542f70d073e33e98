"""The slow version of neighbours against dense Gaussian algebra, and its inequalities."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from . import neighbours as ref
from .collapsed import exact_posterior, log_normal


def problem(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs [N, D], the covariance of observations [N, N], and observations [N]."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(14, 2))
    distance = np.linalg.norm(X[:, None] - X, axis=-1)
    K = 1.3 * (1 + distance) * np.exp(-distance) + 0.1 * np.eye(14)
    return X, K, rng.multivariate_normal(np.zeros(14), K)


@pytest.mark.parametrize("seed", range(5))
def test_all_earlier_rows_give_the_evidence_in_every_order(seed):
    X, K, y = problem(seed)
    order = np.random.default_rng(seed).permutation(14)
    terms = ref.log_likelihood(K, y, ref.earlier(X, order, 13))
    assert_allclose(terms.sum(), log_normal(y, K), rtol=1e-10)


@pytest.mark.parametrize("seed", range(5))
def test_fewer_neighbours_have_larger_variances(seed):
    X, K, y = problem(seed)
    order = np.random.default_rng(seed).permutation(14)
    few, many = ref.earlier(X, order, 3), ref.earlier(X, order, 6)
    for row in range(14):
        assert ref.conditional(K, y, row, few[row])[1] >= ref.conditional(K, y, row, many[row])[1]
    # (N3): the variances bound the log determinant from above
    taus = [ref.conditional(K, y, row, few[row])[1] for row in range(14)]
    assert np.sum(np.log(taus)) > np.linalg.slogdet(K)[1]


def test_predictions_and_leave_one_out_from_all_rows_are_exact():
    X, K, y = problem(0)
    x = np.array([0.3, -0.2])
    distance = np.linalg.norm(X - x, axis=1)
    k_new = 1.3 * (1 + distance) * np.exp(-distance)
    noiseless = K - 0.1 * np.eye(14)
    mean, cov = exact_posterior(noiseless, k_new[None], np.array([[1.3]]), y, 0.1)
    assert_allclose(ref.prediction(K, y, k_new, 1.3, range(14)), (mean[0], cov[0, 0]), rtol=1e-10)
    means, variances = ref.leave_one_out(K, y)
    for row in range(14):
        others = [k for k in range(14) if k != row]
        assert_allclose(ref.conditional(K, y, row, others), (means[row], variances[row]), rtol=1e-9)


def test_sites_are_observations_and_their_log_partition_function_that_of_all_rows():
    """A site is an observation nu / lambda with noise 1 / lambda."""
    X, K, y = problem(1)
    prior = K - 0.1 * np.eye(14)
    precision = np.random.default_rng(2).uniform(0.1, 4.0, 14)
    sites = precision * y, precision
    noisy = prior + np.diag(1.0 / precision)
    given = [0, 3, 7, 9]
    mean, variance = ref.conditional(noisy, y, 5, given)
    expected = (mean, variance - 1.0 / precision[5])
    assert_allclose(ref.cavity(prior, sites, 5, given), expected, rtol=1e-9)
    terms = ref.log_partition(prior, sites, ref.earlier(X, range(14), 13))
    factors = 0.5 * (np.log(2 * np.pi / precision) + precision * y**2)
    assert_allclose(terms.sum(), log_normal(y, noisy) + factors.sum(), rtol=1e-9)
