"""Peers that are not always installed learn what ours learn, and are left out where they are
missing.
"""

from __future__ import annotations

import importlib.util
import math
import sys
import time
from types import SimpleNamespace

import gpflow
import numpy as np
import pytest

from benchmarks.harness.data import load
from benchmarks.libraries import neighbours
from benchmarks.libraries.gpboost_vecchia import train_vecchia
from benchmarks.libraries.models import Settings, parse
from benchmarks.libraries.training import installed, missing, train
from gpflow_decoupled.building.kernels import KernelChoice
from gpflow_decoupled.errors import NumericalError
from gpflow_decoupled.training import NormalScores, Standardized


@pytest.mark.parametrize("name", ["gpytorch-20", "gpytorch-20+10", "vnngp-10"])
def test_gpytorch_learns(name: str) -> None:
    pytest.importorskip("gpytorch")
    settings = Settings(batch_size=128, learning_rate=0.03, budgets=(3.0,))
    record = train(parse(name), load("diabetes"), [1e-6, 3.0], settings)
    first, last = (snapshot.metrics for snapshot in record.snapshots)
    assert record.library == "gpytorch" and record.snapshots[-1].step > 10
    assert last["rmse"] < first["rmse"] - 0.1 and last["log_density"] > first["log_density"]
    assert all(math.isfinite(value) for value in last.values())


@pytest.mark.exhaustive
def test_neighbours_learn() -> None:
    """Each budget is a run of its own, whose only snapshot is its end."""
    settings = Settings(budgets=(2, 1), unit="steps")
    record = train(parse("neighbours-10"), load("diabetes"), [0.5, 1.0, 2.0], settings)
    assert record.library == "gpflow_decoupled"
    assert [(one.target, one.step, one.final) for one in record.snapshots] == [
        (1, 1, True),
        (2, 2, True),
    ]
    for one in record.snapshots:
        assert one.metrics["rmse"] < 0.9 and 0.85 < one.metrics["coverage"] <= 1.0
        assert math.isfinite(one.metrics["log_density"])
    assert "predictions from" in record.note


@pytest.mark.exhaustive
@pytest.mark.parametrize("fails", [False, True])
def test_the_choice_of_a_kernel_takes_its_share_of_a_budget(
    fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`fit` starts from the choice and is given what is left; the record counts both."""
    given: list[float] = []

    def choose(X: np.ndarray, Y: np.ndarray, *, seed: int, seconds: float) -> KernelChoice:
        assert seconds == pytest.approx(0.5 * 9.0)
        time.sleep(0.4)
        kernel = gpflow.kernels.Matern12(lengthscales=np.full(X.shape[1], 3.0))
        return KernelChoice("Matern 1/2", kernel, 0.5, {"Matern 1/2": -1.0}, True, 50)

    def fit(model: Standardized, *, seconds: float, steps: None, **_: object) -> SimpleNamespace:
        assert isinstance(model.model.kernel, gpflow.kernels.Matern12) and steps is None
        assert isinstance(model.inputs, NormalScores)
        assert model.model.sizes["prediction_neighbours"] == 50
        assert float(model.likelihood.variance.numpy()) == pytest.approx(0.5)
        given.append(seconds)
        result = SimpleNamespace(steps=1)
        if fails:
            error = NumericalError("not positive definite")
            error.result = result
            raise error
        return result

    monkeypatch.setattr(neighbours, "choose_kernel", choose)
    monkeypatch.setattr(neighbours, "fit", fit)
    record = train(parse("neighbours-10-auto"), load("diabetes"), [9.0], Settings(budgets=(9.0,)))
    (end,) = record.snapshots
    assert 0.0 < given[0] <= 8.6 and end.seconds > 0.4
    assert record.note.startswith("Matern 1/2 of ranks; ")
    assert ("failed in step 2" in record.note) == fails == (not end.metrics)


@pytest.mark.parametrize(
    "name, library",
    [("vecchia-10", "gpboost"), ("vecchia-10+20", "gpboost"), ("lightgbm-50", "lightgbm")],
)
def test_peers_that_stop_by_themselves_learn(name: str, library: str) -> None:
    """All targets have the same metrics."""
    pytest.importorskip(library)
    record = train(parse(name), load("diabetes"), [1.0, 2.0], Settings())
    first, last = record.snapshots
    assert record.library == library and first.metrics == last.metrics
    assert last.metrics["rmse"] < 0.9 and 0.85 < last.metrics["coverage"] <= 1.0


def test_gpboost_is_given_no_constant_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """It refuses a set of inputs that has one."""
    given: list[np.ndarray] = []

    class Model:
        def __init__(self, gp_coords: np.ndarray, **_: object) -> None:
            given.append(gp_coords)

        def fit(self, y: np.ndarray) -> None:
            pass

        def predict(self, gp_coords_pred: np.ndarray, **_: object) -> dict[str, np.ndarray]:
            given.append(gp_coords_pred)
            return {"mu": np.zeros(len(gp_coords_pred)), "var": np.ones(len(gp_coords_pred))}

    monkeypatch.setitem(sys.modules, "gpboost", SimpleNamespace(GPModel=Model))
    data = load("diabetes")
    constant = data.X_train.copy()
    constant[:, 3] = 0.5
    train_vecchia(parse("vecchia-10"), data._replace(X_train=constant), [1.0], Settings())
    for found, whole in zip(given, (constant, data.X_test), strict=True):
        assert np.array_equal(found, np.delete(whole, 3, axis=1))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name", ["data-20", "descent-20", "cglb-20", "gpr-1000", "sgpr-20", "trees-50"]
)
def test_models_on_all_data_learn(name: str) -> None:
    """The errors are below those of the mean, at every target, and the trees say when they
    ended.
    """
    settings = Settings(budgets=(5,), unit="steps")
    record = train(parse(name), load("diabetes"), [5], settings)
    assert [snapshot.target for snapshot in record.snapshots] == [5]
    metrics = record.snapshots[-1].metrics
    assert metrics["rmse"] < 0.9 and math.isfinite(metrics["log_density"])
    assert ("elbo" in metrics) == (name != "trees-50") and ("iterations" in record.note) == (
        name == "trees-50"
    )


@pytest.mark.skipif(
    importlib.util.find_spec("gpytorch") is not None, reason="GPyTorch is installed"
)
def test_a_missing_peer_is_left_out() -> None:
    assert not missing("gpflow") and not missing("gpflow_decoupled")
    with pytest.warns(UserWarning, match="GPyTorch is not installed"):
        assert installed(["coupled-3", "gpflow-3", "gpytorch-3"]) == ["coupled-3", "gpflow-3"]
    with pytest.raises(RuntimeError, match="pip install"):
        train(parse("gpytorch-3"), load("diabetes"), [1.0], Settings())
