"""An exact GP by L-BFGS on its evidence, beside GPflow's `GPR` by Scipy."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest

import gpflow_decoupled as gd
from gpflow_decoupled.errors import UnknownOptionError
from gpflow_decoupled.wrappers.sklearn import DecoupledGPRegressor
from tests.training.problems import sine

QUIET = {"progress": False, "optimizer": "lbfgs"}
PASSENGERS = np.array([
    112, 118, 132, 129, 121, 135, 148, 148, 136, 119, 104, 118, 115, 126, 141, 135, 125, 149, 170,
    170, 158, 133, 114, 140, 145, 150, 178, 163, 172, 178, 199, 199, 184, 162, 146, 166, 171, 180,
    193, 181, 183, 218, 230, 242, 209, 191, 172, 194, 196, 196, 236, 235, 229, 243, 264, 272, 237,
    211, 180, 201, 204, 188, 235, 227, 234, 264, 302, 293, 259, 229, 203, 229, 242, 233, 267, 269,
    270, 315, 364, 347, 312, 274, 237, 278, 284, 277, 317, 313, 318, 374, 413, 405, 355, 306, 271,
    306, 315, 301, 356, 348, 355, 422, 465, 467, 404, 347, 305, 336,
])  # fmt: skip
"""Airline passengers by month, 1949 to 1957 (Box & Jenkins 1976, series G)."""
MONTHS = (np.arange(108) / 12.0)[:, None]


def _composite() -> gpflow.kernels.Kernel:
    kernels = gpflow.kernels
    season = kernels.Periodic(kernels.SquaredExponential(), period=1.0)
    return (
        kernels.SquaredExponential(lengthscales=30.0)
        + season * kernels.SquaredExponential(lengthscales=30.0)
        + kernels.Matern32(lengthscales=0.5, variance=0.1)
    )


def _exact(
    data: tuple, kernel: gpflow.kernels.Kernel, likelihood: gpflow.likelihoods.Gaussian, **more
) -> float:
    """The best evidence that Scipy finds for GPflow's model."""
    model = gpflow.models.GPR(data, kernel, likelihood=likelihood, **more)
    gpflow.optimizers.Scipy().minimize(
        model.training_loss, model.trainable_variables, tf_fun_args={"autograph": False}
    )
    return float(model.log_marginal_likelihood())


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")
def test_a_series_with_trend_and_season_is_as_good_as_gpflows() -> None:
    observed = np.log(PASSENGERS)[:, None]
    model = gd.build(MONTHS, observed, kernel=_composite(), verbose=False)
    result = gd.fit(model, progress=False)
    scaled = (observed - observed.mean()) / observed.std()
    best = _exact((MONTHS, scaled), _composite(), gpflow.likelihoods.Gaussian(0.1))
    assert result.reason == "converged" and result.steps == 1
    assert float(model.elbo()) + 108 * np.log(observed.std()) > best - 0.01


def _noise() -> gpflow.likelihoods.Gaussian:
    return gpflow.likelihoods.Gaussian(scale=gpflow.functions.Linear(A=[[0.02]], b=[0.3]))


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["plain", "outputs", "mean", "noise of x", "held noise"])
def test_the_evidence_is_at_its_best(kind: str) -> None:
    X, Y = sine(30)
    Y = np.hstack([Y, 0.5 * Y[::-1]]) if kind == "outputs" else Y
    noise = _noise if kind == "noise of x" else lambda: gpflow.likelihoods.Gaussian(0.1)
    mean = gpflow.functions.Linear(A=np.ones((1, 1))) if kind == "mean" else None
    held = noise()
    gpflow.set_trainable(held, kind != "held noise")
    model = gd.models.CVIGP((X, Y), gpflow.kernels.Matern52(), held, mean_function=mean)
    result = gd.fit(model, **QUIET)
    twin = noise()
    gpflow.set_trainable(twin, kind != "held noise")
    other = gpflow.utilities.deepcopy(mean)
    if other is not None:
        other.A.assign(np.ones((1, 1)))
    best = _exact((X, Y), gpflow.kernels.Matern52(), twin, mean_function=other)
    assert float(model.elbo()) == pytest.approx(best, abs=2e-3)
    assert result.elbo == pytest.approx(float(model.elbo()), rel=1e-9)
    exact = gpflow.models.GPR((X, Y), model.kernel, model.mean_function, likelihood=held)
    for ours, theirs in zip(model.predict_f(X + 0.3), exact.predict_f(X + 0.3)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-8)
    if kind == "held noise":
        assert float(held.variance.numpy()) == pytest.approx(0.1)


@pytest.mark.exhaustive
def test_build_chooses_it_unless_steps_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    X, Y = sine(30)
    model = gd.build(X, Y)
    assert "exact for Gaussian noise, trained by L-BFGS" in capsys.readouterr().out
    twin = gpflow.utilities.deepcopy(model)
    assert gd.fit(model, (X, Y), progress=False).steps == 1
    assert gd.fit(twin, (X, Y), steps=3, learning_rate=0.01, progress=False).steps == 3
    assert not gd.build(X, Y, num_inducing=5, verbose=False).usual_options
    assert isinstance(gd.build(*sine(501), verbose=False).model, gd.models.CVIGP)


@pytest.mark.exhaustive
def test_a_limit_of_steps_is_one_of_evaluations() -> None:
    model = gd.models.CVIGP(sine(30), gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(0.5))
    start = float(gd.fit(model, steps=1, compile=False, **QUIET).elbo)
    again = gd.fit(model, **QUIET)
    assert again.reason == "converged" and again.elbo > start


def test_estimators_are_exact_for_few_rows() -> None:
    X, Y = sine(40)
    regressor = DecoupledGPRegressor().fit(X, Y[:, 0])
    assert regressor.standardized_.usual_options and regressor.result_.steps == 1
    assert regressor.score(X, Y[:, 0]) > 0.9


@pytest.mark.parametrize(
    "likelihood, options, message",
    [
        (gpflow.likelihoods.Gaussian(), {"learning_rate": 0.1}, "has no use for learning_rate"),
        (gpflow.likelihoods.Gaussian(), {"hold": "moments"}, "has no use for hold"),
    ],
)
def test_what_it_cannot_use_is_refused(likelihood, options: dict, message: str) -> None:
    X, Y = sine(10)
    model = gd.models.CVIGP((X, np.abs(np.round(Y))), gpflow.kernels.Matern52(), likelihood)
    with pytest.raises(UnknownOptionError, match=message):
        gd.fit(model, **QUIET, **options)
