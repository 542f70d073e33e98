"""The direction and the value of every metric."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
from scipy.stats import norm

from benchmarks.data import Data, standardise
from benchmarks.metrics import METRICS, elbo, evaluate


@pytest.fixture(scope="module")
def data() -> Data:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, [60, 1])
    return standardise("sine", X, np.sin(3.0 * X) + 0.1 * rng.standard_normal([60, 1]), np.arange(60) < 20)


def model(data: Data, trained: bool) -> gpflow.models.SVGP:
    """SVGP whose q is the prior, or, if trained, the exact posterior on 30 inducing points."""
    likelihood = gpflow.likelihoods.Gaussian(0.05)
    inducing = data.X_train[:30]
    model = gpflow.models.SVGP(gpflow.kernels.Matern52(), likelihood, inducing, num_data=len(data.X_train))
    if trained:
        closure = model.training_loss_closure((data.X_train, data.Y_train), compile=False)
        gpflow.optimizers.NaturalGradient(1.0).minimize(closure, [(model.q_mu, model.q_sqrt)])
    return model


@pytest.mark.parametrize("name", sorted(METRICS))
def test_direction_with_a_model_that_is_better(name: str, data: Data) -> None:
    def measure(trained: bool) -> float:
        one = model(data, trained)
        return elbo(one, data) if name == "elbo" else evaluate(one, data)[name]

    metric, good, bad = METRICS[name], measure(True), measure(False)
    assert metric.better(good, bad)
    assert not metric.better(bad, good)
    assert metric.best([bad, good, float("nan")]) == good


def test_values_and_batches(data: Data) -> None:
    trained = model(data, True)
    mean, variance = (np.asarray(array) for array in trained.predict_y(data.X_test))
    expected = {
        "rmse": np.sqrt(np.mean((mean - data.Y_test) ** 2)),
        "log_density": np.mean(norm.logpdf(data.Y_test, mean, np.sqrt(variance))),
    }
    for batch_size in (7, 100):
        assert evaluate(trained, data, batch_size) == pytest.approx(expected, rel=1e-10)
    whole = float(trained.elbo((data.X_train, data.Y_train)))
    assert elbo(trained, data, batch_size=7) == pytest.approx(whole, rel=1e-10)
