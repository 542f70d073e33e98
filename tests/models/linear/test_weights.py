"""The table of a linear model's weights: numbers, names, and what is refused."""

from __future__ import annotations

import sys

import gpflow
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError
from gpflow_decoupled.models import WeightsPosterior, weights_posterior

POSTERIOR = WeightsPosterior(tf.constant([1.0, -2.0, 3.0]), tf.constant(np.diag([1.0, 4.0, 0.25])))


def test_numbers_are_those_of_the_posterior() -> None:
    table = POSTERIOR.summary(["a", "b", "c"])
    assert list(table.columns) == ["mean", "sd", "lower", "upper"] and list(table.index) == [
        "a",
        "b",
        "c",
    ]
    np.testing.assert_allclose(table["sd"], [1.0, 2.0, 0.5])
    np.testing.assert_allclose(
        table.loc["b", ["lower", "upper"]].astype(float), [-2.0 - 3.919928, -2.0 + 3.919928]
    )
    np.testing.assert_allclose(POSTERIOR.summary(level=0.5).loc["w0", "upper"], 1.0 + 0.6744898)


def test_several_latents_are_stacked() -> None:
    covariance = np.stack([np.diag([1.0, 4.0, 9.0]), np.diag([16.0, 25.0, 36.0])])
    table = WeightsPosterior(
        tf.constant(np.arange(6.0).reshape(3, 2)), tf.constant(covariance)
    ).summary()
    assert table.index.names == ["latent", "weight"]
    assert table.loc[(1, "w2"), "mean"] == 5.0 and table.loc[(0, "w1"), "mean"] == 2.0
    np.testing.assert_allclose(table["sd"], np.arange(1.0, 7.0))


def test_names_come_from_a_data_frame() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((30, 2)), columns=["age", "dose"])
    counts = pd.DataFrame({"events": rng.poisson(np.exp(0.5 * frame["dose"]))})
    model = gd.models.CVIGLM((frame, counts), gpflow.likelihoods.Poisson())
    for names in (frame, frame.columns, ["age", "dose"]):
        assert list(weights_posterior(model).summary(names).index) == ["age", "dose", "intercept"]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"names": ["a"]}, "There are 3 weights and 1 names"),
        ({"names": "abc"}, "names='abc' is a string"),
        ({"level": 1.0}, "level=1.0 must be a number between 0 and 1"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict, message: str) -> None:
    with pytest.raises(DataError, match=message):
        POSTERIOR.summary(**options)


def test_pandas_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        POSTERIOR.summary()
