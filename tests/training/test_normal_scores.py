"""Inputs by their ranks."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose
from scipy.stats import norm, rankdata

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError
from gpflow_decoupled.models import NNGP
from gpflow_decoupled.training import NormalScores, Standardized

RNG = np.random.default_rng(0)
HEAVY = np.stack([RNG.standard_cauchy(200), RNG.integers(0, 5, 200)], axis=1)
Y = np.sin(np.arctan(HEAVY[:, :1])) + 0.1 * RNG.standard_normal((200, 1))


def test_values_become_normal_quantiles_of_their_mean_ranks():
    expected = norm.ppf((rankdata(HEAVY, axis=0) - 0.5) / 200)
    assert_allclose(NormalScores(HEAVY).transform(HEAVY).numpy(), expected, atol=1e-9)


def test_many_values_are_mapped_through_some_of_them(monkeypatch):
    monkeypatch.setattr("gpflow_decoupled.training.standardization._KNOTS", 50)
    scores = NormalScores(HEAVY)
    assert scores.values.shape == (2, 52)
    expected = norm.ppf((rankdata(HEAVY[:, 0]) - 0.5) / 200)
    middle = np.abs(expected) < 1.5
    assert_allclose(scores.transform(HEAVY).numpy()[middle, 0], expected[middle], atol=0.05)


def test_the_map_increases_beyond_the_data_and_can_be_inverted():
    scores = NormalScores(HEAVY)
    least, most = HEAVY.min(axis=0), HEAVY.max(axis=0)
    X = np.linspace(least - 3.0 * (most - least), most + 3.0 * (most - least), 400)
    Z = scores.transform(X).numpy()
    assert np.all(np.diff(Z, axis=0) > 0.0)
    assert_allclose(scores.inverse_transform(Z), X, rtol=1e-9, atol=1e-9)
    one = scores.transform(X[None, 100:103])  # a row does not depend on the others
    assert_allclose(one[0], Z[100:103])


def test_fixed_and_constant_columns_are_not_spread():
    X = np.column_stack([HEAVY[:, 0], HEAVY[:, 1] > 2, np.full(200, 7.0)])
    Z = NormalScores(X, "X", [False, True, False]).transform(X + 1.0).numpy()
    assert_allclose(Z[:, 1], X[:, 1] + 1.0)
    assert_allclose(Z[:, 2], 1.0)


def test_unusable_arrays_are_refused():
    with pytest.raises(DataError, match="no scale can be learned"):
        NormalScores(HEAVY[:1])
    with pytest.raises(DataError, match="a matrix of 2 columns"):
        NormalScores(HEAVY).transform(HEAVY[:, :1])


@pytest.mark.exhaustive
def test_a_model_of_normal_scores_answers_in_units_of_the_data(tmp_path):
    def build(X: np.ndarray, Y: np.ndarray) -> NNGP:
        assert_allclose(X, NormalScores(HEAVY).transform(HEAVY))
        return NNGP((X, Y), gpflow.kernels.Matern32(lengthscales=[1.0, 1.0]), num_neighbours=5)

    model = Standardized(build, (HEAVY, Y), normal_scores=True)
    assert_allclose(model.training_data[0], HEAVY, rtol=1e-9, atol=1e-9)
    gd.save(model, tmp_path / "model.zip")
    again = gd.load(tmp_path / "model.zip")
    new = tf.constant(HEAVY[:5] + 0.5)
    inside = model.model.predict_y(NormalScores(HEAVY).transform(new))[0]
    assert_allclose(model.predict_y(new)[0], model.outputs.inverse_transform(inside))
    assert_allclose(again.predict_y(new)[0], model.predict_y(new)[0])
