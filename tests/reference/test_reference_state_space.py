"""The slow filter and smoother against the dense Gaussian process."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal

from tests.reference import state_space as ref

RNG = np.random.default_rng(0)
T = np.sort(RNG.uniform(0.0, 6.0, 15))
Y = RNG.normal(size=15)
NOISE = RNG.uniform(0.1, 1.0, 15)


@pytest.mark.parametrize("p", [0, 1, 2])
def test_filter_and_smoother_are_the_dense_gaussian_process(p):
    K = ref.matern(p, T, T, 1.3, 0.8)
    found = ref.kalman(*ref.matern_model(p, 1.3, 0.8), T, Y, NOISE)
    C = K + np.diag(NOISE)
    assert_allclose(found.mean, K @ np.linalg.solve(C, Y), atol=1e-9)
    assert_allclose(found.variance, np.diag(K - K @ np.linalg.solve(C, K)), atol=1e-9)
    assert found.log_evidence == pytest.approx(multivariate_normal(cov=C).logpdf(Y), abs=1e-9)
