"""The log density of a normal vector by LAPACK, beside SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal

from gpflow_decoupled.linalg.normal_density import normal_density


def _problem() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    root = rng.standard_normal((5, 5))
    return root @ root.T + 0.1 * np.eye(5), rng.standard_normal(5)


def test_value_and_gradients() -> None:
    K, r = _problem()
    found = normal_density(K, r)
    assert found.value == pytest.approx(multivariate_normal(np.zeros(5), K).logpdf(r), rel=1e-12)
    step = 1e-6
    for i in range(5):
        for j in range(i + 1):
            up, down = K.copy(), K.copy()
            up[i, j] = up[j, i] = K[i, j] + step
            down[i, j] = down[j, i] = K[i, j] - step
            slope = (normal_density(up, r).value - normal_density(down, r).value) / (2.0 * step)
            assert slope == pytest.approx((2 - (i == j)) * found.of_covariance[i, j], rel=1e-6)
        unit = step * np.eye(5)[i]
        slope = normal_density(K, r + unit).value - normal_density(K, r - unit).value
        assert slope / (2.0 * step) == pytest.approx(found.of_vector[i], rel=1e-6)
    assert_allclose(found.of_covariance, found.of_covariance.T)


def test_single_precision_stays_single() -> None:
    K, r = (array.astype(np.float32) for array in _problem())
    found = normal_density(K, r)
    assert found.of_covariance.dtype == found.of_vector.dtype == np.float32
    assert found.value == pytest.approx(normal_density(*_problem()).value, rel=1e-4)


def test_what_is_not_positive_definite_is_nan() -> None:
    found = normal_density(np.array([[1.0, 2.0], [2.0, 1.0]]), np.ones(2))
    assert all(np.all(np.isnan(part)) for part in found)
