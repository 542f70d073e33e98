"""Partial dependence with intervals, and shares of the parts of a sum."""

from __future__ import annotations

import gpflow
import numpy as np
import pandas as pd
import pytest

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError, ModelError
from gpflow_decoupled.wrappers import partial_dependence, sobol_shares

RNG = np.random.default_rng(0)
X = RNG.uniform(0.0, 10.0, (60, 3))
Y = 3.0 * np.sin(X[:, 0]) + 0.3 * X[:, 1] + 50.0 + 0.1 * RNG.normal(size=60)


def _parts() -> gpflow.kernels.Kernel:
    k = gpflow.kernels
    first = k.Matern52(lengthscales=2.0, active_dims=[0])
    rest = k.SquaredExponential(lengthscales=8.0, active_dims=[1])
    return first + rest + k.SquaredExponential(lengthscales=8.0, active_dims=[2]) + k.Constant()


@pytest.fixture(scope="module")
def model() -> gd.Standardized:
    made = gd.build(X, Y, kernel=_parts(), verbose=False)
    gd.fit(made, steps=9, compile=False, progress=False)
    return made


@pytest.mark.exhaustive
def test_partial_dependence_is_the_mean_of_joint_predictions(model) -> None:
    found = partial_dependence(model, X, 0, grid_resolution=7)
    for value in found.index[[0, 3]]:
        moved = X.copy()
        moved[:, 0] = value
        mean, cov = (np.asarray(part) for part in model.predict_f(moved, full_cov=True))
        weights = np.full(60, 1.0 / 60.0)
        assert found.loc[value, "mean"] == pytest.approx(weights @ mean[:, 0])
        half = 1.959964 * np.sqrt(weights @ cov[0] @ weights)
        assert found.loc[value, "high"] - found.loc[value, "mean"] == pytest.approx(half, rel=1e-5)
    truth = 3.0 * np.sin(found.index.to_numpy()) + 0.3 * X[:, 1].mean() + 50.0
    assert np.all(np.abs(found["mean"] - truth) < 0.5)
    narrow = partial_dependence(model, X, 0, grid_resolution=7, level=0.5)
    assert np.all(narrow["high"] < found["high"]) and np.all(narrow["low"] > found["low"])


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("outputs", [None, "coregionalised"])
def test_partial_dependence_is_of_an_output(outputs: str | None) -> None:
    made = gd.build(X, np.column_stack([Y, -7.0 * Y]), outputs=outputs, verbose=False)
    found = partial_dependence(made, X, 0, output=1, grid_resolution=3)
    moved = X.copy()
    moved[:, 0] = found.index[1]
    mean, cov = (np.asarray(part) for part in made.predict_f(moved, full_cov=True))
    assert found["mean"].iloc[1] == pytest.approx(mean[:, 1].mean())
    half = 1.959964 * np.sqrt(cov[1].mean())
    assert found["high"].iloc[1] - found["mean"].iloc[1] == pytest.approx(half, rel=1e-5)


@pytest.mark.exhaustive
def test_partial_dependence_of_noise_that_varies() -> None:
    made = gd.build(X, Y, "heteroskedastic", verbose=False)
    gd.fit(made, steps=5, compile=False, progress=False)
    first, noise = (partial_dependence(made, X, 0, output=one) for one in (None, 1))
    assert abs(first["mean"].mean() - Y.mean()) < 1.0
    assert np.all(noise["mean"] < np.log(Y.std()))  # of the deviation, in units of Y


def test_partial_dependence_of_a_frame_has_each_category() -> None:
    frame = pd.DataFrame({"x": X[:, 0], "town": np.where(X[:, 1] > 5.0, "a", "b"), "y": Y})
    frame["y"] += 4.0 * (frame["town"] == "a")
    made = gd.build(frame, "y", verbose=False)
    gd.fit(made, steps=9, compile=False, progress=False)
    found = partial_dependence(made, frame.drop(columns="y"), "town")
    assert list(found.index) == ["a", "b"] and found.index.name == "town"
    assert found.loc["a", "low"] > found.loc["b", "high"]


@pytest.mark.exhaustive
def test_sobol_shares_are_those_of_the_parts(model) -> None:
    found = sobol_shares(model, X)
    assert list(found.index)[:2] == ["X[:, 0]", "X[:, 1]"] and len(found) == 3
    variances = np.var(3.0 * np.sin(X[:, 0])), np.var(0.3 * X[:, 1])
    assert found["share"].iloc[0] == pytest.approx(variances[0] / sum(variances), abs=0.05)
    assert found["share"].sum() == pytest.approx(1.0)
    assert np.all((found["low"] <= found["share"]) & (found["share"] <= found["high"]))


@pytest.mark.exhaustive
def test_sobol_shares_are_of_an_output() -> None:
    """The first output is of the first input alone, the second one of the second."""
    both = np.column_stack([np.sin(X[:, 0]), 7.0 * np.cos(X[:, 1])])
    both += 0.1 * RNG.normal(size=both.shape)
    made = gd.build(X, both, kernel=_parts(), verbose=False)
    gd.fit(made, progress=False)
    for output in (0, 1):
        found = sobol_shares(made, X, output=output)
        assert found.index[0] == f"X[:, {output}]" and found["share"].iloc[0] > 0.9
    mixed = gd.build(X, both, outputs="coregionalised", kernel=_parts(), verbose=False)
    found = sobol_shares(mixed, X, output=1)
    assert len(found) == 3 and found["share"].sum() == pytest.approx(1.0)


def test_what_has_no_effects_is_refused(model) -> None:
    with pytest.raises(ModelError, match="this is a CVIGP"):
        partial_dependence(model.model, X, 0)
    with pytest.raises(DataError, match="column=7 is none of X, which has"):
        partial_dependence(model, X, 7)
    with pytest.raises(DataError, match="X has no rows"):
        sobol_shares(model, X[:0])
    joined = gpflow.kernels.Matern52(active_dims=[0, 1]) + gpflow.kernels.Matern32()
    made = gd.build(X, Y, kernel=joined, verbose=False)
    with pytest.raises(ModelError, match="no sum of parts that read different inputs"):
        sobol_shares(made, X)
    two = gd.build(X, np.column_stack([Y, Y**2]), verbose=False)
    for output in (None, 2):
        with pytest.raises(DataError, match="the model has 2 functions, and an effect is of one"):
            partial_dependence(two, X, 0, output=output)
        with pytest.raises(DataError, match="the model has 2 functions, and an effect is of one"):
            sobol_shares(two, X, output=output)
