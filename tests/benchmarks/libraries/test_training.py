"""Peers that are not always installed learn what ours learn, and are left out where they are
missing.
"""

from __future__ import annotations

import importlib.util
import math

import pytest

from benchmarks.harness.data import load
from benchmarks.libraries.models import Settings, parse
from benchmarks.libraries.training import installed, missing, train


@pytest.mark.parametrize("name", ["gpytorch-20", "gpytorch-20+10"])
def test_gpytorch_learns(name: str) -> None:
    pytest.importorskip("gpytorch")
    settings = Settings(batch_size=128, learning_rate=0.03, budgets=(3.0,))
    record = train(parse(name), load("diabetes"), [1e-6, 3.0], settings)
    first, last = (snapshot.metrics for snapshot in record.snapshots)
    assert record.library == "gpytorch" and record.snapshots[-1].step > 10
    assert last["rmse"] < first["rmse"] - 0.1 and last["log_density"] > first["log_density"]
    assert all(math.isfinite(value) for value in last.values())


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
