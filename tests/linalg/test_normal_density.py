"""The log density of normal vectors by LAPACK, beside SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal

from gpflow_decoupled.linalg.site_posterior import normal_log_density


def _problem() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    root = rng.standard_normal((5, 5))
    return root @ root.T + 0.1 * np.eye(5), rng.standard_normal((5, 2))


def _value_and_gradients(K: np.ndarray, r: np.ndarray) -> tuple[tf.Tensor, ...]:
    """Of three times the density: the upstream gradient counts."""
    K, r = (tf.convert_to_tensor(part) for part in (K, r))
    with tf.GradientTape() as tape:
        tape.watch([K, r])
        value = 3.0 * normal_log_density(K, r)
    return value / 3.0, *tape.gradient(value, [K, r])


@pytest.mark.parametrize("compiled", [False, True])
def test_value_and_gradients(compiled: bool) -> None:
    K, r = _problem()
    found = tf.function(_value_and_gradients, autograph=False) if compiled else _value_and_gradients
    value, of_K, of_r = found(K, r)

    def log_density(K: np.ndarray, r: np.ndarray) -> float:
        return np.sum(multivariate_normal(np.zeros(5), K).logpdf(r.T))

    assert float(value) == pytest.approx(log_density(K, r), rel=1e-12)
    step = 1e-6
    for i in range(5):
        for j in range(i + 1):
            up, down = K.copy(), K.copy()
            up[i, j] = up[j, i] = K[i, j] + step
            down[i, j] = down[j, i] = K[i, j] - step
            slope = 1.5 * (log_density(up, r) - log_density(down, r)) / step
            assert slope == pytest.approx((2 - (i == j)) * float(of_K[i, j]), rel=1e-6)
        unit = np.zeros((5, 2))
        unit[i, 1] = step
        slope = 1.5 * (log_density(K, r + unit) - log_density(K, r - unit)) / step
        assert slope == pytest.approx(float(of_r[i, 1]), rel=1e-6)
    assert_allclose(of_K, tf.transpose(of_K))


def test_single_precision_stays_single() -> None:
    found = _value_and_gradients(*(array.astype(np.float32) for array in _problem()))
    assert {part.dtype for part in found} == {tf.float32}
    assert float(found[0]) == pytest.approx(float(normal_log_density(*_problem())), rel=1e-4)


def test_what_is_not_positive_definite_is_nan() -> None:
    found = _value_and_gradients(np.array([[1.0, 2.0], [2.0, 1.0]]), np.ones((2, 1)))
    assert all(np.all(np.isnan(part)) for part in found)
