"""`fit` says so, before its first step, where data and model are on different scales, and is silent
where they are not.
"""

from __future__ import annotations

import warnings

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_decoupled as gd
from gpflow_decoupled.diagnostics import warn_of_scales
from gpflow_decoupled.likelihoods import Laplace
from tests.training.problems import orthogonal, sine, unchanged, values

QUICK = {"steps": 1, "compile": False, "progress": False}


def _model(kernel=None, likelihood=None, mean_function=None) -> gpflow.models.SVGP:
    return gpflow.models.SVGP(
        kernel or gpflow.kernels.Matern52(),
        likelihood or gpflow.likelihoods.Gaussian(0.1),
        np.zeros((1, 1)),
        mean_function=mean_function,
    )


def _line(rows: int = 200, columns: int = 1) -> np.ndarray:
    return np.random.default_rng(0).uniform(0.0, 10.0, (rows, columns))


@pytest.mark.exhaustive
def test_fit_says_both_numbers_and_the_remedy() -> None:
    X, Y = sine()
    message = (
        r"Y\[:, 0\] has mean 1[0-9.]+ and standard deviation [0-9.]+, but before training the model"
        r" expects 0 and 1.05 "
        r"\(kernel variance 1, noise variance 0.1\)\. .*gpflow_decoupled\.Standardized\(build, \(X,"
        r" Y\)\)"
    )
    with pytest.warns(UserWarning, match=message) as record:
        gd.fit(orthogonal(), (X, 100.0 * Y + 150.0), **QUICK)
    assert len(record) == 1 and record[0].filename == __file__


def test_a_warning_as_an_error_leaves_the_model_as_it_was() -> None:
    X, Y = sine()
    model = orthogonal()
    before = values(model)
    with warnings.catch_warnings(), pytest.raises(UserWarning, match=r"Y\[:, 0\]"):
        warnings.simplefilter("error")
        gd.fit(model, (X, 100.0 * Y), **QUICK)
    assert unchanged(before, model) and model.num_data is None


@pytest.mark.exhaustive
def test_models_that_own_their_data_and_datasets_are_looked_at() -> None:
    X, Y = sine()
    full = gd.models.CVIGP(
        (X, 1e-4 * Y), gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(0.1)
    )
    with pytest.warns(UserWarning, match=r"Y\[:, 0\] has mean"):
        gd.fit(full, **QUICK)
    dataset = tf.data.Dataset.from_tensor_slices((X, 100.0 * Y)).batch(20)
    with pytest.warns(UserWarning, match=r"Y\[:, 0\] has mean") as record:
        gd.fit(orthogonal(num_data=60), dataset, **(QUICK | {"steps": 3}))
    assert len(record) == 1


def test_prior_mean_and_variances_of_the_right_size_are_silent() -> None:
    X = _line()
    Y = 150.0 + 100.0 * np.sin(X)
    mean = gpflow.functions.Constant(np.array([150.0]))
    warn_of_scales(_model(gpflow.kernels.Matern52(variance=1e4), mean_function=mean), X, Y, len(X))
    warn_of_scales(_model(likelihood=gpflow.likelihoods.Gaussian(3e4)), X, Y, len(X))
    for factor in (0.1, 1.0, 5.0):
        warn_of_scales(_model(), X, factor * np.sin(X), len(X))


@pytest.mark.parametrize(
    "likelihood", [gpflow.likelihoods.StudentT(0.1, df=1.5), Laplace(0.1)], ids=["t", "laplace"]
)
def test_outliers_of_heavy_tails_are_silent_and_scales_are_not(likelihood) -> None:
    X = _line()
    Y = np.sin(X)
    Y[:3] = 1e5
    warn_of_scales(_model(likelihood=likelihood), X, Y, len(X))
    with pytest.warns(UserWarning, match=r"Y\[:, 0\]"):
        warn_of_scales(_model(likelihood=likelihood), X, 100.0 * Y, len(X))


def test_counts_and_labels_have_no_scale() -> None:
    X = _line()
    warn_of_scales(
        _model(likelihood=gpflow.likelihoods.Poisson()), X, np.full((200, 1), 1e6), len(X)
    )


def test_each_output_has_its_prior() -> None:
    X = _line()
    kernels = [gpflow.kernels.Matern52(variance=variance) for variance in (1.0, 1e4)]
    model = _model(gpflow.kernels.SeparateIndependent(kernels))
    Y = np.concatenate([np.sin(X), 100.0 * np.cos(X)], axis=1)
    warn_of_scales(model, X, Y, len(X))
    with pytest.warns(UserWarning) as record:
        warn_of_scales(model, X, Y[:, ::-1], len(X))
    assert [str(one.message)[:7] for one in record] == ["Y[:, 0]"], (
        "a vague prior of the second output does no harm"
    )


SHORT = gpflow.kernels.Matern52(lengthscales=1e-4)
LONG = gpflow.kernels.Matern52(lengthscales=1e4)
ARD = gpflow.kernels.SquaredExponential(lengthscales=[1.0, 1e5])


@pytest.mark.parametrize(
    "kernel, columns, message",
    [
        (
            SHORT,
            1,
            (
                r"A row of X is typically [0-9.]+ lengthscales from the nearest other row"
                r" \(lengthscales 0\.0001, "
            ),
        ),
        (LONG, 1, r"X\[:, 0\] has a range of 9\.\d+, but the lengthscale is 1e\+04"),
        (ARD, 2, r"X\[:, 1\] has a range of 9\.\d+, but the lengthscale is 1e\+05"),
        (SHORT + gpflow.kernels.White(), 1, "A row of X"),
        (gpflow.kernels.SharedIndependent(SHORT, 1), 1, "A row of X"),
    ],
    ids=["short", "long", "one column", "with noise", "shared"],
)
def test_lengthscales_far_from_the_inputs(kernel, columns: int, message: str) -> None:
    X = _line(columns=columns)
    with pytest.warns(UserWarning, match=message) as record:
        warn_of_scales(_model(kernel), X, np.sin(X[:, :1]), len(X))
    assert len(record) == 1


@pytest.mark.parametrize(
    "kernel",
    [
        gpflow.kernels.Matern52(lengthscales=[1.0, 100.0]),
        SHORT + LONG,
        gpflow.kernels.Linear(),
        gpflow.kernels.Periodic(gpflow.kernels.SquaredExponential(lengthscales=1e-4)),
        gpflow.kernels.Matern12(lengthscales=0.3, active_dims=[1]) * gpflow.kernels.Constant(),
    ],
    ids=["ard", "short and long", "linear", "periodic", "one column"],
)
def test_lengthscales_that_make_sense_are_silent(kernel) -> None:
    X = _line(columns=2)
    warn_of_scales(_model(kernel), X, np.sin(X[:, :1]), len(X))


def test_a_sample_of_large_data_is_not_taken_as_sparse(monkeypatch) -> None:
    X = _line(20_000)  # 5e-4 apart
    kernel = gpflow.kernels.Matern52(lengthscales=1e-3)
    monkeypatch.setattr("gpflow_decoupled.diagnostics.scales._ROWS", 200)  # 5e-2 apart
    warn_of_scales(_model(kernel), X, np.sin(X), len(X))
    warn_of_scales(_model(kernel), X[:200], np.sin(X[:200]), len(X))
    with pytest.warns(UserWarning, match="A row of X"):
        warn_of_scales(_model(kernel), X[:200], np.sin(X[:200]), 200)


def test_few_rows_are_not_judged() -> None:
    warn_of_scales(_model(), 1e3 * _line(9), 1e3 * _line(9), 9)
