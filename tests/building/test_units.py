"""A kernel that the user hands over is in the user's units, and an index is never scaled."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest

import gpflow_decoupled as gd
from gpflow_decoupled.covariances.latents import indices_of
from gpflow_decoupled.errors import DataError, UnknownOptionError
from gpflow_decoupled.wrappers.sklearn import DecoupledGPRegressor

ROWS = np.array([12, 6, 4])
"""Of each task; with other shares than equal ones, scaled indices are wrong ones."""
TASK = np.repeat([0.0, 1.0, 2.0], ROWS)
X = np.stack([np.linspace(0.0, 10.0, ROWS.sum()), TASK], axis=1)
Y = 50.0 * (np.sin(X[:, :1]) + 3.0 * TASK[:, None])


def _tasks() -> gpflow.kernels.Kernel:
    return gpflow.kernels.Matern52(active_dims=[0]) * gpflow.kernels.Coregion(3, 2, active_dims=[1])


def _switch() -> gpflow.functions.Function:
    return gpflow.functions.SwitchedFunction(
        [gpflow.functions.Constant(np.full(1, float(task))) for task in range(3)]
    )


def _categorical() -> gpflow.kernels.Kernel:
    from gpflow.kernels.categorical import Categorical

    return Categorical(
        gpflow.kernels.Matern52(active_dims=[0]), gpflow.kernels.RBF(active_dims=[1]), 3
    )


READERS = {
    "coregion": (_tasks, lambda: None, lambda: gpflow.likelihoods.Gaussian(0.1)),
    "sum": (
        lambda: gpflow.kernels.Matern32(active_dims=[0]) + _tasks(),
        lambda: None,
        lambda: gpflow.likelihoods.Gaussian(0.1),
    ),
    "categorical": (_categorical, lambda: None, lambda: gpflow.likelihoods.Gaussian(0.1)),
    "mean": (gpflow.kernels.Matern52, _switch, lambda: gpflow.likelihoods.Gaussian(0.1)),
    "noise": (
        gpflow.kernels.Matern52,
        lambda: None,
        lambda: gpflow.likelihoods.Gaussian(
            variance=gpflow.functions.SwitchedFunction(
                [gpflow.functions.Constant(np.full(1, 0.1 + task)) for task in range(3)]
            )
        ),
    ),
}


def _svgp(X: np.ndarray, Y: np.ndarray, name: str) -> gpflow.models.GPModel:
    kernel, mean, likelihood = (make() for make in READERS[name])
    return gpflow.models.SVGP(kernel, likelihood, X[::4], mean_function=mean)


def _cvigp(X: np.ndarray, Y: np.ndarray, name: str) -> gpflow.models.GPModel:
    kernel, mean, likelihood = (make() for make in READERS[name])
    return gd.models.CVIGP((X, Y), kernel, likelihood, mean_function=mean)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("make", [_svgp, _cvigp])
def test_an_index_is_never_scaled(make, name: str) -> None:
    model = gd.Standardized(lambda X, Y: make(X, Y, name), (X, Y))
    np.testing.assert_allclose(model.inputs.scale, [X[:, 0].std(), 1.0])
    np.testing.assert_allclose(model.inputs.mean, [X[:, 0].mean(), 0.0])
    seen = np.asarray(model.encoded(X))
    np.testing.assert_array_equal(seen[:, 1], TASK)


@pytest.mark.costly(keep=2)
@pytest.mark.parametrize("wrong", [0.5, 3.0, -1.0])
@pytest.mark.parametrize("name", READERS)
def test_what_is_no_index_is_refused_by_name(name: str, wrong: float) -> None:
    kernel, mean, likelihood = (make() for make in READERS[name])
    bad = X.copy()
    bad[5, 1] = wrong
    message = rf"\[5, 1\] is {wrong:g}, and \w+ reads this column as an index: .* from 0 to 2"
    with pytest.raises(DataError, match=message):
        _cvigp(bad, Y, name)
    with pytest.raises(DataError, match=r"X" + message):  # of the data, not as they are scaled
        gd.Standardized(lambda X, Y: _cvigp(X, Y, name), (bad, Y))
    model = gd.models.ODVGP(kernel, likelihood, X[1::5], X[::5], mean_function=mean, num_data=22)
    asks = [
        lambda: model.predict_f_samples(bad),
        lambda: model.predict_y(bad),
        lambda: model.elbo((bad, Y)),
        lambda: gd.fit(model, (bad, Y), steps=1, progress=False),
    ]
    # a posterior of GPflow's form has no likelihood
    asks += [] if name == "noise" else [lambda: model.predict_f(bad)]
    for ask in asks:
        with pytest.raises(DataError, match=message):
            ask()
    if name == "coregion":
        for refuse in (
            lambda: gd.models.NNGP((bad, Y), kernel, num_neighbours=3),
            lambda: gd.models.DTC((bad, Y), kernel, X[::4]),
            lambda: gd.models.SparseCVIGP(kernel, likelihood, bad),
            lambda: gd.models.ODVGP(kernel, likelihood, bad[5:6], X[::5]),
            lambda: gd.models.HDVGP(kernel, likelihood, bad[5:6], X[::5]),
            lambda: gd.models.DVGP(kernel, likelihood, bad[5:6], X[::5]),
            lambda: gd.models.SOLVEGP(kernel, likelihood, bad[5:6], X[::5]),
        ):
            with pytest.raises(DataError, match="reads this column as an index"):
                refuse()


def test_indices_are_found() -> None:
    assert [tuple(index) for index in indices_of(_tasks(), _switch(), None)] == [
        (1, 3, "Coregion"),
        (-1, 3, "SwitchedFunction"),
    ]
    assert indices_of(gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian()) == []


@pytest.mark.exhaustive
def test_a_kernel_is_in_units_of_x(capsys: pytest.CaptureFixture[str]) -> None:
    """A period of 7 days stays one; the posterior is that of GPflow with the same kernel."""
    days = np.arange(30.0)[:, None]
    observed = 5.0 * np.sin(2.0 * np.pi * days / 7.0) + 20.0
    kernel = gpflow.kernels.Periodic(gpflow.kernels.SquaredExponential(), period=7.0)
    model = gd.build(days, observed, kernel=kernel)
    said = capsys.readouterr().out
    assert "Y standardised, X in its units, which the kernel has too, predictions" in said
    gd.build(X, Y, gpflow.likelihoods.Gaussian(0.1), scale="Y")
    assert "to which Y the numbers of your likelihood belong" in capsys.readouterr().out
    gd.build(X, Y, gpflow.likelihoods.Gaussian(0.1), scale="X")
    assert "your likelihood" not in capsys.readouterr().out
    gd.optimizers.ConjugateComputation(1.0).run(model.model)
    scaled = (observed - observed.mean()) / observed.std()
    exact = gpflow.models.GPR((days, scaled), kernel, noise_variance=0.1)
    mean, variance = exact.predict_f(days + 100.5)
    found = model.predict_f(days + 100.5)
    np.testing.assert_allclose(found[0], mean * observed.std() + observed.mean(), rtol=1e-8)
    np.testing.assert_allclose(found[1], variance * observed.std() ** 2, rtol=1e-7, atol=1e-9)


@pytest.mark.costly(keep=3)
@pytest.mark.parametrize(
    "options, inputs, outputs",
    [
        ({}, True, True),
        ({"scale": "X"}, True, False),
        ({"scale": "neither"}, False, False),
        ({"kernel": gpflow.kernels.Matern52()}, False, True),
        ({"kernel": lambda D: gpflow.kernels.Matern52()}, False, True),
        ({"kernel": gpflow.kernels.Matern52(), "scale": "both"}, True, True),
        ({"kernel": gpflow.kernels.Matern52(), "scale": "X"}, True, False),
        ({"scale": "Y"}, False, True),
        ({"likelihood": gpflow.likelihoods.Gaussian(0.1)}, True, True),
        ({"likelihood": gpflow.likelihoods.Gaussian(gpflow.functions.Constant(0.1))}, False, True),
        ({"likelihood": "poisson", "scale": "both"}, True, False),
    ],
)
def test_what_is_scaled(options: dict, inputs: bool, outputs: bool) -> None:
    model = gd.build(X, np.round(Y + 60.0), verbose=False, **options)
    assert np.all((model.inputs.scale.numpy() != 1.0) == inputs)
    assert (model.outputs is not None) == outputs


def test_other_scales_are_refused() -> None:
    with pytest.raises(UnknownOptionError, match="scale='all'"):
        gd.build(X, Y, scale="all")
    with pytest.raises(DataError, match=r"scale_inputs=\[True\]: pass True or False, or one"):
        gd.Standardized(lambda X, Y: _svgp(X, Y, "coregion"), (X, Y), scale_inputs=[True])


@pytest.mark.exhaustive
def test_estimators_follow_the_rule() -> None:
    options = {"steps": 1, "fit_options": {"compile": False, "initialize": None}}
    kernel = gpflow.kernels.Matern52()
    for scale, expected in ((None, 1.0), ("both", X.std(axis=0))):
        found = DecoupledGPRegressor(kernel, scale=scale, **options).fit(X, Y[:, 0])
        np.testing.assert_allclose(found.X_scaler_.scale, np.broadcast_to(expected, 2))
