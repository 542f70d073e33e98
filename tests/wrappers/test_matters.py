"""Inputs that matter, models that are better, and records as tables."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError, ModelError
from gpflow_decoupled.wrappers import compare, importance

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {"wave": RNG.uniform(0.0, 10.0, 60), "noise": RNG.normal(size=60), "town": ["a", "b"] * 30}
)
FRAME["y"] = np.sin(FRAME["wave"]) + 0.5 * (FRAME["town"] == "a") + 0.05 * RNG.normal(size=60)
TRAIN, TEST = FRAME[:40], FRAME[40:]


@pytest.fixture(scope="module")
def model() -> gd.Standardized:
    made = gd.build(TRAIN, "y", verbose=False)
    gd.fit(made, progress=False)
    return made


@pytest.mark.exhaustive
def test_inputs_are_ranked_by_what_they_tell(model) -> None:
    table = importance(model, TEST)
    assert list(table.index) == ["wave", "town", "noise"]
    assert table.loc["town", "permutation"] > 0.1 > abs(table.loc["noise", "permutation"])
    lengths = model.kernel.lengthscales.numpy()
    assert table.loc["wave", "lengthscale"] == pytest.approx(lengths[0])
    inverse = table["inverse_lengthscale"]
    assert inverse["wave"] == pytest.approx(TRAIN["wave"].std(ddof=0) / lengths[0])
    assert inverse["wave"] > 10.0 * inverse["noise"]
    with pytest.raises(ModelError, match="needs a model that knows its columns"):
        importance(model.model, TEST)


@pytest.mark.exhaustive
def test_two_models_are_compared_row_by_row(model) -> None:
    other = gd.build(TRAIN.drop(columns="wave"), "y", verbose=False)
    gd.fit(other, progress=False)
    found = compare(model, other, TEST)
    rows = model.predict_log_density(TEST) - other.predict_log_density(TEST)
    assert found.difference == pytest.approx(float(np.mean(rows)))
    assert found.standard_error == pytest.approx(float(np.std(rows, ddof=1)) / np.sqrt(20.0))
    assert found.difference > 3.0 * found.standard_error and "20 rows" in str(found)
    with pytest.raises(DataError, match="needs two"):
        compare(model, other, TEST[:1])


@pytest.mark.exhaustive
def test_a_record_is_a_table() -> None:
    model = gd.build(TRAIN, "y", verbose=False)
    options = {"learning_rate": 0.01, "compile": False, "progress": False}
    evaluation = gd.training.Evaluation(model.table.arrays(TEST), every=2)
    result = gd.fit(model, steps=4, evaluation=evaluation, **options)
    table = result.summary()
    assert list(table.index) == [1, 2, 3, 4] and table["elbo"].notna().all()
    assert list(table["log_density"].dropna().index) == [2, 4]
    assert table["elbo"].iloc[-1] == pytest.approx(result.history["elbo"][-1])


def test_partial_dependence_is_scikit_learns() -> None:
    pytest.importorskip("matplotlib")
    from sklearn.inspection import PartialDependenceDisplay

    from gpflow_decoupled.wrappers.sklearn import DecoupledGPRegressor

    X = TRAIN[["wave", "noise"]].to_numpy()
    regressor = DecoupledGPRegressor().fit(X, TRAIN["y"].to_numpy())
    display = PartialDependenceDisplay.from_estimator(regressor, X, [0], grid_resolution=5)
    average = display.pd_results[0]["average"]
    assert average.shape == (1, 5) and np.ptp(average) > 0.5
