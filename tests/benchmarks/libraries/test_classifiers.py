"""Classes as data, and classifiers of every library."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest

from benchmarks.harness.data import Data, standardise
from benchmarks.harness.metrics import evaluate_classes
from benchmarks.libraries.gpflow_svgp import gpflow_steps
from benchmarks.libraries.models import Settings, build, parse
from benchmarks.libraries.scikit_learn import BASELINES, train_baseline
from benchmarks.libraries.selu_network import train_network
from gpflow_decoupled.likelihoods import CategoricalLogit


@pytest.fixture(scope="module")
def data() -> Data:
    """Two of four classes along the first of two inputs; the others, 1 and 3, have no row in the
    training part.
    """
    rng = np.random.default_rng(0)
    X = rng.standard_normal([120, 2])
    Y = 2 * (X[:, :1] > 0.0).astype(int)
    Y[0], Y[1] = 1, 3
    return standardise("made", X, Y, np.arange(120) < 40).classes()


@pytest.mark.exhaustive
def test_declared_classes_choose_likelihood_and_latents(data: Data) -> None:
    """A class that only test rows have counts; with two there is one latent function; undeclared
    labels stay as they were.
    """
    assert data.num_classes == 4 and data.cast("float32").num_classes == 4
    for name in ("coupled-4", "gpflow-4", "orthogonal-3+4", "hybrid-3+4", "decoupled-3+4"):
        model = build(parse(name), data, Settings())
        assert isinstance(model.likelihood, CategoricalLogit) and model.num_latent_gps == 4
        np.testing.assert_allclose(model.kernel.lengthscales, np.sqrt([2.0, 2.0]))
        model = build(parse(name), data, Settings(multiclass="robustmax"))
        assert (
            isinstance(model.likelihood, gpflow.likelihoods.MultiClass)
            and model.num_latent_gps == 4
        )
    binary = data._replace(
        Y_train=np.minimum(data.Y_train, 1.0), Y_test=np.minimum(data.Y_test, 1.0)
    )
    two = build(parse("coupled-4"), binary.classes(), Settings())
    assert isinstance(two.likelihood, gpflow.likelihoods.Bernoulli) and two.num_latent_gps == 1
    np.testing.assert_allclose(
        build(parse("coupled-4"), binary._replace(num_classes=0), Settings()).kernel.lengthscales, 1
    )


@pytest.mark.exhaustive
def test_scores_of_classes(data: Data) -> None:
    """Against a count of right answers and a mean of logarithms, in batches."""
    model = build(parse("gpflow-4"), data, Settings())
    model.q_mu.assign(np.linspace(-2.0, 2.0, 16).reshape(4, 4))
    chances = np.asarray(model.predict_y(data.X_test)[0])
    right = chances[np.arange(len(chances)), data.Y_test[:, 0].astype(int)] / chances.sum(1)
    expected = {
        "accuracy": np.mean(chances.argmax(1) == data.Y_test[:, 0]),
        "log_loss": -np.mean(np.log(right)),
    }
    assert evaluate_classes(model, data, batch_size=7) == pytest.approx(expected, rel=1e-9)


@pytest.mark.exhaustive
def test_gpflow_by_adam_moves_q(data: Data) -> None:
    for natural in (True, False):
        model = build(parse("gpflow-4"), data, Settings(batch_size=20))
        steps = gpflow_steps(model, data, Settings(batch_size=20), natural)
        assert (
            any(v is model.q_mu.unconstrained_variable for v in model.trainable_variables)
            != natural
        )
        if not natural:
            steps.both()
            assert np.any(model.q_mu.numpy() != 0.0)


@pytest.mark.exhaustive
def test_baseline_gives_an_absent_class_nothing(data: Data) -> None:
    for name in BASELINES:
        chances, seconds = train_baseline(name, data, seed=0)
        assert chances.shape == (40, 4) and seconds > 0.0
        np.testing.assert_allclose(chances.sum(1), 1.0)
        np.testing.assert_array_equal(chances[:, [1, 3]], 0.0)
        assert np.mean(chances.argmax(1) == data.Y_test[:, 0]) > 0.9


@pytest.mark.exhaustive
def test_network_learns_and_ends_in_time(data: Data) -> None:
    chances, seconds, steps, note = train_network(data, [2], 5.0, seed=0)
    assert chances.shape == (40, 4) and steps > 10 and seconds > 0.0 and note == "2 hidden layers"
    np.testing.assert_allclose(chances.sum(1), 1.0)
    assert np.mean(chances.argmax(1) == data.Y_test[:, 0]) > 0.85
    assert train_network(data, [2], 1e-9, seed=0)[2] <= 2
