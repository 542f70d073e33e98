"""The interface of bayesian_benchmarks, driven as its harness drives it."""

from __future__ import annotations

import numpy as np
import pytest

from gpflow_decoupled.errors import DataError
from gpflow_decoupled.wrappers.bayesian_benchmarks import ClassificationModel, RegressionModel


@pytest.fixture(scope="module")
def inputs() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((50, 1))


@pytest.mark.exhaustive
def test_regression(inputs) -> None:
    model = RegressionModel(is_test=True, seed=3)
    model.fit(inputs, np.concatenate([np.sin(inputs), np.cos(inputs)], axis=1))
    mean, variance = model.predict(inputs[:6])
    assert mean.shape == variance.shape == (6, 2)
    samples = model.sample(inputs[:6], 5000)
    assert samples.shape == (5000, 6, 2)
    assert np.all(np.abs(samples.mean(axis=0) - mean) < 5.0 * np.sqrt(variance / 5000))
    np.testing.assert_allclose(samples.var(axis=0), variance, rtol=0.15)
    np.testing.assert_array_equal(model.sample(inputs[:6], 5000), samples)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings(
    "ignore:The bound of .* is not accurate"
)  # ten steps of Adam leave q(f) wide
@pytest.mark.parametrize("K", [2, 3])
def test_classification(inputs, K) -> None:
    labels = np.digitize(inputs, [0.0] if K == 2 else [-0.5, 0.5])
    model = ClassificationModel(K, is_test=True)
    model.fit(inputs, labels)
    probability = model.predict(inputs)
    assert probability.shape == (50, K)
    np.testing.assert_allclose(probability.sum(axis=1), 1.0)
    assert np.mean(np.argmax(probability, axis=1) == labels[:, 0]) > 0.7
    draws = model.sample(inputs, 4000)
    assert draws.shape == (4000, 50, 1)
    shares = np.stack([(draws[:, :, 0] == k).mean(axis=0) for k in range(K)], axis=1)
    np.testing.assert_allclose(shares, probability, atol=0.05)


def test_what_is_not_there_is_refused(inputs) -> None:
    with pytest.raises(DataError, match="call fit"):
        RegressionModel().predict(inputs)
    with pytest.raises(DataError, match="K=1"):
        ClassificationModel(1)
