"""Standardisation uses training statistics only; splits, folders and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness.data import (
    EMBEDDED,
    FOLDER_VARIABLE,
    existing_splits,
    inducing_points,
    load,
    standardise,
)


def raw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    X = 3.0 + 2.0 * rng.standard_normal([50, 3])
    return X, 5.0 * rng.standard_normal([50, 1]) - 1.0, np.arange(50) < 10


def test_statistics_are_those_of_the_training_rows(rng: np.random.Generator) -> None:
    X, Y, test = raw(rng)
    data = standardise("made", X, Y, test)
    np.testing.assert_allclose(data.X_train.mean(0), 0.0, atol=1e-12)
    np.testing.assert_allclose(data.X_train.std(0), 1.0, atol=1e-12)
    np.testing.assert_allclose([data.Y_train.mean(), data.Y_train.std()], [0.0, 1.0], atol=1e-12)
    np.testing.assert_allclose(data.X_test, (X[:10] - X[10:].mean(0)) / X[10:].std(0))
    X[:10] *= 100.0  # other test rows must not change a training row
    np.testing.assert_array_equal(standardise("made", X, Y, test).X_train, data.X_train)


def test_constant_columns_are_not_blown_up(rng: np.random.Generator) -> None:
    X, Y, test = raw(rng)
    X[:, 0] = 7.0
    X[:, 1] = 0.998 + 1e-16 * np.arange(50)  # constant up to rounding
    data = standardise("made", X, Y, test)
    assert np.all(np.abs(data.X_train[:, :2]) < 1e-6)
    assert np.all(np.abs(data.X_test[:, :2]) < 1e-6)


def test_labels_are_left_alone(rng: np.random.Generator) -> None:
    X, _, test = raw(rng)
    data = standardise("made", X, np.arange(50) % 2, test)
    assert data.Y_train.shape == (40, 1)
    assert set(np.unique(data.Y_train)) == {0.0, 1.0}


@pytest.mark.parametrize("name", sorted(EMBEDDED))
def test_embedded_sets_need_no_folder(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    first, again, other = load(name), load(name), load(name, split=1)
    np.testing.assert_array_equal(first.X_test, again.X_test)
    assert not np.array_equal(first.X_test, other.X_test)
    assert abs(len(first.X_test) / (len(first.X_test) + len(first.X_train)) - 0.1) < 0.01
    assert first.Y_train.shape == (len(first.X_train), 1)


def test_folder_by_argument_and_by_environment(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, Y, test = raw(rng)
    np.savez(tmp_path / "made.npz", X=X, Y=Y, test_mask=np.stack([test, ~test], 1))
    assert len(load("made", split=0, folder=tmp_path).X_test) == 10
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    assert len(load("made", split=1).X_test) == 40
    with pytest.raises(ValueError, match="splits 0 to 1; split=2"):
        load("made", split=2)
    with pytest.raises(FileNotFoundError, match=r"absent\.npz"):
        load("absent")


def test_splits_that_a_set_does_not_have_are_left_out(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    X, Y, test = raw(rng)
    np.savez(tmp_path / "fixed.npz", X=X, Y=Y, test_mask=np.stack([test, ~test], 1))
    np.savez(tmp_path / "drawn.npz", X=X, Y=Y)
    assert existing_splits("fixed", [0, 1, 2], tmp_path) == [0, 1]
    assert existing_splits("fixed", [2, 3], tmp_path) == [2, 3], "`load` refuses these"
    for name in ("drawn", "absent", "synthetic"):
        assert existing_splits(name, [0, 7], tmp_path) == [0, 7]


def test_unknown_set_without_folder_says_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    with pytest.raises(ValueError, match="--data or GPFLOW_DECOUPLED_DATA"):
        load("kin40k")


def test_inducing_points_are_the_same_for_every_model() -> None:
    data = load("diabetes")
    first = inducing_points(data, 15)
    first[0] = 0.0  # a model may write into its own copy
    second = inducing_points(data, 15)
    np.testing.assert_array_equal(first[1:], second[1:])
    assert np.any(second[0] != 0.0)
    other = inducing_points(data, 15, seed=1, given=second)
    assert not np.array_equal(second, other)
    assert len(np.unique(np.concatenate([second, other]), axis=0)) == 30
    with pytest.raises(ValueError, match="1000"):
        inducing_points(data, 1000)
