"""The direction and the value of every metric."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
from scipy.stats import norm

from benchmarks.harness.data import Data, standardise
from benchmarks.harness.metrics import (
    METRICS,
    average_ranks,
    classification_scores,
    elbo,
    evaluate,
    gaussian_scores,
)

LABELS = np.array([[0], [2], [1], [2]])
SURE = np.array([[0.8, 0.1, 0.1], [0.2, 0.1, 0.7], [0.1, 0.6, 0.3], [0.4, 0.3, 0.3]])
UNSURE = np.array([[0.5, 0.3, 0.2], [0.4, 0.3, 0.3], [0.3, 0.3, 0.4], [0.4, 0.3, 0.3]])
"""Probabilities of the labels 0.8, 0.7, 0.6, 0.3, of which three are the largest; and 0.5, 0.3,
0.3, 0.3, with one.
"""


@pytest.fixture(scope="module")
def data() -> Data:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, [60, 1])
    return standardise(
        "sine", X, np.sin(3.0 * X) + 0.1 * rng.standard_normal([60, 1]), np.arange(60) < 20
    )


def model(data: Data, trained: bool) -> gpflow.models.SVGP:
    """SVGP whose q is the prior, or, if trained, the exact posterior on 30 inducing points."""
    likelihood = gpflow.likelihoods.Gaussian(0.05)
    inducing = data.X_train[:30]
    model = gpflow.models.SVGP(
        gpflow.kernels.Matern52(), likelihood, inducing, num_data=len(data.X_train)
    )
    if trained:
        closure = model.training_loss_closure((data.X_train, data.Y_train), compile=False)
        gpflow.optimizers.NaturalGradient(1.0).minimize(closure, [(model.q_mu, model.q_sqrt)])
    return model


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sorted(METRICS))
def test_direction_with_a_model_that_is_better(name: str, data: Data) -> None:
    def measure(trained: bool) -> float:
        if name in ("accuracy", "log_loss"):
            return classification_scores(LABELS, SURE if trained else UNSURE)[name]
        one = model(data, trained)
        return elbo(one, data) if name == "elbo" else evaluate(one, data)[name]

    metric, good, bad = METRICS[name], measure(True), measure(False)
    assert metric.better(good, bad)
    assert not metric.better(bad, good)
    assert metric.best([bad, good, float("nan")]) == good


@pytest.mark.exhaustive
def test_values_and_batches(data: Data) -> None:
    trained = model(data, True)
    mean, variance = (np.asarray(array) for array in trained.predict_y(data.X_test))
    expected = {
        "mae": np.mean(np.abs(mean - data.Y_test)),
        "rmse": np.sqrt(np.mean((mean - data.Y_test) ** 2)),
        "log_density": np.mean(norm.logpdf(data.Y_test, mean, np.sqrt(variance))),
    }
    low, high = norm.interval(0.95, mean, np.sqrt(variance))
    expected["coverage"] = np.mean((low <= data.Y_test) & (data.Y_test <= high))
    for batch_size in (7, 100):
        assert evaluate(trained, data, batch_size) == pytest.approx(expected, rel=1e-10)
    assert gaussian_scores(mean, variance, data.Y_test) == pytest.approx(expected, rel=1e-10)
    narrow = gaussian_scores(mean, 0.01 * variance, data.Y_test)["coverage"]
    assert narrow < expected["coverage"]
    whole = float(trained.elbo((data.X_train, data.Y_train)))
    assert elbo(trained, data, batch_size=7) == pytest.approx(whole, rel=1e-10)


def test_classification() -> None:
    """By hand; a binary set may have the probabilities of class 1 alone; certain errors cost much
    but not everything.
    """
    scores = classification_scores(LABELS, SURE)
    assert scores == pytest.approx(
        {"accuracy": 0.75, "log_loss": -np.mean(np.log([0.8, 0.7, 0.6, 0.3]))}
    )
    labels, second = np.array([1.0, 0.0, 1.0]), np.array([[0.9], [0.4], [0.3]])
    expected = {"accuracy": 2.0 / 3.0, "log_loss": -np.mean(np.log([0.9, 0.6, 0.3]))}
    assert classification_scores(labels, second) == pytest.approx(expected)
    assert classification_scores(labels, np.hstack([1.0 - second, second])) == pytest.approx(
        expected
    )
    assert 10.0 < classification_scores(np.array([0]), np.array([[0.0, 1.0]]))["log_loss"] < 100.0


def test_average_ranks() -> None:
    """The best is first in either direction, ties share their places, and what failed is last."""
    values = np.array([[0.1, 0.2, 0.3], [0.2, 0.2, 0.4], [0.5, np.nan, 0.6]])
    means, errors = average_ranks(values, METRICS["mae"])
    np.testing.assert_allclose(means, [3.5 / 3, 6.5 / 3, 8.0 / 3])
    np.testing.assert_allclose(
        errors,
        [np.std(column, ddof=1) / 3**0.5 for column in [[1, 1.5, 1], [2, 1.5, 3], [3, 3, 2]]],
    )
    np.testing.assert_allclose(average_ranks(values, METRICS["accuracy"])[0], [2.5, 2.5, 1.0])
    np.testing.assert_allclose(average_ranks(values[:1], METRICS["rmse"])[1], 0.0)
